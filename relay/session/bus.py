"""The session's place on the bus: a courier as long as it can be had, and what the person hears of it.

Whatever ends a courier (a ledger that cannot be used, a session on another host that has the name, a broker
that does not start, a fault of relay's own) leaves the agent running without messages, is told once, and
another courier is tried until there is one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from relay.control.sessions import CONNECTING
from relay.errors import LedgerError, NameInUse, RelayError
from relay.messaging.client import Courier
from relay.session.absent import NoBus
from relay.storage.journal import Journal

LEDGER_RETRY = 3.0
"""Seconds between two tries to open a ledger that could not be used."""

NAME_RETRY = 30.0
"""Seconds between two tries to have a name that a session on another host has."""

FIRST_RETRY, LAST_RETRY = 3.0, 60.0
"""Seconds between two tries after anything else: doubling, until the bus has held for LAST_RETRY."""

PATIENCE = 1.0
"""Seconds without the broker after which the person hears of it."""

_CONNECTED = "connected to "  # how the one status of a courier begins that tells of no trouble

_log = logging.getLogger(__name__)


class Bus:
    """open: makes a courier, which tells its status to the function given. Raises RelayError.

    on_change:   told of another courier, or of none.
    tell_person: one line, kept in the journal; show: one line, not kept.
    sleep:       waits so many seconds between two tries.
    """

    def __init__(
        self,
        open: Callable[[Callable[[str], None]], Courier],
        *,
        on_change: Callable[[Courier | NoBus], None],
        tell_person: Callable[[str], None],
        show: Callable[[str], None],
        journal: Journal,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._open = open
        self._on_change = on_change
        self._tell_person = tell_person
        self._show = show
        self._journal = journal
        self._sleep = sleep
        self._told: set[str] = set()  # the troubles that the person was told of, until they are over
        self._status = CONNECTING  # why there is no connection, or where there is one
        self._retry = FIRST_RETRY
        self.courier: Courier | NoBus
        try:
            self.courier = open(self._on_status)
        except RelayError as error:
            self.courier = NoBus(error)
            self._status = str(error)
            self._told.add(str(error))  # by whoever made us

    @property
    def problem(self) -> RelayError | None:
        """Why there is no courier."""
        return self.courier.why if isinstance(self.courier, NoBus) else None

    @property
    def status(self) -> str:
        """One line: where it is connected to, or why it is not; CONNECTING before either is known."""
        return self._status if self.courier.connected == self._status.startswith(_CONNECTED) else CONNECTING

    async def run(self) -> None:
        """Be on the bus until cancelled."""
        while True:
            if self.problem is None:
                await self._run_courier()
            await self._sleep(self._pause())
            try:
                courier = self._open(self._on_status)
            except RelayError as error:
                self._leave(error)
            except Exception as error:  # noqa: BLE001 (logged with its traceback, told, tried again)
                self._leave(_fault(error))
            else:
                self._use(courier)

    async def _run_courier(self) -> None:
        """Use the courier until it ends, whyever that is."""
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            await self.courier.run()
        except RelayError as error:
            self._leave(error)
        except Exception as error:  # noqa: BLE001 (logged with its traceback, told, tried again)
            self._leave(_fault(error))
        if clock() - started > LAST_RETRY:
            self._retry = FIRST_RETRY

    def _pause(self) -> float:
        """Seconds until the next try."""
        match self.problem:
            case LedgerError():
                return LEDGER_RETRY
            case NameInUse():
                return NAME_RETRY
            case _:
                pause, self._retry = self._retry, min(2 * self._retry, LAST_RETRY)
                return pause

    def _leave(self, error: RelayError) -> None:
        """Be off the bus, and say so."""
        self._use(NoBus(error))
        self._status = str(error)
        match error:
            case LedgerError():
                effect = "Messages wait until then."
            case NameInUse():
                effect = "Until then this agent neither sends nor receives."
            case _:
                effect = "It is tried again; until then this agent neither sends nor receives."
        self._tell(str(error), effect)

    def _use(self, courier: Courier | NoBus) -> None:
        self.courier = courier
        self._on_change(courier)

    def _tell(self, trouble: str, effect: str) -> None:
        """Tell of trouble that keeps the session off the bus, and of its effect, once until it is over."""
        if trouble not in self._told:
            self._told.add(trouble)
            self._tell_person(f"{trouble} {effect}")

    def _on_status(self, text: str) -> None:
        """The person hears of trouble that lasts, of each kind once, and of its end."""
        self._journal.write("bus", status=text)
        if not self.courier.connected:
            self._status = text
            asyncio.get_running_loop().call_later(PATIENCE, self._tell_status)
        elif not text.startswith(_CONNECTED):  # the ledger does not take what comes: that ends by itself
            self._show_once(text)
        else:
            self._status = text
            if self._told:
                self._told.clear()
                self._show(f"{text}; messages travel again.")

    def _tell_status(self) -> None:
        """Tell why there is no connection now; what was so before is the past."""
        if not self.courier.connected and not self._status.startswith(_CONNECTED):
            self._show_once(self._status)

    def _show_once(self, trouble: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            self._show(trouble)


def _fault(error: Exception) -> RelayError:
    """A fault of relay's own, as a person may hear of it; its traceback goes into the log."""
    _log.error("the bus", exc_info=error)
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return RelayError(f"the bus failed ({type(first).__name__}: {first}).")
