"""Events of messages, and of the session's connection to the message bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.errors import RelayError
from relay.eventbus import Event, EventBus, Question
from relay.message import Message
from relay.storage.journal import preview

if TYPE_CHECKING:
    from relay.messaging.client import MessagingClient


class MessageStored(Event):
    """A message for this agent is stored, and next in order."""

    message: Message


class OutcomeReported(Event):
    """A message of this agent has reached its receiver's ledger, or its outcome there is known."""

    message: Message


class StatusReported(Event):
    """The client has a new status: one line for the user."""

    text: str


class ClientOpened(Event):
    """The session has a new client on the message bus (CurrentClient)."""


class MessageGiven(Event):
    """A message is about to be given to the agent. begins: True if it starts a new turn."""

    message: Message
    begins: bool


class MessageExchanged(Event):
    """The agent has sent `message`, or is about to be given it."""

    message: Message


class MessagesHeld(Event):
    """Messages that the agent sent are held. reason: shown to the user, with what they can do."""

    reason: str


class AddItem(Event):
    """Put something into the user's inbox (relay.messaging.user_inbox), until EndItem; secrets are removed.

    quiet: no sink gets it. lasts: seconds after which it no longer matters.
    """

    kind: str
    text: str
    quiet: bool = False
    lasts: float | None = None


class EndItem(Event):
    """The agent's items of this kind no longer wait for the user. text: only the one with this text."""

    kind: str
    text: str | None = None


class UnreadCounted(Event):
    """The user has this many unread items in the inbox, in the whole home."""

    number: int


class InHand(Question[frozenset[str]]):
    """Name the messages (ids) that this session is delivering to the agent now."""


class CurrentClient(Question["MessagingClient"]):
    """Name the client of this session (`current_client`); raise a RelayError that says why there is none."""

    wait: bool


async def current_client(bus: EventBus, *, wait: bool = True) -> MessagingClient:
    """Return the client that this session uses. Raise a RelayError that says why there is none.

    wait: wait for the first attempt to open one.
    """
    for client in await bus.ask(CurrentClient(wait)):
        return client
    raise RelayError("this session runs without messages.")


def handler_fields(message: Message) -> dict[str, Any]:
    """Return the fields of a message, sent or received, that handlers get."""
    return {
        "body": message.body,
        "id": message.id,
        "channel": message.channel,
        "thread": message.thread,
        "reply_to": message.reply_to,
        "priority": message.priority.value,
    }


def journal_fields(message: Message) -> dict[str, Any]:
    fields = {name: getattr(message, name) for name in ("id", "sender", "to", "state", "route", "role")}
    return {**fields, "body": preview(message.body)}
