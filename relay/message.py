"""A message between two agents, and the states it passes through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relay.place import Place

MAX_BODY = 64 * 1024
"""Bytes of UTF-8 in a message's body; a larger one is refused at sending, never cut (design, section 6)."""


class State(StrEnum):
    """What is known of a message, each state honest.

    held ─→ queued → sent → stored → injected
    │          │       │       ├→ uncertain   the receiver died between typing and verifying
    │          │       │       └→ rejected    it could not be typed, or was dropped there
    └──────────┴───────┴→ expired
    """

    HELD = "held"  # committed, and kept for the person: it looks like a part of a runaway
    QUEUED = "queued"  # committed in the sender's ledger
    SENT = "sent"  # published; the broker's acknowledgement proves nothing more
    STORED = "stored"  # committed in the receiver's ledger
    INJECTED = "injected"  # submitted to the agent and verified
    UNCERTAIN = "uncertain"
    REJECTED = "rejected"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        return self in {State.INJECTED, State.UNCERTAIN, State.REJECTED, State.EXPIRED}


class Priority(StrEnum):
    """How a message stands beside others for the same receiver; order is kept within each."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 goes first; what the ledger keeps."""
        return list(Priority).index(self)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What is to be sent to `to`: an agent, the person, `#channel`, or `*` (everybody seen lately).

    thread, reply_to: as in Message. ttl: seconds after which it is given up if it has not arrived; 0: never,
    None: as the sender's settings say. depth: how many messages led to it since a person last spoke.
    place: of the directive that asked for it; None if none did.
    """

    to: str
    body: str
    thread: str | None = None
    reply_to: str | None = None
    priority: Priority = Priority.NORMAL
    ttl: float | None = None
    depth: int = 0
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one receiver (a broadcast is one such message per receiver).

    id: unique for ever, made by the sender. time: seconds since the epoch.
    thread: what it belongs to, a word; reply_to: the id of the message that it answers.
    channel: the channel by which it came, spelled without `#`; None if it was for its receiver alone.
    depth: how many messages led to it since a person last spoke; 0 for a person's own.
    expires: seconds since the epoch after which it is given up, if it has not arrived.
    route, role: once it reached its receiver, how (typed, or native: in a reply to one of the agent's own
    hooks), and as whose words the agent has it (user, system).
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
        """The JSON object of `relay messages --json` and `relay send --json`."""
        return {
            "id": self.id,
            "from": self.sender,
            "to": self.to,
            "body": self.body,
            "state": self.state.value,
            "time": self.time,
            "thread": self.thread,
            "reply_to": self.reply_to,
            "priority": self.priority.value,
            "channel": self.channel,
            "depth": self.depth,
            "expires": self.expires,
            "detail": self.detail,
            "route": self.route,
            "role": self.role,
        }
