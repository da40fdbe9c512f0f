"""Publishes the messages of one sender: those to other homes, in order, until the receivers have them.

    transit.claim → a batch on its way → the broker's acknowledgement → transit.sent
         ▲                                                                 │
         └────────── due again: no receipt in time, the receiver appeared ─┘

Messages of a pair go out in batches, not one by one; the sequence numbers in the envelopes keep the order at
the receiver, even if some are lost or repeated.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from relay.backoff import Backoff
from relay.clock import until_tick
from relay.messaging.envelope import Envelope, Receipt, encode
from relay.messaging.ledger import Ledger
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.mqtt import IN_FLIGHT, MqttTransport

RETRY = Backoff(5.0, 60.0, jitter=(0.8, 1.2))
"""The waits until a message without a receipt is published again while its receiver is online."""

COPIES = 256
"""Maximum copies that wait to be published; of more, the oldest are left out."""

BATCH_BYTES = 1 << 18
"""Maximum characters of bodies in flight to the broker: on a slow link, more would exceed the time limit of
an answer."""

Item = TypeVar("Item", Envelope, Receipt)

_LEDGER_CHECK_EVERY = 15.0  # seconds; another process of the home may have changed the ledger


async def publish_all(
    transport: MqttTransport, topics: Sequence[str], items: Sequence[Item]
) -> tuple[list[Item], BaseException | None]:
    """Publish each of `items` to its topic; return those that the broker accepted, and the first failure.

    Items accepted before the connection was lost need not be published again.
    """
    ends = await asyncio.gather(*map(transport.publish, topics, map(encode, items)), return_exceptions=True)
    taken = [item for item, end in zip(items, ends, strict=True) if end is None]
    return taken, next((end for end in ends if end is not None), None)


@dataclass(eq=False, slots=True)
class Publisher:
    """Publishes for one sender.

    bus: the broker (`attendance.bus_of`). An external broker keeps messages for absent receivers; with the
    embedded one they stay in the outbox until the receiver appears.
    """

    ledger: Writer[Ledger]
    team: str
    sender: str
    bus: str
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _copies: list[Envelope] = field(default_factory=list, init=False)
    _copied: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def copy(self, copies: list[Envelope]) -> None:
        """Publish messages within this home once, for whoever listens: the receiver has them without it."""
        self._copies = [*self._copies, *copies][-COPIES:]
        if copies:
            self._copied.set()

    async def publish_copies(self, transport: MqttTransport) -> None:
        """Publish each `copy` over `transport`, until cancelled. Raise ConnectionLost."""
        while True:
            await self._copied.wait()
            self._copied.clear()
            copies, self._copies = self._copies, []
            for each in copies:  # at QoS 0: brokers keep none for a receiver that is away
                topic = topics.inbox(self.team, each.message.to, self.sender)
                await transport.publish(topic, encode(each), qos=0)

    def wake(self) -> None:
        """Look for due messages, after all jobs handed to the ledger so far."""
        self._wake.set()

    async def run(self, transport: MqttTransport) -> None:
        """Publish over `transport` until cancelled. Raise ConnectionLost and LedgerError."""
        await self.ledger.run(lambda ledger: ledger.transit.resume(self.team, self.sender))
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            copies, envelopes, due = await self._claim()
            self.copy(copies)
            next_one = now() + min(until_tick(_LEDGER_CHECK_EVERY), due)
            await self._publish(transport, envelopes)
            if due > 0:
                await self._wait(next_one)

    async def _publish(self, transport: MqttTransport, envelopes: list[Envelope]) -> None:
        to = [topics.inbox(self.team, each.message.to, self.sender) for each in envelopes]
        taken, failure = await publish_all(transport, to, envelopes)
        if taken:
            ids = [each.message.id for each in taken]
            await self.ledger.run(lambda ledger: ledger.transit.sent(ids))
        if failure is not None:
            raise failure

    def _claim(self) -> asyncio.Future[tuple[list[Envelope], list[Envelope], float]]:
        """Claim copies and a batch; return them, and the seconds until the next message is due."""

        def claim(ledger: Ledger) -> tuple[list[Envelope], list[Envelope], float]:
            there = ledger.attendance(self.bus, self.team)
            home = cache(there.home)  # asked several times for each receiver

            def delay(receiver: str, attempt: int) -> float | None:
                return None if home(receiver) is None else RETRY.wait(attempt, random.random())

            def reachable(receiver: str, owner: str | None) -> bool:
                if self.bus:  # an external broker keeps messages for absent receivers
                    return not there.taken(receiver, owner)
                return there.online(receiver, owner)

            copies = ledger.transit.copies(self.team, self.sender)
            ledger.transit.park(self.team, self.sender, reachable)
            batch = ledger.transit.claim(self.team, self.sender, delay, IN_FLIGHT, home, BATCH_BYTES)
            batch = batch or ledger.transit.ask(self.team, self.sender, home)
            due = ledger.transit.next_due(self.team, self.sender)
            return copies, batch, math.inf if due is None else due

        return self.ledger.run(claim)

    async def _wait(self, until: float) -> None:
        """Wait until woken up, or until the next message is due by the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            await self.ledger.run(self._reopen)

    def _reopen(self, ledger: Ledger) -> None:
        there = ledger.attendance(self.bus, self.team)
        ledger.transit.reopen(self.team, self.sender, there.online)
