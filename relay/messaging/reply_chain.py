"""The reply chain: the messages that led to this agent's next message, and those that it answers.

    the user ──→ Alice ── depth 1 ──→ Bob ── depth 2, in reply to it ──→ Alice ── depth 3 ──→ ...

The depth reveals agents that answer each other endlessly (relay.messaging.runaway).
"""

from __future__ import annotations

from relay import names
from relay.message import Message


class ReplyChain:
    """The texts that one agent was given since it last sent something, or since its current turn began."""

    def __init__(self) -> None:
        self._depth = 0  # of the deepest text that may lead to the next message
        self._answered = True  # something was sent since the last text was given
        self._last: dict[str, Message] = {}  # the last message from each sender

    @property
    def depth(self) -> int:
        """Return the depth of the next message: 1 if the user's own input led to it, otherwise more."""
        return self._depth + 1

    def user_spoke(self) -> None:
        """Start a new chain: the user has submitted something."""
        self._depth = 0
        self._last.clear()

    def given(self, depth: int, *, begins: bool) -> None:
        """Record that a text of this depth is given to the agent. begins: the text begins a turn.

        Earlier, unanswered texts of the same turn may still lead to the next message.
        """
        fresh = begins or self._answered or depth == 0
        self._depth = depth if fresh else max(self._depth, depth)
        self._answered = False

    def received(self, message: Message) -> None:
        self._last[names.key(message.sender)] = message

    def sent(self) -> None:
        self._answered = True

    def answers(self, to: str) -> Message | None:
        """Return what a message to `to` answers: its last message since the user's input, or None."""
        return self._last.get(names.key(to))
