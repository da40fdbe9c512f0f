"""A message between two agents, and the states it passes through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_BODY = 64 * 1024
"""Bytes of UTF-8 in a message's body; a larger one is refused at sending, never cut (design, section 6)."""


class State(StrEnum):
    """What is known of a message, each state honest.

    queued → sent → stored → injected
       │       │       ├→ uncertain   the receiver died between typing and verifying
       │       │       └→ rejected    the receiver's relay could not type it, and said why
       └───────┴→ expired
    """

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


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one receiver (a broadcast is one such message per receiver).

    id: unique for ever, made by the sender. time: seconds since the epoch.
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
            "detail": self.detail,
            "route": self.route,
            "role": self.role,
        }
