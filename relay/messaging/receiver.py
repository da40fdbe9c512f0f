"""What arrives for one agent on a connection: messages into the inbox, receipts into the outbox, presences.

transport ─→ topics, envelope: is it what its topic says? ─┬→ inbox.store ─→ MessageStored, a receipt
                                                           ├→ outbox.receipt ─→ OutcomeReported
                                                           └→ presences: who is there
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from relay import names
from relay.errors import LedgerError
from relay.eventbus import Event
from relay.message import Message
from relay.messaging.connection_status import ConnectionStatus
from relay.messaging.envelope import Envelope, ForeignPayload, Receipt, decode
from relay.messaging.events import MessageStored
from relay.messaging.ledger import Ledger
from relay.messaging.outgoing import OutcomeReporter, Outgoing
from relay.messaging.presence_tracker import PresenceTracker
from relay.storage.sqlite import Writer
from relay.transport import name_claims, presence, topics
from relay.transport.announcer import Announcer
from relay.transport.mqtt import Inbound, MqttTransport
from relay.transport.name_claims import NameClaim
from relay.transport.presence import Presence

_log = logging.getLogger(__name__)


class Receiver:
    """Takes what arrives for `name`.

    room:    messages that may wait for it; further ones stay with their senders. 0: any number.
    ignored: payloads that were not relay's, or not what their topic said.
    """

    def __init__(
        self,
        ledger: Writer[Ledger],
        team: str,
        name: str,
        room: int,
        *,
        tracker: PresenceTracker,
        announcer: Announcer,
        outgoing: Outgoing,
        outcomes: OutcomeReporter,
        status: ConnectionStatus,
        publish: Callable[[Event], None],
    ) -> None:
        self.ignored = 0
        self._ledger = ledger
        self._team = team
        self._name = name
        self._room = room
        self._tracker = tracker
        self._announcer = announcer
        self._outgoing = outgoing
        self._outcomes = outcomes
        self._status = status
        self._publish = publish

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
                # The last three are not expected; but what one peer sends must not end another's bus.
                self.ignored += 1
                if self.ignored.bit_count() == 1:  # the 1st, 2nd, 4th, ...: a flood fills no log
                    _log.warning("ignored %d payloads; now one on %r: %s", self.ignored, inbound.topic, why)
            except LedgerError as error:
                self._status.trouble(error)  # its sender gets no receipt, and will publish it again

    async def _take(self, item: Envelope | Receipt) -> None:
        if isinstance(item, Receipt):
            receipt = item
            await self._outcomes.report(lambda ledger: ledger.outbox.receipt(self._team, receipt))
            self._outgoing.own.wake()
        else:
            envelope = item
            await self._ledger.run(
                lambda ledger: ledger.inbox.store(self._team, envelope, self._room), self._stored
            )
            self._outgoing.receipts.wake()

    def _stored(self, messages: list[Message]) -> None:
        for message in messages:
            self._publish(MessageStored(message))

    async def _hear(self, inbound: Inbound, level: str) -> None:
        heard = presence.decode(inbound.payload, level) or name_claims.decode(inbound.payload, level)
        match heard:
            case None:
                raise ForeignPayload("neither an announcement nor a claim")
            case NameClaim():
                if names.same(heard.name, self._name) and heard.session != self._announcer.session:
                    self._announcer.again()  # an objection
            case Presence() if names.same(heard.name, self._name):
                self._announcer.hear_own(heard, retained=inbound.retained)
            case Presence():
                appeared = await self._tracker.hear(heard, retained=inbound.retained)
                if appeared or not heard.online:
                    await self._outcomes.report()
                if appeared:
                    self._outgoing.wake()
                    if not inbound.retained:
                        self._announcer.note_crowd()
