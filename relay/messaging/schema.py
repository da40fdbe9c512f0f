"""The ledger's tables, and advice for SQLite's errors about its file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from relay.errors import LedgerAway, LedgerError
from relay.storage.sqlite import Schema, WrongVersion

_TABLES = """CREATE TABLE meta (origin TEXT NOT NULL,
    boot TEXT NOT NULL DEFAULT '', offset REAL NOT NULL DEFAULT 0, latest REAL NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0    -- no lower than the turn of any message that was deleted
);
CREATE TABLE registry (
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
    seen REAL NOT NULL,                -- when the row was written; not read
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
    version=8,
    tables=[
        *(_TABLES + _ADDED).split(";\n")[:-1],
        _OWNERS,
        _PRESENCES,
        "INSERT INTO meta (origin) VALUES (lower(hex(randomblob(8))))",
    ],
    indexes=_INDEXES.split(";\n")[:-1],
)
"""The ledger's tables. A new layout needs the next version."""


class LedgerOutdated(LedgerError):
    """The ledger has the layout of an earlier relay."""


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
