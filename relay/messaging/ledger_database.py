"""The file behind the ledger: one SQLite connection, its transactions, its errors, its clock.

WAL with synchronous=NORMAL: what was committed survives kill -9 of every process.  After a power failure
the last commits may be missing, never the file's integrity (https://sqlite.org/pragma.html#pragma_synchronous);
the price of FULL would be a disk flush on each step of each message.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from relay.errors import LedgerError
from relay.messaging import ledger_clock, schema
from relay.messaging.message import Message, Priority, State

BUSY_SECONDS = 2.0

COLUMNS = (
    "id, sender, recipient, body, time, state, thread, detail, route, role, "
    "reply_to, priority, channel, depth, expires"
)
"""The columns of `outbox` and `inbox` that `message_of` takes, in its order."""


class LedgerGone(LedgerError):
    """The file is no longer where it was: what is written into it would end with its last process."""


class Database:
    """One connection to a home's ledger; use it from one thread. Raises LedgerError, with advice.

    origin: the id of this file, made with it.
    now:    seconds since the epoch, by a clock that does not jump
            (relay.messaging.ledger_clock), unless one is given.
    """

    def __init__(self, path: Path, now: Callable[[], float] | None = None) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        with self._explained():
            _make_private(path)
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._explained():
                self._prepare()
                self.now = self._open_clock() if now is None else now
            self._file = _identity(path)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            yield self._connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that the block changes, or nothing."""
        self.check()
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def check(self) -> None:
        """Raise LedgerGone if the file was moved away, deleted, or replaced by another."""
        if self._file is not None and _identity(self._path) != self._file:
            raise LedgerGone(
                f"the message ledger {self._path} was moved away or deleted while it was in use. "
                "What waited is in that file, if it still exists; sessions go on with a new one."
            )

    def version(self) -> int:
        """A number that changes whenever another process has written."""
        with self.reading() as db:
            (version,) = db.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _prepare(self) -> None:
        db = self._connection
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        if schema.version(db) < schema.VERSION:
            with self.transaction():
                if schema.version(db) == 0:  # nobody was faster
                    schema.create(db)
                else:
                    schema.migrate(db)
        if schema.version(db) != schema.VERSION:
            raise LedgerError(
                f"{self._path} was written by another version of relay. Upgrade relay, or move it away."
            )
        (origin,) = db.execute("SELECT origin FROM meta").fetchone()
        self.origin = str(origin)

    def _open_clock(self) -> Callable[[], float]:
        with self.transaction() as db:
            offset = ledger_clock.open_clock(db)
        return lambda: ledger_clock.since_boot() + offset

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise schema.explain(self._path, error) from None


def _make_private(path: Path) -> None:
    """Make the file 0600 before SQLite would make it as the umask says; its others take after it."""
    with contextlib.suppress(OSError):  # SQLite has better words for it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at `path`."""
    try:
        found = os.stat(path)  # noqa: PTH116 (this is called for every transaction)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def message_of(row: Iterable[Any]) -> Message:
    """The message in a row of COLUMNS."""
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
