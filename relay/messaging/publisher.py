"""Publishes what one sender has in the outbox, in order, until its receivers have it.

    ledger.claim → a batch on its way → the broker's acknowledgement → ledger.sent
         ▲                                                                 │
         └────────── due again: no receipt in time, the receiver appeared ─┘

Messages of a pair are not sent one by one: a batch is in flight at a time, and the sequence numbers in the
envelopes keep the order at the receiver, whatever is lost or repeated.
"""

from __future__ import annotations

import asyncio
import random

from relay.messaging.envelope import encode
from relay.messaging.ledger import Ledger
from relay.transport import topics
from relay.transport.mqtt import IN_FLIGHT, Transport
from relay.transport.presence import Roster

FIRST_RETRY = 5.0
LAST_RETRY = 60.0
"""Seconds until a message without a receipt is published again while its receiver is online."""

BATCH_BYTES = 1 << 18
"""Characters of bodies that are on their way to the broker at one time: on a slow link more would take longer
than an answer may."""

_LOOK_AGAIN = 15.0  # seconds; another process of the home may have changed the ledger


def retry_delay(attempt: int) -> float:
    """Seconds to wait after `attempt` publishes: doubling, bounded, with jitter."""
    delay: float = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(attempt - 1, 10))
    return delay * random.uniform(0.8, 1.2)


class Publisher:
    """For one sender over one transport.

    roster:  who is there; what went out to a receiver that is not waits until it appears.
    mailbox: whether the broker is to keep messages for receivers that are away; else they stay in the outbox.
    """

    def __init__(
        self, ledger: Ledger, transport: Transport, team: str, sender: str, roster: Roster, *, mailbox: bool
    ) -> None:
        self._ledger = ledger
        self._transport = transport
        self._team = team
        self._sender = sender
        self._roster = roster
        self._mailbox = mailbox
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be something due."""
        self._wake.set()

    async def run(self) -> None:
        """Publish for ever. Raises ConnectionLost and LedgerError."""
        self._ledger.outbox.resume(self._team, self._sender)
        while True:
            self._wake.clear()
            if not await self.publish_due():
                await self._until_due()

    async def publish_due(self) -> bool:
        """Publish one batch; whether there was anything."""
        if not self._mailbox:
            self._ledger.outbox.park(self._team, self._sender, self._roster.online)
        parcels = self._ledger.outbox.claim(
            self._team, self._sender, self._delay, IN_FLIGHT, self._roster.home, BATCH_BYTES
        )
        ends = await asyncio.gather(
            *(
                self._transport.publish(
                    topics.inbox(self._team, parcel.message.to, self._sender), encode(parcel)
                )
                for parcel in parcels
            ),
            return_exceptions=True,
        )
        # Also where the connection was lost on the way: what was taken need not go out again at once.
        taken = [parcel.message.id for parcel, end in zip(parcels, ends, strict=True) if end is None]
        if taken:
            self._ledger.outbox.sent(taken)
        for end in ends:
            if end is not None:
                raise end
        return bool(parcels)

    def _delay(self, receiver: str, attempt: int) -> float | None:
        return retry_delay(attempt) if self._roster.online(receiver) else None

    async def _until_due(self) -> None:
        due = self._ledger.outbox.next_due(self._team, self._sender)
        seconds = _LOOK_AGAIN if due is None else min(_LOOK_AGAIN, due)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            self._ledger.outbox.reopen(self._team, self._sender, self._roster.online)
