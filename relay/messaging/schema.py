"""The ledger's tables, and advice for SQLite's errors about its file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from relay.errors import LedgerAway, LedgerError
from relay.storage.sqlite import Schema, WrongVersion

_TABLES = """CREATE TABLE meta (origin TEXT NOT NULL,
    boot TEXT NOT NULL DEFAULT '', offset REAL NOT NULL DEFAULT 0, latest REAL NOT NULL DEFAULT 0);
CREATE TABLE registry (
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL, seen REAL NOT NULL,
    PRIMARY KEY (team, key)) WITHOUT ROWID;
CREATE TABLE outbox (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    body TEXT NOT NULL, time REAL NOT NULL, thread TEXT,
    sequence INTEGER NOT NULL,         -- in its stream; 0: held, and not in it yet
    state TEXT NOT NULL, detail TEXT,
    told TEXT,                         -- the last state that the sender heard of
    attempts INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0, -- dropped after it was settled: kept for its id only
    due REAL,                          -- when to publish (again); NULL: when the receiver appears
    route TEXT, role TEXT,             -- how it reached its receiver, and as whose words
    reply_to TEXT, priority INTEGER NOT NULL DEFAULT 1, channel TEXT, depth INTEGER NOT NULL DEFAULT 0,
    expires REAL,
    accepted REAL NOT NULL DEFAULT 0,  -- when it was committed
    fanout TEXT,                       -- the same for all that one broadcast became
    home TEXT,                         -- the receiver's, which may have got it
    settled REAL,                      -- when `prune` first found it settled
    session TEXT, said TEXT,           -- the session and the place of the directive that asked for it
    owner TEXT,                        -- whom its receiver's name belonged to (relay.messaging.owner)
    sent_by TEXT,                      -- and its sender's
    ask REAL                           -- when to ask its receiver's home what became of it; NULL: never
);
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    body TEXT NOT NULL, time REAL NOT NULL, thread TEXT,
    origin TEXT NOT NULL,              -- the stream at its sender
    sequence INTEGER NOT NULL,
    state TEXT NOT NULL, detail TEXT,
    receipted TEXT,                    -- the last state whose receipt the broker took
    injecting INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0,
    place INTEGER,                     -- its turn among all that came; NULL: something before it is missing
    route TEXT, role TEXT,             -- how it reached the agent, and as whose words
    reply_to TEXT, priority INTEGER NOT NULL DEFAULT 1, channel TEXT, depth INTEGER NOT NULL DEFAULT 0,
    expires REAL,
    accepted REAL NOT NULL DEFAULT 0,  -- when it was committed here
    settled REAL,                      -- when `prune` first found it settled
    owner TEXT,                        -- whom it is for
    size INTEGER NOT NULL DEFAULT 0,   -- bytes of its body
    UNIQUE (team, to_key, sender_key, id));
CREATE TABLE pairs (
    team TEXT NOT NULL, to_key TEXT NOT NULL, sender_key TEXT NOT NULL, origin TEXT NOT NULL,
    next INTEGER NOT NULL,             -- every sequence below it has been released or will never come
    PRIMARY KEY (team, to_key, sender_key, origin)) WITHOUT ROWID;
"""

_ADDED = """CREATE TABLE members (
    team TEXT NOT NULL, channel_key TEXT NOT NULL, key TEXT NOT NULL,
    channel TEXT NOT NULL, name TEXT NOT NULL,
    joined INTEGER NOT NULL,           -- 0: has left (no longer written: the row is deleted)
    time REAL NOT NULL,
    PRIMARY KEY (team, channel_key, key)) WITHOUT ROWID;
CREATE TABLE streams (
    team TEXT NOT NULL, sender_key TEXT NOT NULL, to_key TEXT NOT NULL, priority INTEGER NOT NULL,
    last INTEGER NOT NULL,             -- the sequence of the last message
    PRIMARY KEY (team, sender_key, to_key, priority)) WITHOUT ROWID;
CREATE TABLE releases (
    team TEXT NOT NULL, sender_key TEXT NOT NULL, to_key TEXT NOT NULL,
    place INTEGER NOT NULL,            -- of the pair's last message when the user let it go on
    PRIMARY KEY (team, sender_key, to_key)) WITHOUT ROWID;
"""

_OWNERS = """CREATE TABLE owners (
    team TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL,
    folder TEXT NOT NULL,              -- "" for a run, and on another host
    here INTEGER NOT NULL,             -- an agent of this home
    latest INTEGER NOT NULL,           -- has the name, or was the last to have it; 0: a folder of this home
    ended INTEGER NOT NULL,            -- it was a run, and is over
    PRIMARY KEY (team, key, owner)) WITHOUT ROWID"""
_PRESENCES = """CREATE TABLE presences (
    bus TEXT NOT NULL,                 -- the broker on which it was heard
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
    online INTEGER NOT NULL, seen REAL NOT NULL, boot TEXT NOT NULL, session TEXT NOT NULL,
    home TEXT NOT NULL, host TEXT NOT NULL, every REAL NOT NULL,
    owner TEXT NOT NULL, over INTEGER NOT NULL,
    heard REAL NOT NULL,               -- when, by the ledger's clock
    PRIMARY KEY (bus, team, key)) WITHOUT ROWID"""

_INDEXES = """CREATE INDEX inbox_begun ON inbox (team) WHERE state = 'stored' AND injecting;
CREATE INDEX inbox_ended ON inbox (team, to_key, sender_key, arrival, size)
    WHERE state IN ('expired', 'rejected', 'uncertain');
CREATE INDEX inbox_id ON inbox (id);
CREATE INDEX inbox_place ON inbox (place);
CREATE INDEX inbox_sequence ON inbox (team, to_key, sender_key, origin, sequence);
CREATE INDEX inbox_unreceipted ON inbox (team, to_key, place) WHERE receipted IS NOT state;
CREATE INDEX inbox_waiting ON inbox (team, to_key, sender_key, priority, place, size)
    WHERE state = 'stored';
CREATE INDEX outbox_ask ON outbox (team, ask, sender_key) WHERE state = 'stored' AND ask IS NOT NULL;
CREATE INDEX outbox_due ON outbox (team, sender_key, due, recipient) WHERE state IN ('queued', 'sent');
CREATE INDEX outbox_expires ON outbox (expires) WHERE state IN ('queued', 'sent');
CREATE INDEX outbox_fanout ON outbox (team, sender_key, accepted) WHERE fanout IS NOT NULL;
CREATE INDEX outbox_held ON outbox (team, sender_key, to_key) WHERE state = 'held';
CREATE INDEX outbox_pending ON outbox (team, sender_key, to_key, priority, owner, sequence)
    WHERE state IN ('queued', 'sent');
CREATE INDEX outbox_rate ON outbox (team, sender_key, to_key, accepted);
CREATE INDEX outbox_said ON outbox (session) WHERE session IS NOT NULL;
CREATE INDEX outbox_turn ON outbox (team, sender_key, priority, place) WHERE state IN ('queued', 'sent');
CREATE INDEX outbox_unread ON outbox (place) WHERE state = 'stored' AND to_key = 'you';
CREATE INDEX outbox_untold ON outbox (team, sender_key, sent_by) WHERE told IS NOT state;
"""

_STEPS = {
    1: [
        f"ALTER TABLE {table} ADD COLUMN {column} TEXT"
        for table in ("outbox", "inbox")
        for column in ("route", "role")
    ],
    2: [
        "ALTER TABLE meta ADD COLUMN boot TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE meta ADD COLUMN offset REAL NOT NULL DEFAULT 0",
        "ALTER TABLE meta ADD COLUMN latest REAL NOT NULL DEFAULT 0",
        *(
            f"ALTER TABLE {table} ADD COLUMN {column}"
            for table in ("outbox", "inbox")
            for column in (
                "reply_to TEXT",
                "priority INTEGER NOT NULL DEFAULT 1",
                "channel TEXT",
                "depth INTEGER NOT NULL DEFAULT 0",
                "expires REAL",
                "accepted REAL NOT NULL DEFAULT 0",
                "settled REAL",
            )
        ),
        "ALTER TABLE outbox ADD COLUMN fanout TEXT",
        "ALTER TABLE outbox ADD COLUMN home TEXT",
        "UPDATE outbox SET accepted = time",
        "UPDATE inbox SET accepted = time",
        *_ADDED.split(";\n")[:-1],
        "INSERT INTO streams SELECT team, sender_key, to_key, 1, last FROM sequences",
        "DROP TABLE sequences",
    ],
    3: ["ALTER TABLE outbox ADD COLUMN session TEXT", "ALTER TABLE outbox ADD COLUMN said TEXT"],
    4: [
        "ALTER TABLE outbox ADD COLUMN owner TEXT",
        "ALTER TABLE inbox ADD COLUMN owner TEXT",
        _OWNERS,
        "ALTER TABLE inbox ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
        "UPDATE inbox SET size = length(CAST(body AS BLOB))",
    ],
    5: [
        _PRESENCES,
        "ALTER TABLE outbox ADD COLUMN sent_by TEXT",
        "ALTER TABLE outbox ADD COLUMN ask REAL",
        "UPDATE outbox SET attempts = 0, ask = 0 WHERE state = 'stored' AND to_key <> 'you' "
        "AND id NOT IN (SELECT id FROM inbox)",
    ],
}

SCHEMA = Schema(
    version=6,
    tables=[
        *(_TABLES + _ADDED).split(";\n")[:-1],
        _OWNERS,
        _PRESENCES,
        "INSERT INTO meta (origin) VALUES (lower(hex(randomblob(8))))",
    ],
    indexes=_INDEXES.split(";\n")[:-1],
    steps=_STEPS,
)
"""The ledger's tables. A new layout needs the next version, and a step that migrates to it."""


def explain(path: Path, error: Exception) -> LedgerError:
    """Return an error that says what `error` of the ledger at `path` means, and what to do."""
    if isinstance(error, WrongVersion):
        return LedgerError(f"{path} was written by another version of relay. Upgrade relay, or move it away.")
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
