"""The file behind the ledger: its tables, its errors, its clock, and how a row stores a message.

The clock counts seconds since the epoch and never jumps while the machine runs.  Deadlines in the ledger use
it, so setting the wall clock an hour forward expires nothing, and setting it back delays nothing.  It is the
time since the machine was started (including sleep), plus an offset that the ledger keeps: all processes of a
home read the same clock.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from relay import names
from relay.errors import LedgerAway
from relay.message import Message, Priority, State
from relay.messaging.schema import SCHEMA, LedgerOutdated, explain
from relay.storage.locks import locked
from relay.storage.sqlite import Database

COLUMNS = (
    "id, sender, recipient, body, time, state, thread, detail, route, role, "
    "reply_to, priority, channel, depth, expires"
)
"""The columns of `messages` that hold the fields of Message, in its order."""

_fields = attrgetter(*(field.name for field in fields(Message)))

LATEST_EVERY = 3600.0
"""Seconds between two writes of the time; a write at each opening would fail on a full disk."""

# CLOCK_BOOTTIME includes sleep on Linux (clock_gettime(2)); CLOCK_MONOTONIC does on macOS.
_SINCE_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4)


class LedgerGone(LedgerAway):
    """The file is no longer at its path: data written to it would be lost with its last process."""


class LedgerDatabase(Database):
    """A home's ledger file. Every method raises LedgerError, with advice.

    origin: the id of this file, created with it.
    now:    returns seconds since the epoch, by the clock described above unless another is given.
    """

    schema = SCHEMA
    busy_seconds = 2.0
    crowded = True
    explain = staticmethod(explain)

    def __init__(self, path: Path, clock: Callable[[], float] | None = None) -> None:
        try:
            super().__init__(path)
        except LedgerOutdated:
            _move_aside(path)
            super().__init__(path)
        try:
            ((origin,),) = self.rows("SELECT origin FROM meta")
            self.origin = str(origin)
            if clock is None:
                with self.transaction() as db:
                    clock = open_clock(db)
            self.now = clock
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise LedgerGone if the file was moved, deleted, or replaced by another."""
        if self.was_moved():
            raise LedgerGone(
                f"the message ledger {self.path} was moved away or deleted while in use. Waiting messages "
                "are in that file, if it still exists; sessions continue with a new ledger."
            )


def _move_aside(path: Path) -> None:
    """Move a ledger with an older layout, and its companions, out of the way; other processes may, too."""
    with locked(path.with_name(f"{path.name}-moving")):
        if not path.exists():  # another process has just moved it
            return
        _, version = Database.inspect(path)
        if 0 < version < SCHEMA.version:
            aside = path.with_name(f"{path.stem}-{version}{path.suffix}")
            numbers = itertools.count(2)
            while aside.exists():  # the user has gone back to that relay meanwhile
                aside = path.with_name(f"{path.stem}-{version}-{next(numbers)}{path.suffix}")
            for end in ("-shm", "-wal", ""):
                with contextlib.suppress(FileNotFoundError):
                    path.with_name(path.name + end).rename(aside.with_name(aside.name + end))
            import logging  # 5 ms, and rarely needed

            log = logging.getLogger(__name__)
            log.warning("the message ledger of an earlier relay is now %s; its messages wait no more", aside)


def keys(*texts: str) -> tuple[str, ...]:
    """Return the names in the form that the tables compare."""
    return tuple(map(names.key, texts))


def message_of(row: Iterable[Any]) -> Message:
    id, sender, to, body, when, state, *more, rank, channel, depth, expires = row
    values = [id, sender, to, body, when, State(state), *more, list(Priority)[rank], channel, depth, expires]
    return Message(*values)


def mark(db: LedgerDatabase, change: str, where: str, *values: object) -> list[Message]:
    """Make a `change` to the messages `where`; return them, in the order in which they were committed."""
    # Look without a write lock first: most calls find nothing.
    if not db.rows(f"SELECT 1 FROM messages WHERE {where} LIMIT 1", *values):
        return []
    with db.transaction() as connection:
        marked = f"UPDATE messages SET {change} WHERE {where} RETURNING place, {COLUMNS}"
        rows = sorted(connection.execute(marked, values).fetchall(), key=itemgetter(0))
    return [message_of(row) for _, *row in rows]


def insert(db: sqlite3.Connection, team: str, message: Message, **more: Any) -> None:
    """Write `message` into `messages`. more: the columns that are not fields of a message."""
    row = dict(zip(COLUMNS.split(", "), _fields(message), strict=True)) | more
    row["team"], row["sender_key"], row["to_key"] = keys(team, message.sender, message.to)
    row["priority"] = message.priority.rank
    db.execute(
        f"INSERT INTO messages ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
    )


NEXT_TURN = "(SELECT max(meta.turn, ifnull((SELECT max(turn) FROM messages), 0)) + 1 FROM meta)"
"""The turn of the next message that arrives for an agent of this home."""

KEEP_TURN = f"UPDATE meta SET turn = {NEXT_TURN} - 1"
"""Execute it before messages are deleted: a session asks only for turns after the last that it got."""


# The states from which a receipt (or the sender's own progress) may move a row. An expired message may still
# have been in flight, or have reached a receiver that has moved: the receiver's report wins.
# But a broker may redeliver an old receipt after a newer one: *stored* never replaces *uncertain*.
_UNTOLD = (State.QUEUED, State.SENT, State.EXPIRED)
_BEFORE: dict[State, tuple[State, ...]] = {
    State.SENT: (State.QUEUED,),
    State.STORED: _UNTOLD,
    State.INJECTED: (*_UNTOLD, State.STORED, State.UNCERTAIN),
    State.UNCERTAIN: (*_UNTOLD, State.STORED),
    State.REJECTED: (*_UNTOLD, State.STORED, State.UNCERTAIN),
    State.EXPIRED: (State.HELD, State.QUEUED, State.SENT, State.STORED),
}


def advance(
    db: sqlite3.Connection,
    where: str,
    values: tuple[object, ...],
    state: State,
    detail: str | None = None,
    route: str | None = None,
    role: str | None = None,
) -> None:
    """Move messages to `state` if that is a step forward."""
    before = ", ".join(f"'{earlier}'" for earlier in _BEFORE[state])
    db.execute(
        "UPDATE messages SET state = ?, detail = ?, route = ?, role = ? "
        f"WHERE {where} AND state IN ({before})",
        (state, detail, route, role, *values),
    )


def open_clock(db: sqlite3.Connection) -> Callable[[], float]:
    """Return the clock of the ledger `db`, within the caller's transaction."""
    boot, offset, latest = db.execute("SELECT boot, offset, latest FROM meta").fetchone()
    here = boot_id()
    if boot != here:  # the machine was rebooted; a wall clock that lost the time must not take us back
        offset = max(time.time(), latest) - since_boot()
        # `latest` may be old: whatever was due by then, or soon after, is due now.
        for when in ("due", "ask"):
            soon = f"UPDATE messages SET {when} = min({when}, ?) WHERE {when} IS NOT NULL"
            db.execute(soon, (since_boot() + offset,))
    now = since_boot() + offset
    if boot != here or now - latest > LATEST_EVERY:
        db.execute("UPDATE meta SET boot = ?, offset = ?, latest = ?", (here, offset, now))
    return lambda: since_boot() + float(offset)


def since_boot() -> float:
    return time.clock_gettime(_SINCE_BOOT)


def boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: rounded to the hour, so small corrections of the wall clock change nothing
        return str(round((time.time() - since_boot()) / 3600))
