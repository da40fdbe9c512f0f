"""One agent on the message bus: sends its messages, receives its mail, and keeps a roster of its team.

    send → ledger → Publisher → broker → the other's Receiver → its ledger → MessageStored
                                                    └── receipt ──→ ledger → OutcomeReported

A client also publishes for senders of its home that have no session of their own (the user, agents that have
ended), over a connection with their credentials.  Everything is written to the ledger first, so that a broker
that is absent, wedged or killed delays messages and loses none; nothing here waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass

from relay import names
from relay.errors import LedgerError, NameInUse, RelayError
from relay.eventbus import Event, EventBus, Question
from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import LedgerGone
from relay.messaging.outgoing import Outgoing, ProxyPublishers, ReceiptSender
from relay.messaging.posting import post
from relay.messaging.presence_tracker import PresenceTracker
from relay.messaging.publisher import Publisher
from relay.messaging.receiver import ConnectionStatus, Receiver
from relay.messaging.runaway import Limits
from relay.place import Place
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.announcer import Announcer
from relay.transport.connector import Connector
from relay.transport.mqtt import MqttTransport
from relay.transport.name_claims import claim_name
from relay.transport.presence import Presence, PresenceRoster

FIRST_RECONNECT = 0.2
LAST_RECONNECT = 30.0
"""Seconds between two tries to reach the broker: doubling, with jitter."""

SWEEP_EVERY = 15.0
"""Seconds, more or less, between two looks for what has expired."""

PRUNE_EVERY = 3600.0
"""Seconds between two looks for what the ledger may forget."""


class MessagingClient:
    """The bus as one agent's session uses it, all on one event loop's thread."""

    @classmethod
    async def open(
        cls,
        home: Home,
        team: str,
        name: str,
        *,
        publish: Callable[[Event], None],
        broker_url: str | None = None,
        broker_port: int | None = None,
        limits: Limits | None = None,
        in_hand: Collection[str] = (),
    ) -> MessagingClient:
        """Take the name in this home, open its ledger, and return a client that can send and be asked.

        publish:    called on this loop with each event (relay.messaging.events).
        broker_url: an external broker; None: the embedded one, started on demand (at broker_port, if given).
        limits:     what the runaway guard lets the agent send (default: Limits()).
        in_hand:    the ids of messages that this process was giving to the agent over an earlier client.
                    Others that a session was typing when it ended become uncertain.

        Raise NameInUse if another process of this home has the name, LedgerError, HomeError, and BrokerError
        for a malformed URL.
        """
        names.validate(team, "team")
        names.validate(name)
        connector = Connector(home, broker_url, port=broker_port)

        def begin(ledger: Ledger) -> str:
            ledger.registry.register(team, name)
            ledger.inbox.recover(team, name, in_hand)
            ledger.prune()
            return ledger.origin

        resources = contextlib.AsyncExitStack()
        try:
            await _enter(resources, claim_name(home, team, name))
            ledger = Writer(Ledger, home.ledger)
            resources.push_async_callback(asyncio.to_thread, ledger.close)
            origin = await ledger.run(begin)
            return cls(home, team, name, connector, ledger, origin, limits or Limits(), publish, resources)
        except BaseException:
            await resources.aclose()
            raise

    def __init__(
        self,
        home: Home,
        team: str,
        name: str,
        connector: Connector,
        ledger: Writer[Ledger],
        origin: str,
        limits: Limits,
        publish: Callable[[Event], None],
        resources: contextlib.AsyncExitStack,
    ) -> None:
        """Call `open` instead. resources: `close` gives them back."""
        roster = PresenceRoster()
        self.team = team
        self.name = name
        self._connector = connector
        self._ledger = ledger
        self._limits = limits
        self._resources = resources
        self._status = ConnectionStatus(publish)
        self._tracker = PresenceTracker(home, ledger, team, name, origin, roster)
        self._announcer = Announcer(team, name, origin, roster, self.channels)
        self._outgoing = Outgoing(
            Publisher(ledger, team, name, roster, mailbox=connector.external),
            ProxyPublishers(home, ledger, team, connector, roster),
            ReceiptSender(ledger, team, name),
        )
        self.ended = False  # `run` is over, or about to be
        parts = (self._tracker, self._announcer, self._outgoing, self._status)
        self._receiver = Receiver(ledger, team, name, limits.queue, *parts, publish)

    async def close(self) -> None:
        """Finish what was handed to the ledger; close it and give up the name. May be called twice."""
        await self._resources.aclose()

    async def run(self) -> None:
        """Stay on the bus until cancelled, whatever the broker does, and then close; call it once.

        Raise NameInUse if another home has the name, LedgerGone if the ledger's file was taken away, and
        HomeError.
        """
        try:
            await _enter(self._resources, self._connector.use())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep())
                tasks.create_task(self._stay_connected())
        except ExceptionGroup as group:
            if (fatal := group.subgroup((NameInUse, LedgerGone))) is None:
                raise
            raise _first(fatal) from None
        finally:
            self.ended = True
            await self.close()

    # The jobs that these methods hand to the ledger are done in the order of the calls.

    async def send(self, outgoing: OutgoingMessage) -> list[Message]:
        """Commit a message, and return it as one message for each receiver.

        They travel as soon as they can, unless they are held.  Raise UnknownRecipient, InvalidName,
        MessageRefused or LedgerError if nothing was sent.
        """
        sending = self._ledger.run(lambda ledger: post(ledger, self.team, self.name, outgoing, self._limits))
        self._outgoing.own.wake()
        return await sending

    async def join(self, channel: str) -> bool:
        """Join `channel` (without `#`), and let the team know. Return False if the agent was in it."""
        joined = await self._ledger.run(lambda ledger: ledger.channels.join(self.team, channel, self.name))
        self._announcer.again()
        return joined

    async def leave(self, channel: str) -> None:
        """Leave `channel`, and let the team know. Raise NotAMember if this agent is not in it."""
        await self._ledger.run(lambda ledger: ledger.channels.leave(self.team, channel, self.name))
        self._announcer.again()

    async def channels(self) -> list[str]:
        """Return the channels that this agent is in, sorted."""
        return await self._ledger.run(lambda ledger: ledger.channels.of(self.team, self.name))

    async def drain(self) -> None:
        """Publish what another process of this home has put into the ledger; report what it changed there."""
        self._outgoing.wake()
        await self._receiver.report()

    async def waiting(self, limit: int = -1) -> list[Message]:
        """Return the first `limit` (-1: all) messages for this agent that may be typed now, in order."""
        return await self._ledger.run(lambda ledger: ledger.inbox.waiting(self.team, self.name, limit))

    async def committed(self, session: str) -> set[str]:
        """Return the places of the directives that the session `session` has sent messages for."""
        return await self._ledger.run(lambda ledger: ledger.outbox.committed(session))

    async def sent_for(self, session: str, place: Place) -> list[Message]:
        """Return what the session `session` has sent for the directive, or the request, at `place`."""
        return await self._ledger.run(lambda ledger: ledger.outbox.sent_for(session, place))

    async def stored(self) -> set[str]:
        """Return the ids of the messages that are stored for this agent, being typed or not."""
        return await self._ledger.run(lambda ledger: ledger.inbox.stored(self.team, self.name))

    async def held(self) -> set[str]:
        """Return the ids of this agent's messages that are held."""
        return set(await self._ledger.run(lambda ledger: ledger.held(team=self.team, sender=self.name)))

    async def version(self) -> int:
        """Return a number that changes whenever another process has written into the ledger."""
        return await self._ledger.run(Ledger.data_version)

    async def injecting(self, id: str) -> None:
        """Note that typing message `id` begins: if this process dies now, it counts as uncertain.

        Raise MessageRefused if it must not be typed any more (the user has dropped it).
        """
        await self._ledger.run(lambda ledger: ledger.inbox.injecting(self.team, self.name, id))

    async def settle(
        self,
        id: str,
        state: State,
        detail: str | None = None,
        *,
        route: str | None = None,
        role: str | None = None,
    ) -> None:
        """Note the end of message `id` (injected, uncertain or rejected) and how, and tell its sender.

        With `stored`: it was not typed after `injecting`, and waits again.
        """
        settling = self._ledger.run(
            lambda ledger: ledger.inbox.settle(
                self.team, self.name, id, state, detail, route=route, role=role
            )
        )
        self._outgoing.receipts.wake()
        await settling

    async def roster(self) -> list[Presence]:
        """Return everybody known in the team, by name. For agents of this home this is always up to date."""
        return await self._tracker.everybody()

    @property
    def connected(self) -> bool:
        """Return True if messages travel now."""
        return self._status.connected

    @property
    def informed(self) -> bool:
        """Return True once `roster` has all the presences that an external broker had kept."""
        # They arrive before the broker's copy of our own announcement.
        return not self._connector.external or self._tracker.online(self.name)

    async def _sweep(self) -> None:
        """Give up what has waited too long, and forget what is long over, whatever the broker does."""
        pruned = time.monotonic()  # by `open`
        while True:
            try:
                if time.monotonic() - pruned >= PRUNE_EVERY:
                    await self._ledger.run(Ledger.prune)
                    pruned = time.monotonic()
                if await self._ledger.run(self._expire):
                    self._outgoing.own.wake()
                await self._receiver.report()
                self._outgoing.receipts.wake()  # of what another process ended: the user, or a dead session
                self._status.calm()
            except LedgerGone:
                raise
            except LedgerError as error:
                self._status.trouble(error)
            await asyncio.sleep(SWEEP_EVERY * random.uniform(0.8, 1.2))

    def _expire(self, ledger: Ledger) -> int:
        ledger.check()
        expired = ledger.outbox.expire()
        if self.connected and self._tracker.online(self.name):
            self._tracker.limit_channels(ledger)
        self._tracker.recover_dead(ledger)
        return expired + ledger.inbox.expire(self.team, self.name)

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            try:
                await self._once()
            except* (NameInUse, LedgerGone):
                raise
            except* RelayError as group:
                self._status.report(str(_first(group)))
            # A connection that held for a while was a good one: begin anew.
            failures = 1 if time.monotonic() - started > LAST_RECONNECT else failures + 1
            delay = min(LAST_RECONNECT, FIRST_RECONNECT * 2.0 ** min(failures - 1, 10))
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))

    async def _once(self) -> None:
        """Use one connection, from start to loss; always raise."""
        async with self._have_name():
            # With another boot id than the one announced there: agents that have sent something since must
            # see us appear again, for the mailbox is made only now.
            await self._announcer.connecting()
            farewell = self._announcer.announcement(online=False)
            transport = await self._connector.connect(self.team, self.name, mailbox=True, farewell=farewell)
        with contextlib.closing(transport):
            try:
                # In a task of its own: in early releases of Python 3.11 a group that fails leaves its task
                # marked as being cancelled, and a timeout in it would end it without a word.
                await asyncio.create_task(self._use(transport))
            finally:
                self._status.disconnect()
                await self._announcer.goodbye(transport)

    async def _use(self, transport: MqttTransport) -> None:
        async with asyncio.TaskGroup() as tasks:
            # First, so that what comes before the answer to a subscription does not keep it waiting.
            tasks.create_task(self._receiver.run(transport))
            tasks.create_task(self._begin(transport, tasks))

    async def _begin(self, transport: MqttTransport, tasks: asyncio.TaskGroup) -> None:
        """Subscribe, and then start the other `tasks` of a connection."""
        await transport.subscribe(topics.inbox_filter(self.team, self.name), 1)
        # QoS 0, so that the broker keeps no presences in the mailbox while this agent is away.
        await transport.subscribe(topics.presence_filter(self.team), 0)
        self._announcer.connected()
        self._status.connect(transport.endpoint.url)
        tasks.create_task(self._announcer.run(transport, self._on_announced))
        self._outgoing.start(transport, tasks)

    @contextlib.asynccontextmanager
    async def _have_name(self) -> AsyncIterator[None]:
        """Have the name for a block, against sessions of other homes. Raise NameInUse and ConnectionLost.

        The connection on which it was claimed says goodbye for us if we die, until the next one can.
        """
        if not self._connector.external:  # the embedded broker has only this home, and that has a lock
            yield
            return
        await self._announcer.connecting()
        farewell = self._announcer.announcement(online=False)
        transport = await self._connector.connect(self.team, self.name, farewell=farewell)
        with contextlib.closing(transport):
            await self._announcer.claim_name(transport)
            yield

    async def _on_announced(self) -> None:
        await self._tracker.note(self.name)
        await self._receiver.report()


@dataclass(frozen=True, slots=True)
class CurrentClient(Question[MessagingClient]):
    """Name the client of this session (`current_client`); raise a RelayError that says why there is none."""

    wait: bool


async def current_client(bus: EventBus, *, wait: bool = True) -> MessagingClient:
    """Return the client that this session uses. Raise a RelayError that says why there is none.

    wait: wait for the first try to open one.
    """
    for client in await bus.ask(CurrentClient(wait)):
        return client
    raise RelayError("this session runs without messages.")


async def _enter(
    resources: contextlib.AsyncExitStack, context: contextlib.AbstractContextManager[None]
) -> None:
    """Enter a context that blocks for a moment. If the caller is cancelled, raise that afterwards."""
    entering = asyncio.create_task(asyncio.to_thread(resources.enter_context, context))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await asyncio.wait({entering})
        raise


def _first(group: BaseExceptionGroup[RelayError]) -> RelayError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, RelayError)
    return error
