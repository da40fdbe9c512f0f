"""The session's place on the bus: a client as long as it can be had, and what the user hears of it.

Whatever ends a client (a ledger that cannot be used, a session on another host that has the name, a broker
that does not start, a fault of relay's own) leaves the agent running without messages, is shown once, and
another client is tried until there is one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from relay.clock import Clock
from relay.control.sessions import CONNECTING
from relay.errors import LedgerError, MessageRefused, NameInUse, RelayError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe
from relay.messaging.client import CurrentClient, MessagingClient
from relay.messaging.events import ClientOpened, InHand, StatusReported
from relay.storage.journal import Journal
from relay.terminal.events import Notify

LEDGER_RETRY = 3.0
"""Seconds between two tries to open a ledger that could not be used."""

NAME_RETRY = 30.0
"""Seconds between two tries to have a name that a session on another host has."""

FIRST_RETRY, LAST_RETRY = 3.0, 60.0
"""Seconds between two tries after anything else: doubling, until the bus has held for LAST_RETRY."""

PATIENCE = 1.0
"""Seconds without the broker after which the user hears of it."""

_CONNECTED = "connected to "  # how the one status of a client begins that tells of no trouble

_log = logging.getLogger(__name__)

Open = Callable[[frozenset[str]], Awaitable[MessagingClient]]


class BusConnection:
    """Keeps the session on the bus.

    open:     makes a client that publishes its events; given the messages in hand (InHand). Raises RelayError.
    channels: those that the agent joins, as the settings say.
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
        self._problem: RelayError | None = None  # why there is none
        self._tried = asyncio.Event()  # to open one, with either end
        self._shown: set[str] = set()  # the troubles that the user was shown, until they are over
        self._status = CONNECTING  # why there is no connection, or where there is one
        self._retry = FIRST_RETRY

    async def run(self) -> None:
        """Be on the bus until cancelled."""
        while True:
            try:
                client = await self._opened()
            except RelayError as error:
                self._leave(error)
            except Exception as error:  # noqa: BLE001 (logged with its traceback, shown, tried again)
                self._leave(_fault(error))
            else:
                self._client, self._problem = client, None
                self._tried.set()
                self._bus.publish(ClientOpened())
                await self._run_client(client)
            await self._clock.sleep(self._pause())

    async def _opened(self) -> MessagingClient:
        in_hand = [id for ids in await self._bus.ask(InHand()) for id in ids]
        client = await self._open(frozenset(in_hand))
        for channel in self._channels:
            try:
                await client.join(channel)
            except MessageRefused as error:  # too many; the session needs the bus all the same
                self._bus.publish(Notify(f"{self._name} is not in #{channel}, as the settings say: {error}"))
        return client

    async def _run_client(self, client: MessagingClient) -> None:
        """Use the client until it ends, whyever that is."""
        started = self._clock.now()
        try:
            await client.run()
        except RelayError as error:
            self._leave(error)
        except Exception as error:  # noqa: BLE001 (logged with its traceback, shown, tried again)
            self._leave(_fault(error))
        if self._clock.now() - started > LAST_RETRY:
            self._retry = FIRST_RETRY

    def _pause(self) -> float:
        """Return the seconds until the next try."""
        match self._problem:
            case LedgerError():
                return LEDGER_RETRY
            case NameInUse():
                return NAME_RETRY
            case _:
                pause, self._retry = self._retry, min(2 * self._retry, LAST_RETRY)
                return pause

    def _leave(self, error: RelayError) -> None:
        """Be off the bus, and show why and with what effect, once until it is over."""
        match error:
            case _ if self._client is None and self._problem is None:
                effect = "The agent runs on without messages."
            case LedgerError():
                effect = "Messages wait until then."
            case NameInUse():
                effect = "Until then this agent neither sends nor receives."
            case _:
                effect = "It is tried again; until then this agent neither sends nor receives."
        self._client, self._problem, self._status = None, error, str(error)
        self._tried.set()
        if str(error) not in self._shown:
            self._shown.add(str(error))
            self._bus.publish(Notify(f"{error} {effect}"))

    @property
    def _connected(self) -> bool:
        return self._client is not None and self._client.connected

    @property
    def status(self) -> str:
        """One line: where it is connected to, or why it is not; CONNECTING before either is known."""
        return self._status if self._connected == self._status.startswith(_CONNECTED) else CONNECTING

    @answers(CurrentClient)
    async def client(self, question: CurrentClient, _: object) -> MessagingClient:
        if question.wait:
            await self._tried.wait()
        if self._client is None:
            raise self._problem or RelayError("this session is not on the bus yet.")
        return self._client

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        return {"bus": "connected" if question.brief and self._connected else self.status}

    @handles(StatusReported)
    def reported(self, event: StatusReported) -> None:
        """The user hears of trouble that lasts, of each kind once, and of its end."""
        text = event.text
        self._journal.write("bus", status=text)
        if not self._connected:
            self._status = text
            self._bus.loop.call_later(PATIENCE, self._show_status)
        elif not text.startswith(_CONNECTED):  # the ledger does not take what comes: that ends by itself
            self._show_once(text)
        else:
            self._status = text
            if self._shown:
                self._shown.clear()
                self._bus.publish(Notify(f"{text}; messages travel again.", keep=False))

    def _show_status(self) -> None:
        """Show why there is no connection now; what was so before is the past."""
        if not self._connected and not self._status.startswith(_CONNECTED):
            self._show_once(self._status)

    def _show_once(self, trouble: str) -> None:
        if trouble not in self._shown:
            self._shown.add(trouble)
            self._bus.publish(Notify(trouble, keep=False))


def _fault(error: Exception) -> RelayError:
    """Return a fault of relay's own as the user may hear of it; its traceback goes into the log."""
    _log.error("the bus", exc_info=error)
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return RelayError(f"the bus failed ({type(first).__name__}: {first}).")
