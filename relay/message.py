"""A message between two agents, and the states it passes through."""

from __future__ import annotations

from enum import StrEnum

from relay.dataclass import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relay.place import Place

MAX_BODY = 64 * 1024
"""Maximum bytes of UTF-8 in a message's body; a larger one is refused when sent, never cut."""

ID_SHOWN = 8
"""Characters of a message's id that relay shows to users and agents; commands accept them."""

_PUBLIC = (
    *("id", "sender", "to", "body", "state", "time", "thread", "reply_to", "priority"),
    *("channel", "depth", "expires", "detail", "route", "role"),
)


class State(StrEnum):
    """The known progress of a message; no state claims more than relay knows.

    held ─→ queued → sent → stored → injected
    │          │       │       ├→ read        the receiver is the user
    │          │       │       ├→ uncertain   the receiver died between typing and verifying
    │          │       │       └→ rejected    it could not be typed, or was dropped there
    └──────────┴───────┴→ expired
    """

    HELD = "held"  # committed; waits for the user's decision because it looks like part of a runaway
    QUEUED = "queued"  # committed in the sender's ledger
    SENT = "sent"  # published; the broker's acknowledgement proves nothing more
    STORED = "stored"  # committed in the receiver's ledger
    INJECTED = "injected"  # submitted to the agent and verified
    READ = "read"  # the user has read it
    UNCERTAIN = "uncertain"
    REJECTED = "rejected"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        return self in {State.INJECTED, State.READ, State.UNCERTAIN, State.REJECTED, State.EXPIRED}


class Priority(StrEnum):
    """The precedence of a message over others to the same receiver; within a priority, order is kept."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """Return the number stored in the ledger; 0 goes first."""
        return _RANKS[self]

    @classmethod
    def of_rank(cls, rank: int) -> Priority:
        return _RANKED[rank]


OPEN = tuple(state for state in State if not state.final)
"""The states of a message that is still to be delivered."""

_RANKED = list(Priority)
_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send to `to`: an agent, the user, `#channel`, or `*` (every running agent).

    thread, reply_to, depth: as in Message.
    ttl:   seconds until it expires if undelivered; 0: never; None: as the settings say.
    place: the place of the directive or request that asked for it, if any.
    session: the id of the session that read that directive or request.
    """

    to: str
    body: str
    thread: str | None = None
    reply_to: str | None = None
    priority: Priority = Priority.NORMAL
    ttl: float | None = None
    depth: int = 0
    place: Place | None = None
    session: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one receiver (a broadcast is one such message per receiver).

    The man page shows these lines (`make man`). Times are in seconds since the epoch.

    id:       unique forever, created by the sender.
    sender, to: the two agents; `you` is the user.
    body:     its text.
    time:     when it was sent.
    state:    `held`, `queued`, `sent`, `stored`, `injected`, `read`, `uncertain`, `rejected` or `expired`;
              `relay messages --help` explains them.
    detail:   why it is in that state.
    thread:   a word for its conversation, or the id of the first message there.
    reply_to: the id of the message that it answers.
    priority: `urgent`, `normal` or `low`.
    channel:  the channel that it was sent to, without `#`; None for none.
    depth:    how many messages led to it since the user's last input; 0 for the user's own.
    expires:  when it expires if undelivered; None for never.
    route:    how it reached the agent: `typed`, `native` (in a reply to one of the agent's own hooks), `door`
              (by its own inbox), `mcp` (by a [tool](MCP.md)), or `program` (a program took it).
    role:     whose words it is to the agent: `user` or `system`.
    """

    id: str
    sender: str
    to: str
    body: str
    time: float
    state: State = State.QUEUED
    thread: str | None = None
    detail: str | None = None
    route: str | None = None
    role: str | None = None
    reply_to: str | None = None
    priority: Priority = Priority.NORMAL
    channel: str | None = None
    depth: int = 0
    expires: float | None = None

    def public(self) -> dict[str, Any]:
        """Return the JSON object of `relay messages --json` and `relay send --json`."""
        return {"from" if name == "sender" else name: getattr(self, name) for name in _PUBLIC}
