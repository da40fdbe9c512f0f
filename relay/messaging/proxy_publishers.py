"""Publishing for the senders of this home that have no session: the person, and agents that have ended.

Each gets a connection with its own credentials, so that the broker still vouches for the sender, for as long
as there is something to publish or to hear about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random

from relay import names
from relay.errors import BrokerError, HomeError, RelayError
from relay.home import Home
from relay.messaging.envelope import ForeignPayload, Receipt, decode
from relay.messaging.ledger import Ledger
from relay.messaging.publisher import Publisher
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.connector import Connector
from relay.transport.mqtt import MqttTransport
from relay.transport.name_claims import is_present
from relay.transport.presence import Roster

LINGER = 30.0
"""Seconds for which a connection waits for receipts and for further messages."""

LOOK = 15.0
"""Seconds between two looks into the ledger when nobody calls `wake`; more or less, since every session of
the home looks, and the first takes all there is."""

_log = logging.getLogger(__name__)


class ProxyPublishers:
    """The publishers for those of `team` in this home that have no session. roster: as for Publisher."""

    def __init__(
        self, home: Home, ledger: Writer[Ledger], team: str, connector: Connector, roster: Roster
    ) -> None:
        self._home = home
        self._ledger = ledger
        self._team = team
        self._connector = connector
        self._roster = roster
        self._wake = asyncio.Event()
        self._active: dict[str, Publisher] = {}

    def wake(self) -> None:
        """Look for what is due; jobs that were handed to the ledger before count."""
        self._wake.set()
        for publisher in self._active.values():
            publisher.wake()

    async def run(self) -> None:
        """Work for ever. Raise LedgerError."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for sender in await self._ledger.run(self._without_session):
                    if names.key(sender) not in self._active:
                        publisher = self._active[names.key(sender)] = Publisher(
                            self._ledger, self._team, sender, self._roster, mailbox=self._connector.external
                        )
                        tasks.create_task(self._publish_for(sender, publisher))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK * random.uniform(0.5, 1.5)):
                        await self._wake.wait()
                self._wake.clear()

    def _without_session(self, ledger: Ledger) -> list[str]:
        """Who has something to publish and nobody to do it."""
        senders = ledger.outbox.senders_with_mail(self._team)
        return [sender for sender in senders if not is_present(self._home, self._team, sender)]

    async def _publish_for(self, sender: str, publisher: Publisher) -> None:
        try:
            transport = await self._connector.connect(self._team, sender)
            try:
                await transport.subscribe(topics.inbox_filter(self._team, sender), 1)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINGER), asyncio.TaskGroup() as tasks:
                        tasks.create_task(publisher.run(transport))
                        tasks.create_task(self._receive(transport, publisher))
            finally:
                transport.close()
        except* (BrokerError, HomeError) as group:
            # Whose session it is hears of it; this sender has none, and looks at its messages.
            _log.warning("could not publish for %s: %s", sender, group.exceptions)
            why = str(group.exceptions[0])
            await self._ledger.run(lambda ledger: ledger.outbox.hindered(self._team, sender, why))
        except* RelayError as group:
            _log.warning("could not publish for %s: %s", sender, group.exceptions)
        finally:
            del self._active[names.key(sender)]

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
        await self._ledger.run(lambda ledger: ledger.outbox.receipt(self._team, receipt))
