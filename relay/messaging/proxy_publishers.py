"""Publishing for the senders of this home that have no session: the person, and agents that have ended.

Each gets a connection with its own credentials, so that the broker still vouches for the sender, for as long
as there is something to publish or to hear about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from relay import names
from relay.errors import BrokerError, RelayError
from relay.home import Home
from relay.messaging.envelope import ForeignPayload, Receipt, decode
from relay.messaging.ledger import Ledger
from relay.messaging.publisher import Publisher
from relay.transport import topics
from relay.transport.mqtt import Transport
from relay.transport.name_claims import is_present
from relay.transport.presence import Roster

LINGER = 30.0
"""Seconds for which a connection waits for receipts and for further messages."""

LOOK = 15.0
"""Seconds between two looks into the ledger when nobody calls `look`; more or less, since every session of
the home looks, and the first takes all there is."""

_log = logging.getLogger(__name__)


class Substitutes:
    """connect: makes a connection with a sender's rights. roster, mailbox: as for Publisher."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        team: str,
        connect: Callable[[str], Awaitable[Transport]],
        roster: Roster,
        *,
        mailbox: bool,
    ) -> None:
        self._home = home
        self._ledger = ledger
        self._team = team
        self._connect = connect
        self._roster = roster
        self._mailbox = mailbox
        self._wake = asyncio.Event()
        self._active: dict[str, Publisher | None] = {}

    def look(self) -> None:
        """There may be something in the ledger."""
        self._wake.set()
        for publisher in self._active.values():
            if publisher is not None:
                publisher.wake()

    async def run(self) -> None:
        """Work for ever. Raises LedgerError."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for sender in self._ledger.outbox.senders_with_mail(self._team):
                    key = names.key(sender)
                    if key not in self._active and not is_present(self._home, self._team, sender):
                        self._active[key] = None
                        tasks.create_task(self._substitute(sender, key))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK * random.uniform(0.5, 1.5)):
                        await self._wake.wait()
                self._wake.clear()

    async def _substitute(self, sender: str, key: str) -> None:
        try:
            transport = await self._connect(sender)
            try:
                await self._work(transport, sender, key)
            finally:
                transport.close()
        except* BrokerError as group:
            # Whose session it is hears of it; this sender has none, and looks at its messages.
            _log.warning("could not publish for %s: %s", sender, group.exceptions)
            self._ledger.outbox.hindered(self._team, sender, str(group.exceptions[0]))
        except* RelayError as group:
            _log.warning("could not publish for %s: %s", sender, group.exceptions)
        finally:
            del self._active[key]

    async def _work(self, transport: Transport, sender: str, key: str) -> None:
        await transport.subscribe(topics.inbox_filter(self._team, sender), 1)
        publisher = self._active[key] = Publisher(
            self._ledger, transport, self._team, sender, self._roster, mailbox=self._mailbox
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER), asyncio.TaskGroup() as tasks:
                tasks.create_task(publisher.run())
                tasks.create_task(self._hear(transport, publisher))

    async def _hear(self, transport: Transport, publisher: Publisher) -> None:
        async for inbound in transport.arriving():
            topic = topics.parse(inbound.topic)
            if isinstance(topic, topics.Inbox):
                with contextlib.suppress(ForeignPayload, ArithmeticError, TypeError, ValueError):
                    item = decode(inbound.payload, topic)
                    # Messages wait in the sender's own mailbox.
                    if isinstance(item, Receipt):
                        self._ledger.outbox.receipt(self._team, item)
                        publisher.wake()
