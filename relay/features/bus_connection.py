"""The session's connection to the message bus.

If a client fails (the ledger cannot be used, a session on another host has the name, the broker does not
start, relay itself has a fault), the agent keeps running without messages, the user sees the reason once,
and relay retries until a client works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relay.backoff import Backoff
from relay.clock import Clock
from relay.control.sessions import CONNECTING
from relay.errors import LedgerAway, LedgerError, MessageRefused, NameInUse, RelayError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, SessionClosed
from relay.messaging.events import ClientOpened, CurrentClient, InHand, StatusReported
from relay.storage.journal import Journal
from relay.terminal.events import Notify

if TYPE_CHECKING:
    from relay.messaging.client import MessagingClient

LEDGER_RETRY = 3.0
"""Seconds between two attempts to open a ledger that could not be used."""

NAME_RETRY = 30.0
"""Seconds between two attempts to claim a name that a session on another host has."""

RETRY = Backoff(3.0, 60.0)
"""The waits between two attempts after other failures, counted since a connection lasted for RETRY.last."""

NOTICE_AFTER = 1.0
"""Seconds without the broker after which the user gets a notice."""

CLOSING = 4.0
"""Seconds that a closing session waits for the ledger and the last receipts."""

_CONNECTED = "connected to "  # the prefix of the only status that reports no problem

_log = logging.getLogger(__name__)

Open = Callable[[frozenset[str]], Awaitable["MessagingClient"]]


class BusConnection:
    """Keeps the session on the bus.

    open:     opens a client, given the ids of the messages in hand (InHand). Raises RelayError if it cannot.
    channels: the channels to join.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        open: Open,
        *,
        name: str,
        channels: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._open = open
        self._name = name
        self._channels = channels
        self._clock = clock or Clock()
        self._client: MessagingClient | None = None
        self._problem: RelayError | None = None  # why there is no client
        self._tried = asyncio.Event()  # set after the first attempt to open one
        self._shown: set[str] = set()  # the problems shown to the user that still last
        self._status = CONNECTING  # why there is no connection, or what it is connected to
        self._failures = 0

    async def run(self) -> None:
        while True:
            try:
                await self._connect()
            except RelayError as error:
                self._leave(error)
            except Exception as error:  # noqa: BLE001 (logged with its traceback, shown, tried again)
                self._leave(_fault(error))
            await self._clock.sleep(self._pause())

    async def _connect(self) -> None:
        """Open a client and run it until it ends. Raise the error that prevents or ends it."""
        client = await self._opened()
        self._client, self._problem = client, None
        self._tried.set()
        self._bus.publish(ClientOpened())
        started = self._clock.now()
        try:
            await client.run()
        finally:
            if self._clock.now() - started > RETRY.last:
                self._failures = 0

    async def _opened(self) -> MessagingClient:
        client = await self._open(frozenset(await self._bus.gather(InHand())))
        try:
            for channel in self._channels:
                await self._join(client, channel)
        except BaseException:
            await client.close()  # or the next client would find the name taken
            raise
        return client

    async def _join(self, client: MessagingClient, channel: str) -> None:
        try:
            await client.join(channel)
        except MessageRefused as error:  # too many channels; the session needs the bus anyway
            self._bus.publish(
                Notify(f"{self._name} could not join #{channel}, which its settings name: {error}")
            )

    def _pause(self) -> float:
        match self._problem:
            case LedgerError():
                return LEDGER_RETRY
            case NameInUse():
                return NAME_RETRY
            case _:
                self._failures += 1
                return RETRY.wait(self._failures)

    def _leave(self, error: RelayError) -> None:
        """Drop the client; show the user the reason and the effect, once until the problem is over."""
        match error:
            case _ if self._client is None and self._problem is None:
                effect = "The agent keeps running without messages."
            case LedgerError():
                effect = "Messages wait until then."
            case NameInUse():
                effect = "Until then this agent neither sends nor receives."
            case _:
                effect = "relay keeps trying; until then this agent neither sends nor receives."
        self._client, self._problem, self._status = None, error, str(error)
        self._tried.set()
        if str(error) not in self._shown:
            self._shown.add(str(error))
            self._bus.publish(Notify(f"{error} {effect}"))

    @property
    def _connected(self) -> bool:
        return self._client is not None and self._client.connected

    @answers(CurrentClient)
    async def client(self, question: CurrentClient, _: object) -> MessagingClient:
        if question.wait:
            await self._tried.wait()
        if self._client is None or self._client.ended:
            raise self._problem or LedgerAway("this session is not on the bus.")
        return self._client

    @answers(SessionClosed)
    async def close(self, question: SessionClosed, _: object) -> None:
        """Notify the senders of messages to an agent that has ended; the mailbox is done with them."""
        if question.ended and self._client is not None and not self._client.ended:
            with suppress(RelayError, TimeoutError):  # the next check of the ledger ends what is left
                async with asyncio.timeout(CLOSING):
                    await self._client.end()

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        known = self._connected == self._status.startswith(_CONNECTED)
        status = self._status if known else CONNECTING
        return {"bus": "connected" if question.brief and self._connected else status}

    @handles(StatusReported)
    def reported(self, event: StatusReported) -> None:
        """Tell the user once about each kind of problem that lasts, and about its end."""
        text = event.text
        self._journal.write("bus", status=text)
        if not self._connected:
            self._status = text
            self._bus.loop.call_later(NOTICE_AFTER, self._show_status)
        elif not text.startswith(_CONNECTED):  # the ledger refuses messages, and recovers by itself
            self._show_once(text)
        else:
            self._status = text
            if self._shown:
                self._shown.clear()
                self._bus.publish(Notify(f"{text}; messages are delivered again.", keep=False))

    def _show_status(self) -> None:
        if not self._connected and not self._status.startswith(_CONNECTED):
            self._show_once(self._status)

    def _show_once(self, trouble: str) -> None:
        if trouble not in self._shown:
            self._shown.add(trouble)
            self._bus.publish(Notify(trouble, keep=False))


def _fault(error: Exception) -> RelayError:
    """Return the user's message about an internal error in relay, and log its traceback."""
    _log.error("the bus", exc_info=error)
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return RelayError(f"the bus failed ({type(first).__name__}: {first}).")
