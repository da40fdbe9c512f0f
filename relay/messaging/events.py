"""What happens to messages, and to the session's place on the message bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relay.eventbus import Event, Question
from relay.message import Message
from relay.storage.journal import preview


@dataclass(frozen=True, slots=True)
class MessageStored(Event):
    """A message for this agent was stored, and its turn has come."""

    message: Message


@dataclass(frozen=True, slots=True)
class OutcomeReported(Event):
    """A message of this agent is stored at its receiver, or was settled there."""

    message: Message


@dataclass(frozen=True, slots=True)
class StatusReported(Event):
    """One line for the user: where the client is connected to, or why it is not."""

    text: str


@dataclass(frozen=True, slots=True)
class ClientOpened(Event):
    """The session has a new client on the message bus (client.CurrentClient)."""


@dataclass(frozen=True, slots=True)
class MessageGiven(Event):
    """A message is about to be given to the agent. begins: with a turn of its own."""

    message: Message
    begins: bool


@dataclass(frozen=True, slots=True)
class MessageExchanged(Event):
    """The agent has sent `message`, or is about to be given it."""

    message: Message


@dataclass(frozen=True, slots=True)
class MessagesHeld(Event):
    """Messages that the agent sent are held for the user. reason: for them, with what they can do."""

    reason: str


@dataclass(frozen=True, slots=True)
class InHand(Question[frozenset[str]]):
    """Which messages (ids) is this session giving to the agent now?"""


def journal_fields(message: Message) -> dict[str, Any]:
    """Return what the journal says of a message."""
    return {
        "id": message.id,
        "sender": message.sender,
        "to": message.to,
        "state": str(message.state),
        "route": message.route,
        "role": message.role,
        "body": preview(message.body),
    }
