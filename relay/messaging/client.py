"""One agent on the message bus: sends its messages, receives its mail, and keeps a roster of its team.

    within a home:   send → ledger, the other's bell → its Receiver → MessageStored
                                 settle → ledger, the sender's bell → OutcomeReported
    to another home: send → ledger → Publisher → broker → the other's Receiver → its ledger → MessageStored
                                                                   └── receipt ──→ ledger → OutcomeReported

A client also publishes for senders of its home without a session (the user, agents that have ended), over a
connection with their credentials.  Everything is written to the ledger first, so a broker that is absent,
wedged or killed delays messages but loses none; nothing here waits for the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import TypeVar

from relay import names
from relay.backoff import Backoff
from relay.clock import until_tick
from relay.errors import LedgerError, NameInUse, ReceiverEnded, ReceiverStarting, RelayError
from relay.eventbus import Event
from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging.doorbell import Doorbell, Rings, ring_back, ring_for
from relay.messaging.envelope import copy_of
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import LedgerGone
from relay.messaging.name_owners import Owner
from relay.messaging.posting import STARTING, post
from relay.messaging.presence_listener import PresenceListener
from relay.messaging.presence_tracker import Attendance, PresenceTracker, bus_of, is_alive
from relay.messaging.publisher import ProxyPublishers, Publisher
from relay.messaging.receiver import ConnectionStatus, Receiver
from relay.messaging.runaway import Limits
from relay.storage.writer import Writer
from relay.transport import topics
from relay.transport.announcer import Announcer
from relay.transport.connector import Connector
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.name_claims import claim_name, is_present
from relay.transport.presence import Presence

RECONNECT = Backoff(0.2, 30.0, jitter=(0.8, 1.2))
"""The waits between two attempts to reach the broker."""

ELECTING = Backoff(0.2, 0.2, jitter=(0.8, 1.2))
"""The same in the first RECONNECT.last seconds after a cluster is lost."""

SWEEP_EVERY = 15.0
"""Approximate seconds between two looks for what nobody has notified this client of, and for what expires."""

STARTING_RETRY = 0.05
"""Seconds between two attempts to send to an agent that is starting."""

PRUNE_EVERY = 3600.0
"""Seconds between two prunings of the ledger."""

T = TypeVar("T")


class MessagingClient:
    """The message bus as one agent's session uses it; everything runs on the event loop's thread."""

    @classmethod
    async def open(
        cls,
        home: Home,
        team: str,
        name: str,
        *,
        publish: Callable[[Event], None],
        broker_url: str | None = None,
        limits: Limits | None = None,
        in_hand: Collection[str] = (),
        owner: Owner | None = None,
        begins: bool = False,
    ) -> MessagingClient:
        """Claim the name in this home, open its ledger, and return a client that can send and answer queries.

        publish:    called on this loop with each event (relay.messaging.events).
        broker_url: an external broker, or the URLs of its nodes with commas between them; None: the embedded
                    one, started on demand.
        limits:     what the runaway guard lets the agent send (default: Limits()).
        in_hand:    the ids of messages that this process was giving to the agent through an earlier client.
                    Others that a session was typing when it ended become uncertain.
        owner:      the owner of the name; None: nobody in particular. begins: its agent was just started.

        Raise NameInUse if another process of this home has the name, LedgerError, HomeError, and BrokerError
        for a malformed URL.
        """
        names.validate(team, "team")
        names.validate(name)
        connector = Connector(home, broker_url)
        bus = bus_of(broker_url if connector.external else None)

        def begin(ledger: Ledger) -> str:
            ledger.owners.end_gone(partial(is_alive, home))
            if owner is not None:
                ledger.owners.take(team, name, owner, begins=begins)
            # An agent of that name that runs elsewhere gets its messages, unless the broker gives it to us.
            if Attendance(ledger, bus, team).home(name) in {None, "", ledger.origin}:
                ledger.arrive(team, name, None if owner is None else owner.id)
            else:
                ledger.registry.register(team, name)
            ledger.inbox.recover(team, name, in_hand)
            ledger.user_inbox.begin(team, name, begins=begins)
            ledger.prune()
            return ledger.origin

        resources = contextlib.AsyncExitStack()
        try:
            await _enter(resources, claim_name(home, team, name))
            ledger = Writer(Ledger, home.ledger)
            resources.push_async_callback(asyncio.to_thread, ledger.close)
            origin = await ledger.run(begin)
            bell = resources.enter_context(Doorbell(home, team, name))
            tracker = PresenceTracker(home, ledger, bus, team, name, origin)
            whose = None if owner is None else owner.id
            return cls(tracker, connector, limits or Limits(), publish, bell, resources, whose)
        except BaseException:
            await resources.aclose()
            raise

    def __init__(
        self,
        tracker: PresenceTracker,
        connector: Connector,
        limits: Limits,
        publish: Callable[[Event], None],
        bell: Doorbell,
        resources: contextlib.AsyncExitStack,
        owner: str | None,
    ) -> None:
        """Call `open` instead. resources: released by `close`. owner: the owner's id."""
        self.team, self.name = team, name = tracker.team, tracker.name
        self._connector = connector
        self._ledger = ledger = tracker.ledger
        self._bell = bell
        self._limits = limits
        self._resources = resources
        self._status = ConnectionStatus(publish)
        announcer = Announcer(team, name, tracker.origin, self._standing, owner or "")
        publisher = Publisher(ledger, team, name, tracker.bus)
        self._proxies = ProxyPublishers(tracker.home, ledger, team, connector, tracker.bus)
        self.ended = False  # `run` is over, or about to be
        self._listener = PresenceListener(
            tracker, lambda: announcer.boot, self._status.trouble, self._proxies.wake
        )
        parts = (self._listener, announcer, publisher, self._status)
        self._receiver = Receiver(ledger, team, name, owner, limits.queue, *parts, publish)

    async def close(self) -> None:
        """Finish the ledger's jobs, close it, and release the name. May be called twice."""
        with contextlib.suppress(LedgerError):
            await self._receiver.record()
        await self._resources.aclose()

    async def run(self) -> None:
        """Stay on the bus until cancelled, whatever the broker does, then close. Call this once.

        Raise NameInUse if another home has the name, LedgerGone if the ledger's file is gone, and HomeError.
        """
        try:
            await _enter(self._resources, self._connector.use())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep())
                self._rung(Rings(mail=False, all=True, injected=[]))
                self._bell.listen(self._rung)
                tasks.create_task(self._stay_connected())
        except ExceptionGroup as group:
            if (fatal := group.subgroup((NameInUse, LedgerGone))) is None:
                raise
            error = _first(fatal)
            if isinstance(error, NameInUse):
                with contextlib.suppress(LedgerError):
                    await self._listener.tracker.leave()
            raise error from None
        finally:
            self.ended = True
            await self.close()

    # The ledger runs the jobs of these methods in the order of the calls.

    async def send(self, outgoing: OutgoingMessage) -> list[Message]:
        """Commit `outgoing`; return one message for each receiver.

        Messages that are not held are published as soon as possible.  Raise UnknownRecipient, InvalidName,
        MessageRefused or LedgerError if nothing was sent.
        """
        deadline = time.monotonic() + STARTING
        there = self._listener.tracker.there
        while True:
            sending = self._ledger.run(
                lambda ledger: post(
                    ledger,
                    self.team,
                    self.name,
                    outgoing,
                    self._limits,
                    there=partial(there, ledger),
                    copied=True,
                ),
                self._sent,
            )
            try:
                return await sending
            except (ReceiverEnded, ReceiverStarting):
                # An agent may have the name before its session has begun.
                if time.monotonic() >= deadline or not await self._ledger.run(
                    lambda ledger: there(ledger, outgoing.to)
                ):
                    raise
            await asyncio.sleep(STARTING_RETRY)

    def _sent(self, messages: list[Message]) -> None:
        tracker = self._listener.tracker
        self._receiver.sent(messages)
        ring_for(tracker.home, self.team, messages)
        if any(message.state is State.QUEUED for message in messages):
            self._receiver.publisher.wake()
        self._receiver.publisher.copy(
            [
                copy_of(message, tracker.origin)
                for message in messages
                if message.state is State.STORED and not names.same(message.to, names.PERSON)
            ]
        )

    async def end(self) -> None:
        """Record that the agent has ended. If it was a run, drop its waiting mail, and notify the senders.

        The team learns of the end when `run` is cancelled. Raise LedgerError.
        """
        if (owner := self._receiver.owner) is not None:
            await self._ledger.run(lambda ledger: ledger.owners.end(self.team, self.name, owner))
        await self._receiver.announcer.end()
        if self.connected:
            await self._receiver.publisher.flush()

    async def left(self) -> list[tuple[str, int]]:
        """Return the folders of other agents with this name, and how many messages wait for each.

        "": a folder on another host.
        """
        owner = self._receiver.owner
        if owner is None:
            return []
        return await self._ledger.run(lambda ledger: ledger.owners.others(self.team, self.name, owner))

    async def join(self, channel: str) -> bool:
        """Join `channel` (without `#`), and tell the team. Return False if the agent was already in it."""
        joined = await self._ledger.run(lambda ledger: ledger.channels.join(self.team, channel, self.name))
        self._receiver.announcer.again()
        return joined

    async def leave(self, channel: str) -> None:
        """Leave `channel`, and tell the team. Raise NotAMember if this agent is not in it."""
        await self._ledger.run(lambda ledger: ledger.channels.leave(self.team, channel, self.name))
        self._receiver.announcer.again()

    async def channels(self) -> list[str]:
        return await self._ledger.run(lambda ledger: ledger.channels.of(self.team, self.name))

    async def waiting(self, most: int = -1) -> list[Message]:
        """Return the messages that may be typed now, in order. most: per sender, besides urgent ones."""
        return await self._ledger.run(
            lambda ledger: ledger.inbox.waiting(self.team, self.name, most, self._receiver.owner)
        )

    async def ask(self, job: Callable[[Ledger], T]) -> T:
        """Return what `job` finds in the ledger. Raise LedgerError."""
        return await self._ledger.run(job)

    async def stored(self) -> set[str]:
        return await self._ledger.run(
            lambda ledger: ledger.inbox.stored(self.team, self.name, self._receiver.owner)
        )

    async def injecting(self, id: str) -> None:
        """Record that typing message `id` begins: if this process dies now, the message is uncertain.

        Raise MessageRefused if the message may no longer be typed (the user has dropped it).
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
        """Settle message `id`, as `Inbox.settle` says; notify its sender."""

        def settle(ledger: Ledger) -> str | None:
            return ledger.inbox.settle(self.team, self.name, id, state, detail, route=route, role=role)

        injected = (id, route, role) if state is State.INJECTED else None
        await self._ledger.run(settle, lambda sender: self._settled(sender, injected))

    def _settled(self, sender: str | None, injected: tuple[str, str | None, str | None] | None) -> None:
        """Tell the sender of a message in this home; None: the receipt is for another home."""
        if sender is None:
            self._receiver.publisher.wake()
        else:
            ring_back(self._listener.tracker.home, self.team, sender, injected)

    async def roster(self, name: str | None = None) -> list[Presence]:
        """Return all known agents of the team (`PresenceTracker.everybody`)."""
        return await self._listener.tracker.everybody(name)

    def is_here(self, name: str) -> bool:
        """Return True if `name` publishes for itself, from this home; the ledger is not read."""
        return names.is_valid(name) and is_present(self._listener.tracker.home, self.team, name)

    @property
    def connected(self) -> bool:
        return self._status.connected

    @property
    def informed(self) -> bool:
        """Return True once `roster` has all presences that an external broker had retained."""
        return not self._connector.external or self._listener.informed

    async def _standing(self) -> tuple[list[str], int]:
        """Return the channels of this agent, and the number of online agents in the team."""

        def standing(ledger: Ledger) -> tuple[list[str], int]:
            crowd = self._listener.tracker.attendance(ledger).count()
            return ledger.channels.of(self.team, self.name), crowd

        return await self._ledger.run(standing)

    def _rung(self, rings: Rings) -> None:
        """Look into the ledger: another process of this home has rung."""
        told = [self._receiver.injected(*each) for each in rings.injected]
        if rings.all or not all(told):
            self._receiver.look_soon()
        elif rings.mail:
            self._receiver.look_soon(outcomes=False)
        if rings.all:  # another process has sent or retried something, or a receiver has appeared
            self._receiver.publisher.wake()
            self._proxies.wake()

    async def _sweep(self) -> None:
        """Expire messages that have waited too long, and forget old ones, whatever the broker does."""
        pruned = time.monotonic()  # by `open`
        while True:
            try:
                if time.monotonic() - pruned >= PRUNE_EVERY:
                    await self._ledger.run(Ledger.prune)
                    pruned = time.monotonic()
                await self._ledger.run(self._expire)
                await self._receiver.look()
                # Another process may have sent or settled messages: for the user, or for a dead session.
                self._receiver.publisher.wake()
                self._proxies.wake()
                self._status.calm()
            except LedgerGone:
                raise
            except LedgerError as error:
                self._status.trouble(error)
            await asyncio.sleep(until_tick(SWEEP_EVERY * random.uniform(0.8, 1.2)))

    def _expire(self, ledger: Ledger) -> None:
        ledger.check()
        ledger.outbox.expire()
        tracker = self._listener.tracker
        if self.connected and tracker.attendance(ledger).online(self.name):
            there = tracker.attendance(ledger)
            ledger.channels.limit(self.team, lambda name: not (there.online(name) or self.is_here(name)))
        tracker.recover_dead(ledger)
        ledger.user_inbox.settle(tracker.is_alive)
        if random.random() * tracker.attendance(ledger).count() < 1:  # on average, one session
            ledger.owners.end_gone(tracker.is_alive)

    async def _stay_connected(self) -> None:
        failures, electing = 0, False
        while True:
            started = time.monotonic()
            try:
                await self._once()
            except* (NameInUse, LedgerGone):
                raise
            except* RelayError as group:
                # A connection that lasted a while was good: restart the backoff.
                failures = 1 if time.monotonic() - started > RECONNECT.last else failures + 1
                nodes = self._connector.turn(failures)
                # A cluster that has lost a node recovers within seconds.
                electing = len(nodes) > 1 and time.monotonic() - self._status.lost < RECONNECT.last
                where = f" Reconnecting to {', '.join(nodes)}." if len(nodes) > 1 else ""
                # While it reloads its users for another agent, the embedded broker also disconnects clients
                # that have just logged in.
                unsettled = not self._connector.external and self._status.lost < started
                if not (unsettled and failures == 1 and isinstance(_first(group), ConnectionLost)):
                    self._status.lose(f"{_first(group)}{where}", passing=electing)
            # A task group that fails while it is cancelled raises the failure alone.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError
            backoff = ELECTING if electing else RECONNECT
            await asyncio.sleep(backoff.wait(failures, random.random()))

    async def _once(self) -> None:
        """Use one connection, from start to loss; always raise."""
        async with self._have_name():
            # Use a new boot id, not the one just announced: agents that have sent something since must see
            # us appear again, because the mailbox is only created now.
            await self._receiver.announcer.connecting()
            farewell = self._receiver.announcer.announcement(online=False)
            transport = await self._connector.connect(self.team, self.name, mailbox=True, farewell=farewell)
        with contextlib.closing(transport):
            try:
                # In its own task: in early releases of Python 3.11, a failing TaskGroup leaves its task
                # marked as being cancelled, and a timeout in that task would end it silently.
                await asyncio.create_task(self._use(transport))
            finally:
                self._status.disconnect()
                self._listener.end()
                await self._receiver.announcer.goodbye(transport)
                transport.close()

    async def _use(self, transport: MqttTransport) -> None:
        async with asyncio.TaskGroup() as tasks:
            # Start this first: payloads that arrive before the SUBACK must not delay it.
            tasks.create_task(self._receiver.run(transport))
            tasks.create_task(self._begin(transport, tasks))

    async def _begin(self, transport: MqttTransport, tasks: asyncio.TaskGroup) -> None:
        await transport.subscribe(topics.inbox_filter(self.team, self.name), 1, insist=True)
        await self._listener.begin(transport)
        self._status.connect(transport.endpoint.url)
        tasks.create_task(self._listener.run(transport))
        tasks.create_task(self._receiver.announcer.run(transport, self._on_announced))
        tasks.create_task(self._receiver.publisher.run(transport))
        tasks.create_task(self._proxies.run())

    @contextlib.asynccontextmanager
    async def _have_name(self) -> AsyncIterator[None]:
        """Hold the name against sessions of other homes for a block. Raise NameInUse and ConnectionLost.

        If we die, the will of the claiming connection says goodbye for us, until the next connection can.
        """
        if not self._connector.external:  # only this home uses the embedded broker, and its lock suffices
            yield
            return
        announcer = self._receiver.announcer
        await announcer.connecting()
        farewell = announcer.announcement(online=False)
        transport = await self._connector.connect(self.team, self.name, farewell=farewell)
        with contextlib.closing(transport):
            await announcer.claim_name(transport)
            yield

    async def _on_announced(self) -> None:
        owner = self._receiver.owner
        await self._ledger.run(lambda ledger: ledger.arrive(self.team, self.name, owner))
        await self._receiver.look()


async def _enter(
    resources: contextlib.AsyncExitStack, context: contextlib.AbstractContextManager[None]
) -> None:
    """Enter a context that blocks briefly. If the caller is cancelled meanwhile, finish first, then raise."""
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
