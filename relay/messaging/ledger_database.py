"""The file behind the ledger: its tables, its errors, its clock, and how a message is kept in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from relay.errors import LedgerError
from relay.message import Message, Priority, State
from relay.messaging import ledger_clock
from relay.messaging.schema import SCHEMA, explain
from relay.storage.sqlite import Database

COLUMNS = (
    "id, sender, recipient, body, time, state, thread, detail, route, role, "
    "reply_to, priority, channel, depth, expires"
)
"""The columns of `outbox` and `inbox` that `message_of` takes, in its order."""


class LedgerGone(LedgerError):
    """The file is no longer where it was: what is written into it would end with its last process."""


class LedgerDatabase(Database):
    """A home's ledger file; every method raises LedgerError, with advice.

    origin: the id of this file, made with it.
    now:    seconds since the epoch, by a clock that does not jump (relay.messaging.ledger_clock), unless
            another one is given.
    """

    schema = SCHEMA
    busy_seconds = 2.0
    explain = staticmethod(explain)

    def __init__(self, path: Path, clock: Callable[[], float] | None = None) -> None:
        super().__init__(path)
        try:
            with self.reading() as db:
                (origin,) = db.execute("SELECT origin FROM meta").fetchone()
            self.origin = str(origin)
            self.now = self._open_clock() if clock is None else clock
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise LedgerGone if the file was moved away, deleted, or replaced by another."""
        if self.was_moved():
            raise LedgerGone(
                f"the message ledger {self.path} was moved away or deleted while it was in use. "
                "What waited is in that file, if it still exists; sessions go on with a new one."
            )

    def _open_clock(self) -> Callable[[], float]:
        with self.transaction() as db:
            offset = ledger_clock.open_clock(db)
        return lambda: ledger_clock.since_boot() + offset


def message_of(row: Iterable[Any]) -> Message:
    """Return the message in a row of COLUMNS."""
    id, sender, to, body, time, state, thread, detail, route, role, reply_to, rank, *rest = row
    channel, depth, expires = rest
    return Message(
        id=id,
        sender=sender,
        to=to,
        body=body,
        time=time,
        state=State(state),
        thread=thread,
        detail=detail,
        route=route,
        role=role,
        reply_to=reply_to,
        priority=list(Priority)[rank],
        channel=channel,
        depth=depth,
        expires=expires,
    )
