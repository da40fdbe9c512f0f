"""The reply chain: which messages led to what this agent sends now, and which of them it answers.

    the user ──→ Alice ── depth 1 ──→ Bob ── depth 2, in reply to it ──→ Alice ── depth 3 ──→ ...

The depth is what tells two agents that answer each other for ever (relay.messaging.runaway).
"""

from __future__ import annotations

from relay import names
from relay.message import Message


class ReplyChain:
    """What one agent was given since it last sent something, or since its present turn began."""

    def __init__(self) -> None:
        self._depth = 0  # of the deepest text that may have led to what is said next
        self._answered = True  # something was sent since the last text was given
        self._last: dict[str, Message] = {}  # the last message from each sender

    @property
    def depth(self) -> int:
        """How many messages led to what is sent now since a person last spoke."""
        return self._depth + 1

    def user_spoke(self) -> None:
        """Begin a new chain: the user has submitted something themselves."""
        self._depth = 0
        self._last.clear()

    def given(self, depth: int, *, begins: bool) -> None:
        """Note that a text of that depth is given to the agent; begins: with a turn of its own.

        What came before in the same turn, and was not answered yet, may still lead to the next message.
        """
        fresh = begins or self._answered or depth == 0
        self._depth = depth if fresh else max(self._depth, depth)
        self._answered = False

    def received(self, message: Message) -> None:
        """Note that `message` is given to the agent."""
        self._last[names.key(message.sender)] = message

    def sent(self) -> None:
        """Note that the agent has sent something."""
        self._answered = True

    def answers(self, to: str) -> Message | None:
        """Return what a message to `to` answers: the last one from there since the user spoke."""
        return self._last.get(names.key(to))
