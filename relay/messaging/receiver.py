"""Receives for one agent: messages to the inbox, receipts to the outbox, presences.

transport: each publisher in turn
          ─→ topics, envelope: does it match its topic? ───┬→ inbox.store, a receipt ─┐
                                                           ├→ transit.receipt ────────┴→ look
                                                           └→ announcer, presence_listener
    look: what does the ledger have? ─→ MessageStored, OutcomeReported
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from relay import names
from relay.dataclass import dataclass, field, replace
from relay.errors import LedgerError
from relay.eventbus import Event
from relay.message import Message, State
from relay.messaging.envelope import Envelope, Receipt, decode, is_copy
from relay.messaging.events import MessageStored, OutcomeReported, StatusReported
from relay.messaging.inbox import NEWS
from relay.messaging.ledger import Ledger
from relay.messaging.presence_listener import PresenceListener
from relay.messaging.publisher import Publisher
from relay.storage.writer import Writer
from relay.transport import presence, topics
from relay.transport.announcer import Announcer
from relay.transport.arrivals import Inbound
from relay.transport.mqtt import MqttTransport
from relay.transport.presence import NameClaim
from relay.transport.wire import ForeignPayload

TROUBLE_OVER = 150.0
"""Seconds after which trouble with the ledger is over; everything that waits was retried by then."""

TAKING = 64
"""Maximum payloads handed to the ledger without waiting for it; it commits queued ones together."""

KNOWN = 1.0
"""Seconds until it is recorded that a sender's session knows an outcome. If it is killed earlier, the next
one reports the outcome again."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class ConnectionStatus:
    """Publishes the status of one client, never the same line twice in a row.

    connected: the client is on the bus now.
    lost:      when it was last on the bus; seconds, monotonic.
    """

    publish: Callable[[Event], None]
    connected: bool = False
    lost: float = field(default_factory=time.monotonic)
    _last: str = ""
    _where: str = ""  # the line that names the broker
    _troubled: float = float("-inf")  # when the ledger was last in trouble; seconds, monotonic

    def report(self, text: str) -> None:
        """Report `text`, such as why there is no connection."""
        if text != self._last:
            self._last = text
            self.publish(StatusReported(text))

    def connect(self, url: str) -> None:
        """Report that the client is connected to the broker at `url`."""
        self.connected = True
        self._where = f"connected to {url}"
        self.report(self._where)

    def lose(self, why: str, *, passing: bool) -> None:
        """Report why there is no connection; of temporary (`passing`) reasons, only the first."""
        if not passing or self._last in {"", self._where}:
            self.report(why)

    def disconnect(self) -> None:
        """Record that the connection is lost; the next report says why."""
        if self.connected:
            self.lost = time.monotonic()
        self.connected = False

    def trouble(self, error: LedgerError) -> None:
        """Report that the ledger cannot store what arrives."""
        self._troubled = time.monotonic()
        self.report(str(error))

    def calm(self) -> None:
        """Report the connection again once there has been no trouble for TROUBLE_OVER."""
        if self.connected and time.monotonic() - self._troubled > TROUBLE_OVER:
            self.report(self._where)


@dataclass(eq=False, slots=True)
class Receiver:
    """Receives for `name`, and publishes MessageStored and OutcomeReported.

    owner:   the owner of the name (relay.messaging.name_owners); None: nobody in particular.
    room:    how many messages may wait for `name` (0: no limit); further ones stay with their senders.
    ignored: the number of payloads that were not relay's, or did not match their topic.
    """

    ledger: Writer[Ledger]
    team: str
    name: str
    owner: str | None
    room: int
    listener: PresenceListener
    announcer: Announcer
    publisher: Publisher
    status: ConnectionStatus
    publish: Callable[[Event], None]
    ignored: int = 0
    _seen: int = field(default=0, init=False)  # the turn of the last message reported
    _looking: asyncio.Future[Any] | None = field(default=None, init=False)  # the last look
    _again: bool | None = field(default=None, init=False)  # another look is due; True: for outcomes, too
    _in_flight: dict[str, Message] = field(default_factory=dict, init=False)  # the latest ones sent, by id
    _known: set[str] = field(default_factory=set, init=False)  # their outcomes are reported, not recorded

    async def run(self, transport: MqttTransport) -> None:
        """Receive over `transport` until it is lost. Raise ConnectionLost."""
        taking = deque[asyncio.Future[Any]]()  # the ledger commits queued payloads together
        async for inbound in transport.arriving():
            with self._tolerant(inbound):
                match topics.parse(inbound.topic):
                    case topics.InboxTopic() as topic:
                        if (handed := self._hand_over(inbound, topic)) is not None:
                            taking.append(handed)
                    case topics.PresenceTopic(name=level):
                        self._hear(inbound, level)
                    case None:
                        raise ForeignPayload("not a topic of ours")
            while taking and (taking[0].done() or len(taking) > TAKING):
                await asyncio.wait([taking.popleft()])

    def _hand_over(self, inbound: Inbound, topic: topics.InboxTopic) -> asyncio.Future[Any] | None:
        """Hand the ledger a payload for the agent, unless it has the message. Raise ForeignPayload."""
        if inbound.retained:
            raise ForeignPayload("retained, as no message is")  # it would come with each subscription
        if is_copy(inbound.payload):
            return None
        if (taking := self._take(decode(inbound.payload, topic))) is not None:
            taking.add_done_callback(partial(self._taken, inbound))
        return taking

    def _taken(self, inbound: Inbound, end: asyncio.Future[Any]) -> None:
        if not end.cancelled():
            with self._tolerant(inbound):
                end.result()

    @contextlib.contextmanager
    def _tolerant(self, inbound: Inbound) -> Iterator[None]:
        """Report a fault of a payload, or of the ledger that cannot store it."""
        try:
            yield
        except (ForeignPayload, ArithmeticError, TypeError, ValueError) as why:
            # The last three are not expected, but a peer's payload must not end another agent's connection.
            self.ignored += 1
            if self.ignored.bit_count() == 1:  # the 1st, 2nd, 4th, ...: a flood must not fill the log
                _log.warning("ignored %d payloads; now one on %r: %s", self.ignored, inbound.topic, why)
        except LedgerError as error:
            self.status.trouble(error)  # its sender gets no receipt, and will publish it again

    def look(self, *, outcomes: bool = True) -> asyncio.Future[Any]:
        """Report what is new in the ledger. Raise LedgerError.

        outcomes: of messages that the agent sent, too; otherwise only new messages to it.
        """
        known = frozenset(self._known if outcomes else ())

        def look(ledger: Ledger) -> tuple[list[Message], list[tuple[int, Message]]]:
            settled = []
            if outcomes:
                ledger.outbox.heard(known)
                settled = ledger.outbox.outcomes(self.team, self.name, self.owner)
            return settled, ledger.inbox.arrived(self.team, self.name, self._seen, self.owner)

        def report(found: tuple[list[Message], list[tuple[int, Message]]]) -> None:
            self._known -= known
            self._report(*found)

        self._looking = self.ledger.run(look, report)
        self._looking.add_done_callback(self._looked)
        return self._looking

    def look_soon(self, *, outcomes: bool = True) -> None:
        """Look once the running look is over. The sweep tries again if the ledger cannot be read."""
        self._again = outcomes or bool(self._again)
        if self._looking is None or self._looking.done():
            self._looked()

    def _looked(self, end: asyncio.Future[Any] | None = None) -> None:
        if end is not None and not end.cancelled() and isinstance(error := end.exception(), LedgerError):
            self.status.trouble(error)
        outcomes, self._again = self._again, None
        if outcomes is not None:
            with contextlib.suppress(LedgerError):  # the client has been closed meanwhile
                self.look(outcomes=outcomes)

    def _report(self, outcomes: list[Message], arrived: list[tuple[int, Message]]) -> None:
        for message in outcomes:
            self._in_flight.pop(message.id, None)
            if message.id in self._known:  # the bell was faster than this look, which has recorded it
                self._known.discard(message.id)
            else:
                self.publish(OutcomeReported(message))
        for turn, message in arrived:
            if turn > self._seen:  # another look may have reported it meanwhile
                self._seen = turn
                self.publish(MessageStored(message))
        if len(arrived) >= NEWS:
            self.look_soon()

    def sent(self, messages: Iterable[Message]) -> None:
        """Remember messages of the agent, to report the outcome that its receiver tells (`injected`)."""
        self._in_flight.update((message.id, message) for message in messages)
        while len(self._in_flight) > NEWS:
            del self._in_flight[next(iter(self._in_flight))]

    def injected(self, id: str, route: str | None, role: str | None) -> bool:
        """Report that a message was given to its receiver; return False if that takes a look.

        A look within KNOWN seconds records for all of them that the agent's session knows it.
        """
        if (message := self._in_flight.pop(id, None)) is None:
            return False
        if not self._known:
            asyncio.get_running_loop().call_later(KNOWN, self.look_soon)
        self._known.add(id)
        self.publish(OutcomeReported(replace(message, state=State.INJECTED, route=route, role=role)))
        return True

    def _take(self, item: Envelope | Receipt) -> asyncio.Future[Any] | None:
        """Hand `item` to the ledger. The awaitable raises ForeignPayload and LedgerError."""
        if isinstance(item, Envelope) and item.sequence == 0:
            return None  # a copy of what the ledger has (`copy_of`), whoever sent it

        def take(ledger: Ledger) -> None:
            if isinstance(item, Receipt):
                ledger.transit.receipt(self.team, item)
            else:
                ledger.inbox.store(self.team, item, self.room, self.owner)

        def taken(_: None) -> None:
            self.publisher.wake()
            self.look_soon()

        return self.ledger.run(take, taken)

    async def record(self) -> None:
        """Record at once which outcomes the agent's session knows. Raise LedgerError."""
        if known := frozenset(self._known):
            await self.ledger.run(lambda ledger: ledger.outbox.heard(known))
            self._known -= known

    def _hear(self, inbound: Inbound, level: str) -> None:
        heard = presence.decode(inbound.payload, level)
        own = names.same(heard.name, self.name)
        if isinstance(heard, NameClaim):
            if own and heard.session != self.announcer.session:
                self.announcer.again()  # an objection
        else:
            self.listener.hear(heard, retained=inbound.retained)
            if own:
                self.announcer.hear_own(heard, retained=inbound.retained)
