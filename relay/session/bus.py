"""The session's place on the bus: a courier as long as it can be had, and what the person hears of it.

A ledger that cannot be used, or a session on another host that has the name, leaves the agent running without
messages; both are tried again until they are mended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from relay.bus.courier import Courier
from relay.errors import LedgerError, NameInUse, RelayError
from relay.journal import Journal
from relay.session.absent import NoBus

LEDGER_RETRY = 3.0
"""Seconds between two tries to open a ledger that could not be used."""

NAME_RETRY = 30.0
"""Seconds between two tries to have a name that a session on another host has."""

PATIENCE = 1.0
"""Seconds without the broker after which the person hears of it."""


class Bus:
    """open: makes a courier, which tells its status to the function given. Raises RelayError.

    on_change:   told of another courier, or of none.
    tell_person: one line, kept in the journal; show: one line, not kept.
    """

    def __init__(
        self,
        open: Callable[[Callable[[str], None]], Courier],
        *,
        on_change: Callable[[Courier | NoBus], None],
        tell_person: Callable[[str], None],
        show: Callable[[str], None],
        journal: Journal,
    ) -> None:
        self._open = open
        self._on_change = on_change
        self._tell_person = tell_person
        self._show = show
        self._journal = journal
        self._trouble = ""  # what the person was told of, until it is over
        self.courier: Courier | NoBus
        try:
            self.courier = open(self._on_status)
        except RelayError as error:
            self.courier = NoBus(error)

    @property
    def problem(self) -> RelayError | None:
        """Why there is no courier."""
        return self.courier.why if isinstance(self.courier, NoBus) else None

    async def run(self) -> None:
        """Be on the bus. Returns where that cannot be mended while the session runs."""
        while True:
            try:
                await self.courier.run()
            except LedgerError as error:
                self._use(NoBus(error))
                self._tell(f"{error} Messages wait until then.")
            except NameInUse as error:
                self._use(NoBus(error))
                self._tell(f"{error} Until then this agent neither sends nor receives.")
            match self.problem:
                case LedgerError():
                    await asyncio.sleep(LEDGER_RETRY)
                case NameInUse():
                    await asyncio.sleep(NAME_RETRY)
                case _:
                    return
            with suppress(LedgerError):
                self._use(self._open(self._on_status))

    def _use(self, courier: Courier | NoBus) -> None:
        self.courier = courier
        self._on_change(courier)

    def _tell(self, trouble: str) -> None:
        """Tell of trouble that keeps the session off the bus, once."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._tell_person(trouble)

    def _on_status(self, text: str) -> None:
        """The person hears of trouble that lasts, once, and of its end."""
        self._journal.write("bus", status=text)
        if not self.courier.connected:
            asyncio.get_running_loop().call_later(PATIENCE, self._tell_status, text)
        elif self._trouble:
            self._trouble = ""
            self._show(f"{text}; messages travel again.")

    def _tell_status(self, text: str) -> None:
        if not self.courier.connected and not self._trouble:
            self._trouble = text
            self._show(text)
