"""Sends the agent's messages, and reports their outcomes.

SendMessage ─→ MessagingClient ─→ MessageSent ... OutcomeReported ─→ DeliveryTracker ─→ the agent, the user
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relay import names
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.dataclass import replace
from relay.errors import LedgerAway, NotAMember, RelayError, UsageError
from relay.eventbus import EventBus, answers, handles
from relay.hooks import events
from relay.hooks.commands import ListChannels, ListMembers, Member, SendMessage
from relay.injection.events import InjectionEnded, MayBegin
from relay.lifecycle import Describe, Identity
from relay.message import Message, OutgoingMessage, Priority, State
from relay.messaging.delivery_tracker import DeliveryTracker
from relay.messaging.events import (
    MessageExchanged,
    MessageGiven,
    MessagesHeld,
    OutcomeReported,
    current_client,
    handler_fields,
    journal_fields,
)
from relay.messaging.reply_chain import ReplyChain
from relay.place import REQUEST, Place
from relay.state.events import PromptSubmitted
from relay.storage.journal import Journal
from relay.terminal.events import Notify
from relay.transport.wire import is_id

if TYPE_CHECKING:
    from relay.messaging.client import MessagingClient

LEDGER_TIMEOUT, LEDGER_RETRY = 60.0, 0.2
"""Seconds for which a message that the agent has said waits for a ledger that is locked or being opened, and
between two tries. On a busy machine, other processes may hold the lock for longer than one try waits."""


class MessageSender:
    """Sends messages on behalf of one agent, with the session's current client."""

    def __init__(self, bus: EventBus, journal: Journal, session: Identity) -> None:
        self._bus = bus
        self._journal = journal
        self._session = session
        self._chain = ReplyChain()
        self._tracker = DeliveryTracker(bus)

    @answers(SendMessage)
    async def send(self, question: SendMessage, _: object) -> tuple[Message, ...]:
        """Commit the message, and publish it.

        A message without `reply_to` becomes a reply, in the same thread, to the last message from its
        receiver that the agent was given since the user's last prompt.
        """
        message = replace(question.message, depth=self._chain.depth, session=self._session.id)
        if message.reply_to is None and (answered := self._chain.answers(message.to)):
            thread = message.thread or answered.thread or answered.id
            message = replace(message, reply_to=answered.id, thread=thread)
        sent = await self._commit(message)
        self._chain.sent()
        for each in sent:
            self._publish(each)
        self._tracker.sent(sent)
        if question.wait is None:
            return tuple(sent)
        return tuple(await self._tracker.wait(sent, question.wait))

    async def _commit(self, message: OutgoingMessage) -> list[Message]:
        """Commit `message`. If the agent has said it, wait for the ledger: the agent would not repeat it."""
        said = message.place is not None and not message.place.requested
        deadline = time.monotonic() + (LEDGER_TIMEOUT if said else 0.0)
        while True:
            try:
                return await (await current_client(self._bus)).send(message)
            except LedgerAway:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(LEDGER_RETRY)

    def _publish(self, message: Message) -> None:
        self._journal.write("message_sent", **journal_fields(message))
        self._bus.publish(MessageExchanged(message))
        if names.same(message.to, names.PERSON) and message.state is not State.HELD:
            where = f"in #{message.channel}" if message.channel else "says to you"
            self._bus.publish(Notify(f"{message.sender} {where}: {message.body}", listed=True))
        self._bus.publish(events.MessageSent(to=message.to, **handler_fields(message)))

    @handles(OutcomeReported)
    def outcome(self, event: OutcomeReported) -> None:
        self._journal.write("message_outcome", **journal_fields(event.message))
        self._tracker.settled(event.message)

    @handles(MessagesHeld)
    def held(self, event: MessagesHeld) -> None:
        """Tell the user, who alone can release the messages."""
        self._bus.publish(Notify(event.reason, listed=True))

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if event.by_user:
            self._chain.user_spoke()

    @handles(MessageGiven)
    def given(self, event: MessageGiven) -> None:
        self._chain.given(event.message.depth, begins=event.begins)
        self._chain.received(event.message)

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        depth = self._tracker.depth(question.injection)
        if depth is not None and (question.begins or question.injection.wakes):
            self._chain.given(depth, begins=question.begins)  # else it only rides along, and starts nothing

    @handles(InjectionEnded)
    def ended(self, event: InjectionEnded) -> None:
        if event.injection.kind != "message":
            self._tracker.given(event.injection)

    @answers(ListMembers)
    async def roster(self, question: ListMembers, _: object) -> tuple[Member, ...]:
        try:
            client = await current_client(self._bus)
        except RelayError:
            return ()
        if question.name is not None and client.is_here(question.name):
            return (Member(question.name, True),)
        absent = False if client.informed else None
        return tuple(
            Member(each.name, each.online or absent)
            for each in await client.roster(question.name)
            if not names.same(each.name, self._session.name)
        )

    @answers(ListChannels)
    async def channels(self, _: ListChannels, __: object) -> tuple[str, ...]:
        try:
            client = await current_client(self._bus)
        except RelayError:
            return ()
        return tuple(await client.channels())

    @answers(Describe)
    async def describe(self, _: Describe, __: object) -> dict[str, Any]:
        with suppress(RelayError):
            client, who = await current_client(self._bus, wait=False), self._session
            return {"held": len(await client.ask(lambda it: it.held(team=who.team, sender=who.name)))}
        return {"held": None}

    @operation("send")
    async def on_send(self, request: Request) -> Answer:
        fields = request.fields
        to, body, thread, reply_to = (fields.get(name) for name in ("to", "body", "thread", "reply_to"))
        priority, ttl = fields.get("priority") or Priority.NORMAL, fields.get("ttl")
        if not isinstance(to, str) or not isinstance(body, str):
            raise UsageError("a message needs a receiver and a text.")
        if not isinstance(thread, str | None) or not isinstance(reply_to, str | None):
            raise UsageError("a message's thread, and the id of the message it answers, must be words.")
        if priority not in set(Priority) or not isinstance(ttl, int | float | None):
            raise UsageError(
                "a message's priority must be urgent, normal or low, and its expiry a number of seconds."
            )
        id = fields.get("id")
        place = Place(f"{REQUEST}/{id}", 0) if isinstance(id, str) and is_id(id) else None
        message = OutgoingMessage(to, body, thread, reply_to, Priority(priority), ttl, place=place)
        sent: Sequence[Message] = ()
        if _again(request) and place is not None:
            client, session = await current_client(self._bus), self._session.id
            sent = await client.ask(lambda ledger: ledger.outbox.sent_for(session, place))
            self._tracker.sent(sent)
        if not sent:
            sent = await self.send(SendMessage(message), ())
        return {"messages": [each.public() for each in sent]}

    @operation("join")
    async def on_join(self, request: Request) -> Answer:
        client = await current_client(self._bus)
        return await self._membership(client, await client.join(_channel(request)) or _again(request))

    @operation("leave")
    async def on_leave(self, request: Request) -> Answer:
        client = await current_client(self._bus)
        try:
            await client.leave(_channel(request))
        except NotAMember:
            if not _again(request):
                raise
        return await self._membership(client, True)

    async def _membership(self, client: MessagingClient, changed: bool) -> Answer:
        session, channels = self._session, await client.channels()
        return {"name": session.name, "team": session.team, "changed": changed, "channels": channels}

    @operation("roster")
    async def on_roster(self, _: Request) -> Answer:
        members = await self.roster(ListMembers(), ())
        return {"members": [{"name": each.name, "online": each.online} for each in members]}


def _again(request: Request) -> bool:
    """Return True if an earlier session ended during the request, and may have carried it out."""
    return request.fields.get("again") is True


def _channel(request: Request) -> str:
    channel = request.fields.get("channel")
    if not isinstance(channel, str):
        raise UsageError("a channel's name is one word, such as '#ops'.")
    return names.channel(channel)
