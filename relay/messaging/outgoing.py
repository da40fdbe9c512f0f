"""Publishes everything for one agent: its messages, those of senders without a session, its receipts.

Senders without a session are the user, and agents that have ended.  While there are messages to publish, each
gets connections with its own credentials, for LINGER each, so the broker still vouches for the sender.
Later receipts from other hosts are requested (Outbox.ask).  The receipts of finished runs go out in the
same way, so senders learn the outcome of their messages.

Before it calls `wake`, a caller hands its jobs to the ledger's writer: jobs run in order of arrival, so the
woken task sees their effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, field

from relay import names
from relay.clock import until_tick
from relay.errors import BrokerError, HomeError, RelayError
from relay.home import Home
from relay.messaging.envelope import ForeignPayload, Receipt, decode
from relay.messaging.ledger import Ledger
from relay.messaging.publisher import Publisher, publish_all
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.connector import Connector
from relay.transport.mqtt import IN_FLIGHT, MqttTransport
from relay.transport.name_claims import is_present

LINGER = 30.0
"""Seconds that such a connection lasts: it publishes, and waits for receipts and further messages."""

FLUSH = 1.0
"""Seconds that an ending agent waits for its last receipts to be sent."""

LEDGER_CHECK_EVERY = 15.0
"""Approximate seconds between two looks into the ledger without a call of `wake`: every session of the home
looks, and the first takes everything."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class ReceiptSender:
    """Publishes the receipts of `name` for senders in other homes."""

    ledger: Writer[Ledger]
    team: str
    name: str
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _done: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def wake(self) -> None:
        """Look for receipts."""
        self._done.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Return once all receipts have been sent, or after FLUSH."""
        self.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                await self._done.wait()

    async def run(self, transport: MqttTransport) -> None:
        """Publish over `transport` until cancelled. Raise ConnectionLost and LedgerError."""

        def left(ledger: Ledger) -> list[Receipt]:
            return ledger.inbox.receipts(self.team, self.name, IN_FLIGHT)

        while True:
            self._wake.clear()
            if receipts := await self.ledger.run(left):
                await self._publish(transport, receipts)
            else:
                if not self._wake.is_set():
                    self._done.set()
                await self._wake.wait()

    async def _publish(self, transport: MqttTransport, receipts: list[Receipt]) -> None:
        to = [topics.inbox(self.team, each.sender, self.name) for each in receipts]
        taken, failure = await publish_all(transport, to, receipts)
        if taken:
            await self.ledger.run(lambda ledger: ledger.inbox.receipted(self.team, taken))
        if failure is not None:
            raise failure


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
        """Look for messages that are due."""
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
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(until_tick(LEDGER_CHECK_EVERY * random.uniform(0.5, 1.5))):
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
                        tasks.create_task(publisher.publish_copies(transport))
                        receipts = ReceiptSender(self.ledger, self.team, sender)
                        tasks.create_task(receipts.run(transport))
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


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Everything that publishes for one agent."""

    own: Publisher
    proxies: ProxyPublishers
    receipts: ReceiptSender

    def wake(self) -> None:
        """Look for due messages, including those of senders without a session, and for receipts."""
        self.own.wake()
        self.proxies.wake()
        self.receipts.wake()

    def start(self, transport: MqttTransport, tasks: asyncio.TaskGroup) -> None:
        """Start `tasks` that publish over `transport` until it is lost."""
        tasks.create_task(self.receipts.run(transport))
        tasks.create_task(self.own.run(transport))
        tasks.create_task(self.own.publish_copies(transport))
        tasks.create_task(self.proxies.run())
