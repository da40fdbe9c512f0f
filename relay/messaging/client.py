"""One agent's part of the bus: sends its messages, receives its mail, knows who is there.

    send → ledger → Publisher → broker → the other's courier → its ledger → on_message
                                                     └── receipt ──→ ledger → on_outcome

A courier also publishes for those senders of its home that have no session of their own (the person, agents
that have ended), over a connection with their credentials.  Everything is written to the ledger first, so
that a broker that is absent, wedged or killed delays messages and loses none; nothing here waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeVar

from relay import names
from relay.errors import LedgerError, NameInUse, RelayError
from relay.home import Home
from relay.messaging.envelope import ForeignPayload, Parcel, Receipt, decode, encode
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import LedgerGone
from relay.messaging.message import Message, Priority, State
from relay.messaging.posting import post
from relay.messaging.proxy_publishers import Substitutes
from relay.messaging.publisher import Publisher
from relay.messaging.runaway import Limits
from relay.transport import broker, name_claims, presence, topics
from relay.transport.announcer import Announcer
from relay.transport.broker import Endpoint
from relay.transport.credentials import Login, for_endpoint
from relay.transport.mqtt import (
    IN_FLIGHT,
    ConnectionLost,
    Identity,
    Inbound,
    LoginRefused,
    MqttTransport,
    Transport,
)
from relay.transport.name_claims import Claim, claim_name, contend, is_present
from relay.transport.presence import Presence, Roster

FIRST_RECONNECT = 0.2
LAST_RECONNECT = 30.0
"""Seconds between two tries to reach the broker: doubling, with jitter."""

TROUBLE_OVER = 150.0
"""Seconds without it after which trouble with the ledger is over; whatever waits was tried again by then."""

SWEEP_EVERY = 15.0
"""Seconds between two looks for what has expired; more or less."""

SEEN_EVERY = 3600.0
"""Seconds between two notes in the ledger that somebody is still there."""

_LOGINS = 5

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Courier:
    """The bus as one agent's session uses it; everything on one event loop's thread.

    broker_url: an external broker; None: the embedded one, started on demand (at broker_port, if given).
    limits:     what the runaway guard lets the agent send (default: Limits()).
    on_message: a message for this agent was stored and its turn has come.
    on_outcome: a message of this agent is stored at its receiver, or was settled there.
    on_status:  one line for the person: connected, or why not.
    on_fault:   one of the others has failed, and what it was called for is not done.
    """

    def __init__(
        self,
        home: Home,
        team: str,
        name: str,
        *,
        broker_url: str | None = None,
        broker_port: int | None = None,
        limits: Limits | None = None,
        on_message: Callable[[Message], None],
        on_outcome: Callable[[Message], None],
        on_status: Callable[[str], None],
        on_fault: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises LedgerError, HomeError, and BrokerError for a malformed URL."""
        self.team = names.validate(team, "team")
        self.name = names.validate(name)
        self.ignored = 0
        """Payloads that were not ours, or not what their topic said."""
        self._home = home
        self._external = None if broker_url is None else broker.external(broker_url)
        self._port = broker_port
        # All that use the embedded broker share the ledger, which keeps what waits for who is away. A broker
        # that kept it too could fill up, and would then take nothing more from anybody.
        self._mailbox = self._external is not None
        self._limits = limits or Limits()
        self._on_message = on_message
        self._on_outcome = on_outcome
        self._on_status = on_status
        self._on_fault = on_fault
        self._roster = Roster()
        self._ledger = Ledger(home.ledger)
        self._announcer = Announcer(self.team, self.name, self._ledger.origin, self._roster, self.channels)
        self._publisher: Publisher | None = None
        self._substitutes: Substitutes | None = None
        self._receipts = asyncio.Event()
        self._seen: dict[str, float] = {}  # when the ledger last heard of whom
        self._last_status = ""
        self._connected = ""  # the status that says so
        self._troubled = float("-inf")  # when the ledger was last in trouble; seconds, monotonic
        self._ledger.registry.register(self.team, self.name)

    async def run(self) -> None:
        """Be on the bus until cancelled, whatever the broker does; call it once.

        Raises NameInUse, and LedgerGone when somebody took the ledger away.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._ledger.close)
            stack.enter_context(claim_name(self._home, self.team, self.name))
            if self._external is None:
                stack.enter_context(broker.use(self._home))
            self._ledger.inbox.recover(self.team, self.name)
            self._ledger.prune()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._sweep())
                    tasks.create_task(self._stay_connected())
            except ExceptionGroup as group:
                if (fatal := group.subgroup((NameInUse, LedgerGone))) is None:
                    raise
                raise _first(fatal) from None

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            try:
                await self._once()
            except* (NameInUse, LedgerGone):
                raise
            except* RelayError as group:
                self._status(str(_first(group)))
            # A connection that held for a while was a good one: begin anew.
            failures = 1 if time.monotonic() - started > LAST_RECONNECT else failures + 1
            delay = min(LAST_RECONNECT, FIRST_RECONNECT * 2.0 ** min(failures - 1, 10))
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))

    async def _sweep(self) -> None:
        """Give up, whatever the broker does, what has waited too long."""
        while True:
            self._ledger.check()
            try:
                if self._ledger.outbox.expire() and self._publisher is not None:
                    self._publisher.wake()
                if self._publisher is not None and self._roster.online(self.name):
                    self._ledger.channels.limit(self.team, self._is_away)
                self._recover_dead()
                if self._ledger.inbox.expire(self.team, self.name):
                    self._receipts.set()
                self._tell_outcomes()
                if self._publisher is not None and time.monotonic() - self._troubled > TROUBLE_OVER:
                    self._status(self._connected)
            except LedgerError as error:
                self._trouble(error)
            await asyncio.sleep(SWEEP_EVERY * random.uniform(0.8, 1.2))

    def _recover_dead(self) -> None:
        """Have the senders know of what sessions of this home were typing when they died."""
        for name in self._ledger.inbox.begun(self.team):
            if not is_present(self._home, self.team, name):
                self._ledger.inbox.recover(self.team, name)
        self._tell_outcomes()

    def _is_away(self, name: str) -> bool:
        return not (self._roster.online(name) or is_present(self._home, self.team, name))

    def send(
        self,
        to: str,
        body: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: Priority = Priority.NORMAL,
        ttl: float | None = None,
        depth: int = 0,
    ) -> list[Message]:
        """Commit a message to `to` (an agent, the person, `#channel`, or `*`: everybody known but oneself).

        ttl: seconds after which it is given up; depth: how many messages led to it since a person spoke.

        Returns one message per receiver; they travel as soon as they can, unless they are held.  Raises
        UnknownRecipient, MessageRefused and LedgerError; nothing was sent then.
        """
        messages = post(
            self._ledger,
            self.team,
            self.name,
            to,
            body,
            thread,
            reply_to=reply_to,
            priority=priority,
            ttl=ttl,
            depth=depth,
            limits=self._limits,
        )
        if self._publisher is not None:
            self._publisher.wake()
        return messages

    def join(self, channel: str) -> bool:
        """Hear `channel` (`#ops`) from now on, and have the team know; False if so before."""
        joined = self._ledger.channels.join(self.team, channel, self.name)
        self._announcer.again()
        return joined

    def leave(self, channel: str) -> None:
        """Hear `channel` no longer, and have the team know; NotAMember if this agent is not in it."""
        self._ledger.channels.leave(self.team, channel, self.name)
        self._announcer.again()

    def channels(self) -> list[str]:
        """The channels that this agent is in, sorted."""
        return self._ledger.channels.of(self.team, self.name)

    def drain(self) -> None:
        """Another process of this home has put messages in the ledger: publish them."""
        if self._publisher is not None:
            self._publisher.wake()
        if self._substitutes is not None:
            self._substitutes.look()

    def waiting(self, limit: int = -1) -> list[Message]:
        """What is stored for this agent and not yet being typed, in order; the first `limit`, if given."""
        return self._ledger.inbox.waiting(self.team, self.name, limit)

    def stored(self) -> set[str]:
        """The ids of what is stored for this agent, being typed or not."""
        return self._ledger.inbox.stored(self.team, self.name)

    def held(self) -> set[str]:
        """The ids of this agent's messages that are held."""
        return set(self._ledger.held(team=self.team, sender=self.name))

    def version(self) -> int:
        """A number that changes whenever another process has written into the ledger."""
        return self._ledger.version()

    def injecting(self, id: str) -> None:
        """Note that typing message `id` begins: if this process dies now, it counts as uncertain.

        Raises MessageRefused when it must not be typed any more (the person dropped it).
        """
        self._ledger.inbox.injecting(self.team, self.name, id)

    def settle(
        self,
        id: str,
        state: State,
        detail: str | None = None,
        *,
        route: str | None = None,
        role: str | None = None,
    ) -> None:
        """Note what became of message `id`: injected, uncertain or rejected; and how. Its sender is told.

        Or stored: it was not typed after `injecting`, and waits again.
        """
        self._ledger.inbox.settle(self.team, self.name, id, state, detail, route=route, role=role)
        self._receipts.set()

    def roster(self) -> list[Presence]:
        """Everybody known in the team, by name; who of this home is there, whatever the broker has told."""
        everybody = self._roster.list(self._ledger.registry.known(self.team))
        return [
            replace(each, online=each.online or is_present(self._home, self.team, each.name))
            for each in everybody
        ]

    @property
    def connected(self) -> bool:
        """Whether messages travel now."""
        return self._publisher is not None

    @property
    def informed(self) -> bool:
        """Whether `roster` is the whole truth: with an external broker, once its kept presences are in."""
        # What was retained comes before the broker's copy of our own announcement.
        return self._external is None or self._roster.online(self.name)

    async def _once(self) -> None:
        """One connection, from start to loss; always ends with an exception."""
        endpoint, login = await asyncio.to_thread(self._admit, self.name)
        async with self._have_name():
            # Another boot than the one announced there: whoever has sent something since must see us appear
            # again, for the mailbox is made only now.
            self._announcer.connecting()
            transport = await self._log_in(
                endpoint,
                Identity(
                    login.client_id,
                    keep=self._mailbox,
                    user=login.user,
                    password=login.password,
                    farewell=self._announcer.announcement(online=False),
                ),
            )
        try:
            # In a task of its own: in early releases of Python 3.11 a group that fails leaves its task marked
            # as being cancelled, and a timeout in it would end it without a word.
            await asyncio.create_task(self._use(transport, endpoint))
        finally:
            self._publisher = self._substitutes = None
            await self._announcer.goodbye(transport)
            transport.close()

    async def _use(self, transport: Transport, endpoint: Endpoint) -> None:
        """All that is done on a connection, until it is lost."""
        async with asyncio.TaskGroup() as tasks:
            # First, so that what comes before the answer to a subscription does not keep it waiting.
            tasks.create_task(self._receive(transport))
            tasks.create_task(self._begin(transport, tasks, endpoint))

    async def _begin(self, transport: Transport, tasks: asyncio.TaskGroup, endpoint: Endpoint) -> None:
        """Subscribe, and then do among `tasks` all that is done on a connection."""
        await transport.subscribe(topics.inbox_filter(self.team, self.name), 1)
        # QoS 0, so that the broker keeps no presences in the mailbox while this agent is away.
        await transport.subscribe(topics.presence_filter(self.team), 0)
        self._publisher = Publisher(
            self._ledger, transport, self.team, self.name, self._roster, mailbox=self._mailbox
        )
        self._substitutes = Substitutes(
            self._home, self._ledger, self.team, self._connect_as, self._roster, mailbox=self._mailbox
        )
        self._announcer.connected()
        self._connected = f"connected to {endpoint.url}"
        self._status(self._connected)
        tasks.create_task(self._announcer.run(transport, self._on_announced))
        tasks.create_task(self._send_receipts(transport))
        tasks.create_task(self._publisher.run())
        tasks.create_task(self._substitutes.run())

    @contextlib.asynccontextmanager
    async def _have_name(self) -> AsyncIterator[None]:
        """Have the name, whatever sessions there are on other homes. Raises NameInUse and ConnectionLost.

        The connection on which it was claimed says goodbye for us if we die, until the next one can.
        """
        if self._external is None:  # the embedded broker has only this home, and that has a lock
            yield
            return
        self._announcer.connecting()
        transport = await self._connect_as(self.name, self._announcer.announcement(online=False))
        try:
            await contend(
                transport, self.team, self._announcer.claim(), self._announcer.announcement(online=True)[1]
            )
            self._announcer.held = True
            yield
        finally:
            transport.close()

    def _admit(self, name: str) -> tuple[Endpoint, Login]:
        """Where the broker is, and how `name` logs in there."""
        if self._external is None:
            endpoint, credentials = broker.admit(self._home, self.team, name, port=self._port)
        else:
            endpoint, credentials = self._external, broker.credentials(self._home, self.team, name)
        return endpoint, for_endpoint(endpoint, credentials)

    async def _connect_as(self, sender: str, farewell: tuple[str, bytes] | None = None) -> Transport:
        """A connection with the rights of an agent of this home, beside its mailbox's own."""
        endpoint, login = await asyncio.to_thread(self._admit, sender)
        identity = Identity(
            f"relay-{secrets.token_hex(16)}",
            keep=False,
            user=login.user,
            password=login.password,
            farewell=farewell,
        )
        return await self._log_in(endpoint, identity)

    async def _log_in(self, endpoint: Endpoint, identity: Identity) -> Transport:
        """A connection. Raises BrokerError.

        The embedded broker knows all whom it was told of, but nats-server also refuses those who come at the
        moment at which it reads its configuration again, for somebody else's sake.
        """
        tries = _LOGINS if self._external is None else 1
        while True:
            transport = MqttTransport(endpoint, identity)
            try:
                await transport.connect()
            except LoginRefused:
                tries -= 1
                if not tries:
                    raise
            else:
                return transport

    def _on_announced(self) -> None:
        self._note_seen(self.name, self._ledger.now())
        self._tell_outcomes()

    async def _receive(self, transport: Transport) -> None:
        async for inbound in transport.arriving():
            try:
                match topics.parse(inbound.topic):
                    case topics.Inbox() if inbound.retained:
                        raise ForeignPayload("retained, as no message is")  # it would come at each connection
                    case topics.Inbox() as topic:
                        self._take(decode(inbound.payload, topic))
                    case topics.PresenceTopic(name=level):
                        self._hear(inbound, level)
                    case None:
                        raise ForeignPayload("not a topic of ours")
            except (ForeignPayload, ArithmeticError, TypeError, ValueError) as why:
                # The last three are not expected; but what one peer sends must not end another's bus.
                self.ignored += 1
                if self.ignored.bit_count() == 1:  # the 1st, 2nd, 4th, ...: a flood fills no log
                    _log.warning("ignored %d payloads; now one on %r: %s", self.ignored, inbound.topic, why)
            except LedgerError as error:
                self._trouble(error)  # its sender gets no receipt, and will publish it again

    def _take(self, item: Parcel | Receipt) -> None:
        if isinstance(item, Receipt):
            self._ledger.outbox.receipt(self.team, item)
            if self._publisher is not None:
                self._publisher.wake()
            self._tell_outcomes()
            return
        for message in self._ledger.inbox.store(self.team, item, self._limits.queue):
            self._call(self._on_message, message)
        self._receipts.set()

    def _hear(self, inbound: Inbound, level: str) -> None:
        heard = presence.decode(inbound.payload, level) or name_claims.decode(inbound.payload, level)
        if heard is None:
            raise ForeignPayload("neither an announcement nor a claim")
        if isinstance(heard, Claim):
            if names.same(heard.name, self.name) and heard.session != self._announcer.session:
                self._announcer.again()  # an objection
            return
        if names.same(heard.name, self.name):
            self._hear_own_name(heard, retained=inbound.retained)
            return
        age = max(0.0, time.time() - heard.seen) if inbound.retained or not heard.online else 0.0
        self._note_seen(heard.name, self._ledger.now() - age)
        # A will says what was so when its agent connected, and whoever listened knows better.
        if heard.home != self._ledger.origin and (heard.online or inbound.retained):
            self._ledger.channels.heard(self.team, heard.name, heard.channels)
        if not heard.online and heard.home == self._ledger.origin:
            self._recover_dead()
        if self._roster.hear(heard, retained=inbound.retained):
            self._ledger.outbox.appeared(self.team, heard.name, self.name, heard.home or None)
            self._tell_outcomes()
            self.drain()
            if not inbound.retained:
                self._announcer.note_crowd()

    def _hear_own_name(self, heard: Presence, *, retained: bool) -> None:
        if self._announcer.is_present(heard):
            if not retained:  # what `informed` waits for; the one kept is from before we subscribed
                self._roster.hear(heard, retained=False)
        elif (
            self._external is not None
            and heard.online
            and not retained
            and heard.session < self._announcer.session
        ):
            raise ConnectionLost(f"another session calls itself {self.name}; claiming the name again.")
        else:
            self._announcer.again()  # the will of an earlier connection came late, or the other must give way

    def _note_seen(self, name: str, seen: float) -> None:
        """Keep in the ledger who was here when, to the hour."""
        if seen - self._seen.get(names.key(name), float("-inf")) >= SEEN_EVERY:
            self._ledger.registry.register(self.team, name, seen)
            self._seen[names.key(name)] = seen

    async def _send_receipts(self, transport: Transport) -> None:
        while True:
            self._receipts.clear()
            receipts = self._ledger.inbox.receipts(self.team, self.name, IN_FLIGHT)
            if not receipts:
                await self._receipts.wait()
                continue
            await asyncio.gather(
                *(
                    transport.publish(topics.inbox(self.team, receipt.sender, self.name), encode(receipt))
                    for receipt in receipts
                )
            )
            self._ledger.inbox.receipted(self.team, receipts)

    def _tell_outcomes(self) -> None:
        for message in self._ledger.outbox.outcomes(self.team, self.name):
            self._call(self._on_outcome, message)

    def _trouble(self, error: LedgerError) -> None:
        self._troubled = time.monotonic()
        self._status(str(error))

    def _status(self, text: str) -> None:
        """Tell the person, but not the same again and again."""
        if text != self._last_status:
            self._last_status = text
            self._call(self._on_status, text)

    def _call(self, callback: Callable[[_T], None], value: _T) -> None:
        """A callback that fails is told of; the bus goes on."""
        try:
            callback(value)
        except Exception as error:  # noqa: BLE001 (logged with its traceback, told, contained: the bus goes on)
            _log.exception("what the bus brought could not be handled")
            self._on_fault(f"what the bus brought could not be handled ({type(error).__name__}: {error})")


def _first(group: BaseExceptionGroup[RelayError]) -> RelayError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, RelayError)
    return error
