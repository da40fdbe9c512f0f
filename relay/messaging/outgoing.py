"""What goes out for one agent: its messages, those of senders without a session, and its receipts.

Whoever wakes these has handed jobs to the ledger's writer before: jobs run in their order of arrival, so that
what wakes somebody is seen by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from relay.eventbus import Event
from relay.message import Message
from relay.messaging.envelope import Receipt, encode
from relay.messaging.events import OutcomeReported
from relay.messaging.ledger import Ledger
from relay.messaging.proxy_publishers import ProxyPublishers
from relay.messaging.publisher import Publisher
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.mqtt import IN_FLIGHT, MqttTransport


class ReceiptSender:
    """Publishes the receipts of `name` that the broker has not taken yet."""

    def __init__(self, ledger: Writer[Ledger], team: str, name: str) -> None:
        self._ledger = ledger
        self._team = team
        self._name = name
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for receipts."""
        self._wake.set()

    async def run(self, transport: MqttTransport) -> None:
        """Publish over `transport` for ever. Raise ConnectionLost and LedgerError."""
        while True:
            self._wake.clear()
            receipts = await self._ledger.run(
                lambda ledger: ledger.inbox.receipts(self._team, self._name, IN_FLIGHT)
            )
            if not receipts:
                await self._wake.wait()
                continue
            await self._publish(transport, receipts)

    async def _publish(self, transport: MqttTransport, receipts: list[Receipt]) -> None:
        await asyncio.gather(
            *(
                transport.publish(topics.inbox(self._team, each.sender, self._name), encode(each))
                for each in receipts
            )
        )
        await self._ledger.run(lambda ledger: ledger.inbox.receipted(self._team, receipts))


class OutcomeReporter:
    """Reports what became of the messages of `name`, each state once."""

    def __init__(
        self, ledger: Writer[Ledger], team: str, name: str, publish: Callable[[Event], None]
    ) -> None:
        self._ledger = ledger
        self._team = team
        self._name = name
        self._publish = publish

    def report(
        self, after: Callable[[Ledger], object] = lambda ledger: None
    ) -> asyncio.Future[list[Message]]:
        """Do `after` in the ledger, then report every message whose state has changed. Raise LedgerError."""

        def changed(ledger: Ledger) -> list[Message]:
            after(ledger)
            return ledger.outbox.outcomes(self._team, self._name)

        return self._ledger.run(changed, self._tell)

    def _tell(self, messages: list[Message]) -> None:
        for message in messages:
            self._publish(OutcomeReported(message))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """All that publishes for one agent."""

    own: Publisher
    proxies: ProxyPublishers
    receipts: ReceiptSender

    def wake(self) -> None:
        """Look for messages that are due, also of senders without a session."""
        self.own.wake()
        self.proxies.wake()

    def start(self, transport: MqttTransport, tasks: asyncio.TaskGroup) -> None:
        """Publish over `transport` until that is lost, as `tasks`."""
        tasks.create_task(self.receipts.run(transport))
        tasks.create_task(self.own.run(transport))
        tasks.create_task(self.proxies.run())
