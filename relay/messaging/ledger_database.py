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
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from relay import names
from relay.dataclass import fields
from relay.errors import LedgerAway, LedgerError, RelayError
from relay.message import Message, Priority, State
from relay.messaging import user_inbox
from relay.storage.locks import locked
from relay.storage.sqlite import Database, Schema, WrongVersion

_TABLES = """CREATE TABLE meta (origin TEXT NOT NULL,
    boot TEXT NOT NULL DEFAULT '', offset REAL NOT NULL DEFAULT 0, latest REAL NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0    -- no lower than the turn of any message that was deleted
);
CREATE TABLE registry (
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
    here INTEGER NOT NULL,             -- the last agent of that name was one of this home
    PRIMARY KEY (team, key)) WITHOUT ROWID;
CREATE TABLE messages (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    time REAL NOT NULL, thread TEXT, state TEXT NOT NULL, detail TEXT,
    route TEXT, role TEXT,             -- how it reached its receiver, and as whose words
    reply_to TEXT, priority INTEGER NOT NULL, channel TEXT, depth INTEGER NOT NULL, expires REAL,
    accepted REAL NOT NULL,            -- when it was committed
    owner TEXT,                        -- whom its receiver's name belonged to (relay.messaging.name_owners)
    hidden INTEGER NOT NULL DEFAULT 0, -- dropped after it was settled: kept for its id only
    settled REAL,                      -- when `prune` first found it settled
    seen INTEGER NOT NULL DEFAULT 0,   -- the user has seen that it is held, or did not arrive
    -- of a message that was sent here
    told TEXT,                         -- the last state that the sender heard of; NULL: sent in another home
    sent_by TEXT,                      -- whom its sender's name belonged to
    fanout TEXT,                       -- the same for all that one broadcast became
    session TEXT, said TEXT,           -- the session and the place of the directive that asked for it
    -- of a message whose receiver is here
    here INTEGER NOT NULL DEFAULT 0,
    turn INTEGER,                      -- its turn among all that are here; NULL: an earlier one is missing
    injecting INTEGER NOT NULL DEFAULT 0,
    -- of a message between two homes
    origin TEXT, sequence INTEGER,     -- its stream at its sender, and its place there
    size INTEGER,                      -- bytes of its body, if it came from another home
    receipted TEXT,                    -- the last state whose receipt the broker took
    attempts INTEGER NOT NULL DEFAULT 0,
    due REAL,                          -- when to publish (again); NULL: when the receiver appears
    ask REAL,                          -- when to ask its receiver's home what became of it; NULL: never
    home TEXT,                         -- the receiver's, which may have got it
    body TEXT NOT NULL                 -- last, since what follows a long text takes long to read
);
CREATE TABLE pairs (
    team TEXT NOT NULL, to_key TEXT NOT NULL, sender_key TEXT NOT NULL, origin TEXT NOT NULL,
    next INTEGER NOT NULL,             -- every sequence below it has been released or will never come
    PRIMARY KEY (team, to_key, sender_key, origin)) WITHOUT ROWID;
CREATE TABLE members (
    team TEXT NOT NULL, channel_key TEXT NOT NULL, key TEXT NOT NULL,
    channel TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (team, channel_key, key)) WITHOUT ROWID;
CREATE TABLE streams (
    team TEXT NOT NULL, sender_key TEXT NOT NULL, to_key TEXT NOT NULL, priority INTEGER NOT NULL,
    last INTEGER NOT NULL,             -- the sequence of the last message
    PRIMARY KEY (team, sender_key, to_key, priority)) WITHOUT ROWID;
CREATE TABLE releases (
    team TEXT NOT NULL, sender_key TEXT NOT NULL, to_key TEXT NOT NULL,
    place INTEGER NOT NULL,            -- of the pair's last message when the user let it go on
    PRIMARY KEY (team, sender_key, to_key)) WITHOUT ROWID;
CREATE TABLE owners (
    team TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL,
    folder TEXT NOT NULL,              -- "" for a run, and on another host
    here INTEGER NOT NULL,             -- an agent of this home
    latest INTEGER NOT NULL,           -- has the name, or was the last to have it; 0: a folder of this home
    ended INTEGER NOT NULL,            -- it was a run, and is over
    PRIMARY KEY (team, key, owner)) WITHOUT ROWID;
CREATE TABLE presences (
    bus TEXT NOT NULL,                 -- the broker on which it was heard
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
    online INTEGER NOT NULL, seen REAL NOT NULL, boot TEXT NOT NULL, session TEXT NOT NULL,
    home TEXT NOT NULL, host TEXT NOT NULL, every REAL NOT NULL,
    owner TEXT NOT NULL, over INTEGER NOT NULL,
    heard REAL NOT NULL,               -- when, by the ledger's clock
    PRIMARY KEY (bus, team, key)) WITHOUT ROWID;
"""

# SQLite uses a partial index only for a query that states its condition in the same words. Most indexes hold
# only what is open. The planner might prefer a larger one that fits as well: `accepted > 0` reserves the
# index of all messages for the runaway guard.  No condition compares a column that queries compare to a
# parameter, such as `to_key`: SQLite would prepare each of these queries anew whenever it is run.
_INDEXES = """CREATE INDEX messages_here ON messages (team, to_key, state, sender_key, priority, turn)
    WHERE here AND state = 'stored';
CREATE INDEX messages_given ON messages (team, sender_key) WHERE here AND state = 'stored';
CREATE INDEX messages_news ON messages (team, to_key, turn) WHERE here AND state = 'stored';
CREATE INDEX messages_begun ON messages (team) WHERE here AND state = 'stored' AND injecting;
CREATE INDEX messages_ended ON messages (team, to_key, sender_key, place, size)
    WHERE here AND told IS NULL AND state IN ('expired', 'rejected', 'uncertain');
CREATE INDEX messages_turn ON messages (turn);
CREATE INDEX messages_held ON messages (team, sender_key, to_key) WHERE state = 'held';
CREATE INDEX messages_pending ON messages (team, sender_key, to_key, priority, owner, sequence)
    WHERE state IN ('queued', 'sent');
CREATE INDEX messages_due ON messages (team, sender_key, due)
    WHERE (state IN ('queued', 'sent') OR (here AND due IS NOT NULL));
CREATE INDEX messages_ask ON messages (team, ask, sender_key) WHERE state = 'stored' AND ask IS NOT NULL;
CREATE INDEX messages_expires ON messages (expires) WHERE state IN ('queued', 'sent', 'stored');
CREATE INDEX messages_fanout ON messages (team, sender_key, accepted) WHERE fanout IS NOT NULL;
CREATE INDEX messages_to ON messages (to_key, place);
CREATE INDEX messages_said ON messages (session) WHERE session IS NOT NULL;
CREATE INDEX messages_untold ON messages (team, sender_key, sent_by) WHERE told <> state;
CREATE INDEX messages_unread ON messages (to_key, place) WHERE state = 'stored' AND NOT here;
CREATE INDEX messages_arrived ON messages (team, to_key, sender_key, origin, sequence)
    WHERE origin IS NOT NULL;
CREATE INDEX messages_unreceipted ON messages (team, to_key, turn)
    WHERE told IS NULL AND receipted IS NOT state;
CREATE INDEX messages_rate ON messages (team, sender_key, to_key, accepted) WHERE accepted > 0;
"""

SCHEMA = Schema(
    version=10,
    tables=[
        *(_TABLES + user_inbox.TABLES + _INDEXES + user_inbox.INDEXES).split(";\n")[:-1],
        "INSERT INTO meta (origin) VALUES (lower(hex(randomblob(8))))",
    ],
)
"""The ledger's tables. A new layout needs the next version."""


class LedgerOutdated(LedgerError):
    """The ledger has the layout of an earlier relay."""


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


def explain(path: Path, error: Exception) -> LedgerError:
    """Return an error that says what `error` of the ledger at `path` means, and what to do."""
    if isinstance(error, WrongVersion) and error.found < SCHEMA.version:
        return LedgerOutdated(f"{path} was written by an earlier relay.")
    if isinstance(error, WrongVersion):
        return LedgerError(f"{path} was written by a newer relay. Upgrade relay, or move it away.")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    advice = {
        sqlite3.SQLITE_FULL: "the disk is full, and relay accepts no more messages. Free some space; "
        "accepted messages are not lost.",
        sqlite3.SQLITE_IOERR: "the disk is failing or full. Check it, or free some space.",
        sqlite3.SQLITE_BUSY: "another process keeps it locked. Try again; `fuser` on the file shows the "
        "process.",
        sqlite3.SQLITE_READONLY: "it is read-only. Make it writable, or set RELAY_HOME to another directory.",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Make its directory writable, or set RELAY_HOME.",
        sqlite3.SQLITE_CORRUPT: "it is damaged. Move it away, and relay creates a new one.",
        sqlite3.SQLITE_NOTADB: "it is not a ledger. Move it away, and relay creates a new one.",
    }.get(code, f"{error}.")
    closed = isinstance(error, sqlite3.ProgrammingError)  # closed by an ended client; the next opens it
    kind = LedgerAway if closed or code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else LedgerError
    return kind(f"the message ledger {path}: {advice}")


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
        before = _inode(path)
        try:
            super().__init__(path)
        except LedgerError as error:
            if isinstance(error, LedgerOutdated):
                _move_aside(path)
            else:  # while another process moves it, SQLite may find half of its files
                with contextlib.suppress(OSError, RelayError), locked(_moving(path)):
                    pass
                if _inode(path) == before:
                    raise
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
    with locked(_moving(path)):
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


def _moving(path: Path) -> Path:
    """Return the lock of the process that moves the ledger at `path`."""
    return path.with_name(f"{path.name}-moving")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def keys(*texts: str) -> tuple[str, ...]:
    """Return the names in the form that the tables compare."""
    return tuple(map(names.key, texts))


def message_of(row: Iterable[Any]) -> Message:
    id, sender, to, body, when, state, *more, rank, channel, depth, expires = row
    priority = Priority.of_rank(rank)
    values = [id, sender, to, body, when, State(state), *more, priority, channel, depth, expires]
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
) -> int:
    """Move messages to `state` if that is a step forward; return how many were moved."""
    before = ", ".join(f"'{earlier}'" for earlier in _BEFORE[state])
    return db.execute(
        "UPDATE messages SET state = ?, detail = ?, route = ?, role = ? "
        f"WHERE {where} AND state IN ({before})",
        (state, detail, route, role, *values),
    ).rowcount


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
