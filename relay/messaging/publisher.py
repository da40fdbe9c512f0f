"""Publishes the messages of one sender from the outbox, in order, until its receivers have them.

    outbox.claim → a batch on its way → the broker's acknowledgement → outbox.sent
         ▲                                                                 │
         └────────── due again: no receipt in time, the receiver appeared ─┘

Messages of a pair are not sent one by one: a batch is in flight at a time, and the sequence numbers in the
envelopes keep the order at the receiver, even if some are lost or repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from relay.messaging.envelope import Envelope, Receipt, encode
from relay.messaging.ledger import Ledger
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.mqtt import IN_FLIGHT, MqttTransport
from relay.transport.presence import PresenceRoster

FIRST_RETRY = 5.0
LAST_RETRY = 60.0
"""Seconds until a message without a receipt is published again while its receiver is online."""

BATCH_BYTES = 1 << 18
"""Characters of bodies that are on their way to the broker at one time: on a slow link more would take longer
than the time limit of an answer."""

Item = TypeVar("Item", Envelope, Receipt)

_LOOK_AGAIN = 15.0  # seconds; another process of the home may have changed the ledger


def retry_delay(attempt: int) -> float:
    """Return the seconds to wait after `attempt` publishes: doubling, bounded, with jitter."""
    delay: float = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(attempt - 1, 10))
    return delay * random.uniform(0.8, 1.2)


async def publish_all(
    transport: MqttTransport, topics: Sequence[str], items: Sequence[Item]
) -> tuple[list[Item], BaseException | None]:
    """Publish each of `items` to its topic; return those that the broker took, and a failure, if any.

    What was taken before the connection was lost need not go out again.
    """
    ends = await asyncio.gather(*map(transport.publish, topics, map(encode, items)), return_exceptions=True)
    taken = [item for item, end in zip(items, ends, strict=True) if end is None]
    return taken, next((end for end in ends if end is not None), None)


@dataclass(eq=False, slots=True)
class Publisher:
    """Publishes for one sender.

    roster:  the presences; a message for a receiver that is away waits until it appears.
    mailbox: the broker keeps messages for receivers that are away; else they stay in the outbox.
    """

    ledger: Writer[Ledger]
    team: str
    sender: str
    roster: PresenceRoster
    mailbox: bool
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def wake(self) -> None:
        """Look for messages that are due, with the effect of all jobs handed to the ledger so far."""
        self._wake.set()

    async def run(self, transport: MqttTransport) -> None:
        """Publish over `transport` until cancelled. Raise ConnectionLost and LedgerError."""
        await self.ledger.run(lambda ledger: ledger.outbox.resume(self.team, self.sender))
        while True:
            self._wake.clear()
            if not await self.publish_due(transport):
                await self._until_due()

    async def publish_due(self, transport: MqttTransport) -> bool:
        """Publish one batch; return True if there was anything."""
        envelopes = await self._claim()
        to = [topics.inbox(self.team, each.message.to, self.sender) for each in envelopes]
        taken, failure = await publish_all(transport, to, envelopes)
        if taken:
            await self.ledger.run(lambda ledger: ledger.outbox.sent([each.message.id for each in taken]))
        if failure is not None:
            raise failure
        return bool(envelopes)

    def _claim(self) -> asyncio.Future[list[Envelope]]:
        # The presences of now: a receiver that moves while the job waits must be noted in the ledger
        # (Outbox.appeared) before anything is published to its new home.
        there = self.roster.now()

        def delay(receiver: str, attempt: int) -> float | None:
            return retry_delay(attempt) if there.online(receiver) else None

        def claim(ledger: Ledger) -> list[Envelope]:
            if not self.mailbox:
                ledger.outbox.park(self.team, self.sender, there.online)
            return ledger.outbox.claim(self.team, self.sender, delay, IN_FLIGHT, there.home, BATCH_BYTES)

        return self.ledger.run(claim)

    async def _until_due(self) -> None:
        due = await self.ledger.run(lambda ledger: ledger.outbox.next_due(self.team, self.sender))
        seconds = _LOOK_AGAIN if due is None else min(_LOOK_AGAIN, due)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            there = self.roster.now()
            await self.ledger.run(lambda ledger: ledger.outbox.reopen(self.team, self.sender, there.online))
