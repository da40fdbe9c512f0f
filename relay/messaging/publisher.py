"""Publishes what one sender has in the outbox, in order, until its receivers have it.

    outbox.claim → a batch on its way → the broker's acknowledgement → outbox.sent
         ▲                                                                 │
         └────────── due again: no receipt in time, the receiver appeared ─┘

Messages of a pair are not sent one by one: a batch is in flight at a time, and the sequence numbers in the
envelopes keep the order at the receiver, whatever is lost or repeated.
"""

from __future__ import annotations

import asyncio
import random

from relay.messaging.envelope import Envelope, encode
from relay.messaging.ledger import Ledger
from relay.storage.sqlite import Writer
from relay.transport import topics
from relay.transport.mqtt import IN_FLIGHT, MqttTransport
from relay.transport.presence import Roster

FIRST_RETRY = 5.0
LAST_RETRY = 60.0
"""Seconds until a message without a receipt is published again while its receiver is online."""

BATCH_BYTES = 1 << 18
"""Characters of bodies that are on their way to the broker at one time: on a slow link more would take longer
than an answer may."""

_LOOK_AGAIN = 15.0  # seconds; another process of the home may have changed the ledger


def retry_delay(attempt: int) -> float:
    """Return the seconds to wait after `attempt` publishes: doubling, bounded, with jitter."""
    delay: float = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(attempt - 1, 10))
    return delay * random.uniform(0.8, 1.2)


class Publisher:
    """Publishes for one sender.

    roster:  who is there; what went out to a receiver that is not waits until it appears.
    mailbox: whether the broker keeps messages for receivers that are away; else they stay in the outbox.
    """

    def __init__(
        self, ledger: Writer[Ledger], team: str, sender: str, roster: Roster, *, mailbox: bool
    ) -> None:
        self._ledger = ledger
        self._team = team
        self._sender = sender
        self._roster = roster
        self._mailbox = mailbox
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for what is due; jobs that were handed to the ledger before count."""
        self._wake.set()

    async def run(self, transport: MqttTransport) -> None:
        """Publish over `transport` for ever. Raise ConnectionLost and LedgerError."""
        await self._ledger.run(lambda ledger: ledger.outbox.resume(self._team, self._sender))
        while True:
            self._wake.clear()
            if not await self.publish_due(transport):
                await self._until_due()

    async def publish_due(self, transport: MqttTransport) -> bool:
        """Publish one batch; True if there was anything."""
        envelopes = await self._claim()
        ends = await asyncio.gather(
            *(
                transport.publish(
                    topics.inbox(self._team, envelope.message.to, self._sender), encode(envelope)
                )
                for envelope in envelopes
            ),
            return_exceptions=True,
        )
        # Also where the connection was lost on the way: what was taken need not go out again at once.
        taken = [envelope.message.id for envelope, end in zip(envelopes, ends, strict=True) if end is None]
        if taken:
            await self._ledger.run(lambda ledger: ledger.outbox.sent(taken))
        for end in ends:
            if end is not None:
                raise end
        return bool(envelopes)

    def _claim(self) -> asyncio.Future[list[Envelope]]:
        # Who is there as of now: a receiver that moves while the job waits must be noted in the ledger
        # (Outbox.appeared) before anything is published to where it is then.
        there = self._roster.now()

        def delay(receiver: str, attempt: int) -> float | None:
            return retry_delay(attempt) if there.online(receiver) else None

        def claim(ledger: Ledger) -> list[Envelope]:
            if not self._mailbox:
                ledger.outbox.park(self._team, self._sender, there.online)
            return ledger.outbox.claim(self._team, self._sender, delay, IN_FLIGHT, there.home, BATCH_BYTES)

        return self._ledger.run(claim)

    async def _until_due(self) -> None:
        due = await self._ledger.run(lambda ledger: ledger.outbox.next_due(self._team, self._sender))
        seconds = _LOOK_AGAIN if due is None else min(_LOOK_AGAIN, due)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            there = self._roster.now()
            await self._ledger.run(
                lambda ledger: ledger.outbox.reopen(self._team, self._sender, there.online)
            )
