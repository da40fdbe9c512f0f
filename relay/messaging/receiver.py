"""Takes what arrives for one agent: messages into the inbox, receipts into the outbox, presences.

transport ─→ topics, envelope: is it what its topic says? ─┬→ inbox.store ─→ MessageStored, a receipt
                                                           ├→ outbox.receipt ─→ OutcomeReported
                                                           └→ presence_tracker.hear
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from relay import names
from relay.errors import LedgerError
from relay.eventbus import Event
from relay.message import Message
from relay.messaging.envelope import Envelope, ForeignPayload, Receipt, decode
from relay.messaging.events import MessageStored, OutcomeReported, StatusReported
from relay.messaging.ledger import Ledger
from relay.messaging.outgoing import Outgoing
from relay.messaging.presence_tracker import PresenceTracker
from relay.storage.sqlite import Writer
from relay.transport import name_claims, presence, topics
from relay.transport.announcer import Announcer
from relay.transport.mqtt import Inbound, MqttTransport
from relay.transport.name_claims import NameClaim

TROUBLE_OVER = 150.0
"""Seconds after which trouble with the ledger is over; everything that waits was tried again by then."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class ConnectionStatus:
    """Publishes the status of one client, never the same line twice in a row.

    connected: messages travel now.
    """

    publish: Callable[[Event], None]
    connected: bool = False
    _last: str = ""
    _where: str = ""  # the line that names the broker
    _troubled: float = float("-inf")  # when the ledger was last in trouble; seconds, monotonic

    def report(self, text: str) -> None:
        """Report `text`, such as why there is no connection."""
        if text != self._last:
            self._last = text
            self.publish(StatusReported(text))

    def connect(self, url: str) -> None:
        """Report that messages travel, over the broker at `url`."""
        self.connected = True
        self._where = f"connected to {url}"
        self.report(self._where)

    def disconnect(self) -> None:
        """Note that no message travels any more; the next report says why."""
        self.connected = False

    def trouble(self, error: LedgerError) -> None:
        """Report that the ledger does not take what arrives."""
        self._troubled = time.monotonic()
        self.report(str(error))

    def calm(self) -> None:
        """Report the connection again once there has been no trouble for TROUBLE_OVER."""
        if self.connected and time.monotonic() - self._troubled > TROUBLE_OVER:
            self.report(self._where)


@dataclass(eq=False, slots=True)
class Receiver:
    """Takes what arrives for `name`, and publishes MessageStored and OutcomeReported.

    room:    the messages that may wait for it (0: any number); further ones stay with their senders.
    ignored: the number of payloads that were not relay's, or not of the kind that their topic says.
    """

    ledger: Writer[Ledger]
    team: str
    name: str
    room: int
    tracker: PresenceTracker
    announcer: Announcer
    outgoing: Outgoing
    status: ConnectionStatus
    publish: Callable[[Event], None]
    ignored: int = 0

    async def run(self, transport: MqttTransport) -> None:
        """Take what arrives over `transport` until that is lost. Raise ConnectionLost."""
        async for inbound in transport.arriving():
            try:
                match topics.parse(inbound.topic):
                    case topics.InboxTopic() if inbound.retained:
                        raise ForeignPayload("retained, as no message is")  # it would come at each connection
                    case topics.InboxTopic() as topic:
                        await self._take(decode(inbound.payload, topic))
                    case topics.PresenceTopic(name=level):
                        await self._hear(inbound, level)
                    case None:
                        raise ForeignPayload("not a topic of ours")
            except (ForeignPayload, ArithmeticError, TypeError, ValueError) as why:
                # The last three are not expected; but a peer's payload must not end another's connection.
                self.ignored += 1
                if self.ignored.bit_count() == 1:  # the 1st, 2nd, 4th, ...: a flood fills no log
                    _log.warning("ignored %d payloads; now one on %r: %s", self.ignored, inbound.topic, why)
            except LedgerError as error:
                self.status.trouble(error)  # its sender gets no receipt, and will publish it again

    def report(
        self, after: Callable[[Ledger], object] = lambda ledger: None
    ) -> asyncio.Future[list[Message]]:
        """Do `after` in the ledger, then report every message whose state has changed. Raise LedgerError."""

        def changed(ledger: Ledger) -> list[Message]:
            after(ledger)
            return ledger.outbox.outcomes(self.team, self.name)

        return self.ledger.run(changed, lambda messages: self._tell(OutcomeReported, messages))

    def _tell(self, event: type[MessageStored | OutcomeReported], messages: list[Message]) -> None:
        for message in messages:
            self.publish(event(message))

    async def _take(self, item: Envelope | Receipt) -> None:
        if isinstance(item, Receipt):
            receipt = item
            await self.report(lambda ledger: ledger.outbox.receipt(self.team, receipt))
            self.outgoing.own.wake()
        else:
            envelope = item
            await self.ledger.run(
                lambda ledger: ledger.inbox.store(self.team, envelope, self.room),
                lambda messages: self._tell(MessageStored, messages),
            )
            self.outgoing.receipts.wake()

    async def _hear(self, inbound: Inbound, level: str) -> None:
        heard = presence.decode(inbound.payload, level) or name_claims.decode(inbound.payload, level)
        if heard is None:
            raise ForeignPayload("neither an announcement nor a claim")
        own = names.same(heard.name, self.name)
        if isinstance(heard, NameClaim):
            if own and heard.session != self.announcer.session:
                self.announcer.again()  # an objection
        elif own:
            self.announcer.hear_own(heard, retained=inbound.retained)
        else:
            appeared = await self.tracker.hear(heard, retained=inbound.retained)
            if appeared or not heard.online:
                await self.report()
            if appeared:
                self.outgoing.wake()
                if not inbound.retained:
                    self.announcer.note_crowd()
