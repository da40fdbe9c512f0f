"""Publishes everything for one sender: messages to other homes, in order, until the receivers have them;
copies of messages within this home, once; receipts.

    transit.claim → a batch on its way → the broker's acknowledgement → transit.sent
         ▲                                                                 │
         └────────── due again: no receipt in time, the receiver appeared ─┘

Messages of a pair go out in batches, not one by one; the sequence numbers in the envelopes keep the order at
the receiver, even if some are lost or repeated.

Senders without a session are the user, and agents that have ended.  While there are messages to publish, each
gets connections with its own credentials, for LINGER each, so the broker still vouches for the sender.
Later receipts from other hosts are requested (Transit.ask).  The receipts of finished runs go out in the
same way, so senders learn the outcome of their messages.

Before it calls `wake`, a caller hands its jobs to the ledger's writer: jobs run in order of arrival, so the
woken task sees their effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from functools import cache

from relay import names
from relay.backoff import Backoff
from relay.dataclass import dataclass, field
from relay.errors import BrokerError, HomeError, RelayError
from relay.home import Home
from relay.messaging.envelope import Envelope, Receipt, decode, encode
from relay.messaging.ledger import Ledger
from relay.messaging.presence_tracker import Attendance
from relay.storage.writer import Writer
from relay.transport import topics
from relay.transport.connector import Connector
from relay.transport.mqtt import IN_FLIGHT, MqttTransport
from relay.transport.name_claims import is_present
from relay.transport.wire import ForeignPayload

RETRY = Backoff(5.0, 60.0, jitter=(0.8, 1.2))
"""The waits until a message without a receipt is published again while its receiver is online."""

COPIES = 256
"""Maximum copies that wait to be published; of more, the oldest are left out."""

BATCH_BYTES = 1 << 18
"""Maximum characters of bodies in flight to the broker: on a slow link, more would exceed the time limit of
an answer."""

LINGER = 30.0
"""Seconds that a connection for a sender without a session lasts: it publishes, and waits for receipts and
further messages."""

FLUSH = 1.0
"""Seconds that an ending agent waits for its last receipts to be sent."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Publisher:
    """Publishes for one sender.

    bus: the broker (`bus_of`). An external broker keeps messages for absent receivers; with the embedded one
    they stay in the outbox until the receiver appears.
    """

    ledger: Writer[Ledger]
    team: str
    sender: str
    bus: str
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _idle: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _transport: MqttTransport | None = field(default=None, init=False)
    _copies: deque[Envelope] = field(default_factory=lambda: deque(maxlen=COPIES), init=False)

    def copy(self, copies: list[Envelope]) -> None:
        """Publish messages within this home once, for whoever listens: the receiver has them without it."""
        self._copies += copies
        # At QoS 0: brokers keep none for a receiver that is away.
        while self._copies and self._transport is not None:
            if not self._transport.send(self._topic(self._copies[0]), encode(self._copies[0])):
                break
            self._copies.popleft()

    def wake(self) -> None:
        """Look for what is due, after all jobs handed to the ledger so far."""
        self._idle.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Return once everything due has been published, or after FLUSH."""
        self.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                await self._idle.wait()

    async def run(self, transport: MqttTransport) -> None:
        """Publish over `transport` until cancelled. Raise ConnectionLost and LedgerError."""
        self._transport = transport
        try:
            await self.ledger.run(lambda ledger: ledger.transit.resume(self.team, self.sender))
            await self._run(transport)
        finally:
            self._transport = None

    async def _run(self, transport: MqttTransport) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            copies, items, due = await self.ledger.run(self._claim)
            self.copy(copies)
            next_one = None if due is None else now() + due
            await self._publish(transport, items)
            if due == 0.0:
                continue
            if not self._wake.is_set():
                self._idle.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_one):
                    await self._wake.wait()

    async def _publish(self, transport: MqttTransport, items: list[Envelope | Receipt]) -> None:
        ends = await asyncio.gather(
            *(transport.publish(self._topic(each), encode(each)) for each in items), return_exceptions=True
        )
        # What was accepted before the connection was lost need not be published again.
        taken = [item for item, end in zip(items, ends, strict=True) if end is None]

        def note(ledger: Ledger) -> None:
            if sent := [each.message.id for each in taken if isinstance(each, Envelope)]:
                ledger.transit.sent(sent)
            if receipted := [each for each in taken if isinstance(each, Receipt)]:
                ledger.inbox.receipted(self.team, receipted)

        if taken:
            await self.ledger.run(note)
        for failure in ends:
            if failure is not None:
                raise failure

    def _topic(self, item: Envelope | Receipt) -> str:
        to = item.sender if isinstance(item, Receipt) else item.message.to
        return topics.inbox(self.team, to, self.sender)

    def _claim(self, ledger: Ledger) -> tuple[list[Envelope], list[Envelope | Receipt], float | None]:
        """Return copies and a batch to publish, and the seconds until more is due (None: nothing is)."""
        there = Attendance(ledger, self.bus, self.team)
        home = cache(there.home)  # asked several times for each receiver

        def delay(receiver: str, attempt: int) -> float | None:
            return None if home(receiver) is None else RETRY.wait(attempt, random.random())

        def reachable(receiver: str, owner: str | None) -> bool:
            if self.bus:  # an external broker keeps messages for absent receivers
                return not there.taken(receiver, owner)
            return there.online(receiver, owner)

        copies = ledger.transit.copies(self.team, self.sender)
        receipts = ledger.inbox.receipts(self.team, self.sender, IN_FLIGHT)
        batch = []
        if ledger.transit.next_due(self.team, self.sender) == 0.0:
            with ledger.transaction():  # no receiver appears meanwhile
                ledger.transit.park(self.team, self.sender, reachable)
                batch = ledger.transit.claim(self.team, self.sender, delay, IN_FLIGHT, home, BATCH_BYTES)
        batch = batch or ledger.transit.ask(self.team, self.sender, home)
        due = 0.0 if receipts else ledger.transit.next_due(self.team, self.sender)
        return copies, [*receipts, *batch], due


@dataclass(eq=False, slots=True)
class ProxyPublishers:
    """The publishers for the senders in `team` that have no session. bus: as for Publisher."""

    home: Home
    ledger: Writer[Ledger]
    team: str
    connector: Connector
    bus: str
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _active: dict[str, Publisher] = field(default_factory=dict, init=False)

    def wake(self) -> None:
        self._wake.set()
        for publisher in self._active.values():
            publisher.wake()

    async def run(self) -> None:
        """Work until cancelled. Raise LedgerError."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for sender in await self.ledger.run(self._without_session):
                    if names.key(sender) not in self._active:
                        publisher = self._active[names.key(sender)] = Publisher(
                            self.ledger, self.team, sender, self.bus
                        )
                        tasks.create_task(self._publish_for(sender, publisher))
                await self._wake.wait()
                self._wake.clear()

    def _without_session(self, ledger: Ledger) -> list[str]:
        senders = {*ledger.transit.senders_with_mail(self.team), *ledger.inbox.left_receipts(self.team)}
        return [sender for sender in sorted(senders) if not is_present(self.home, self.team, sender)]

    async def _publish_for(self, sender: str, publisher: Publisher) -> None:
        now = asyncio.get_running_loop().time
        ends = now() + LINGER
        try:
            if why := await self._carry(sender, publisher):
                # A sender without a session can read this only in its messages.
                await self.ledger.run(lambda ledger: ledger.transit.hindered(self.team, sender, why))
            elif now() >= ends:  # it was not lost
                self._wake.set()  # a message may have come too late for this connection
        finally:
            del self._active[names.key(sender)]

    async def _carry(self, sender: str, publisher: Publisher) -> str:
        """Publish for LINGER seconds; return the broker's objection, if any."""
        why = ""
        try:
            with contextlib.closing(await self.connector.connect(self.team, sender)) as transport:
                await transport.subscribe(topics.inbox_filter(self.team, sender), 1, insist=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINGER), asyncio.TaskGroup() as tasks:
                        tasks.create_task(publisher.run(transport))
                        tasks.create_task(self._receive(transport, publisher))
        # Await nothing here: a cancellation meanwhile would be raised as a group, not as itself.
        except* (BrokerError, HomeError) as group:
            _log.warning("could not publish for %s: %s", sender, group.exceptions)
            why = str(group.exceptions[0])
        except* RelayError as group:
            _log.warning("could not publish for %s: %s", sender, group.exceptions)
        return why

    async def _receive(self, transport: MqttTransport, publisher: Publisher) -> None:
        async for inbound in transport.arriving():
            topic = topics.parse(inbound.topic)
            if isinstance(topic, topics.InboxTopic):
                with contextlib.suppress(ForeignPayload, ArithmeticError, TypeError, ValueError):
                    item = decode(inbound.payload, topic)
                    # Messages wait in the sender's own mailbox.
                    if isinstance(item, Receipt):
                        await self._note(item)
                        publisher.wake()

    async def _note(self, receipt: Receipt) -> None:
        await self.ledger.run(lambda ledger: ledger.transit.receipt(self.team, receipt))
