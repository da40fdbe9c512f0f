"""What handlers, and the features of a session, can ask of it and report to it."""

from __future__ import annotations

from dataclasses import dataclass

from relay.eventbus import Event, Question
from relay.hooks.problem import Problem
from relay.message import Message, OutgoingMessage


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody of the team. online: whether a live session has the name; None while nobody knows."""

    name: str
    online: bool | None


@dataclass(frozen=True, slots=True)
class SendMessage(Question[tuple[Message, ...]]):
    """Send `message` in this agent's name: one Message per receiver, each committed in the ledger.

    wait: answer when all have come to an end or are held, or after so many seconds; None: at once.

    Raise UnknownRecipient, InvalidName or MessageRefused.
    """

    message: OutgoingMessage
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Roster(Question[tuple[Member, ...]]):
    """Name everybody whom the team has ever known, this agent left out."""


@dataclass(frozen=True, slots=True)
class Channels(Question[tuple[str, ...]]):
    """Name the channels that this agent is in, sorted."""


@dataclass(frozen=True, slots=True)
class HandlerProblem(Event):
    """A handler has a fault; the session goes on."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class HandlerPrinted(Event):
    """A handler has printed `text`. handler: its name."""

    handler: str
    text: str
