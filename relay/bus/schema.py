"""The ledger's tables, and what SQLite's errors about its file mean for a person."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from relay.errors import LedgerError

VERSION = 3
"""PRAGMA user_version of a ledger with these tables."""

_TABLES = """
CREATE TABLE meta (origin TEXT NOT NULL);
CREATE TABLE registry (
    team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL, seen REAL NOT NULL,
    PRIMARY KEY (team, key)) WITHOUT ROWID;
CREATE TABLE sequences (
    team TEXT NOT NULL, sender_key TEXT NOT NULL, to_key TEXT NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (team, sender_key, to_key)) WITHOUT ROWID;
CREATE TABLE outbox (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    body TEXT NOT NULL, time REAL NOT NULL, thread TEXT, sequence INTEGER NOT NULL,
    state TEXT NOT NULL, detail TEXT,
    told TEXT,                         -- the last state that the sender heard of
    attempts INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0, -- dropped after it was settled: kept for its id only
    due REAL,                          -- when to publish (again); NULL: when the receiver appears
    route TEXT, role TEXT              -- how it reached its receiver, and as whose words
);
CREATE INDEX outbox_pending ON outbox (team, sender_key, to_key, sequence)
    WHERE state IN ('queued', 'sent');
CREATE INDEX outbox_untold ON outbox (team, sender_key) WHERE told IS NOT state;
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, team TEXT NOT NULL,
    sender TEXT NOT NULL, sender_key TEXT NOT NULL, recipient TEXT NOT NULL, to_key TEXT NOT NULL,
    body TEXT NOT NULL, time REAL NOT NULL, thread TEXT, origin TEXT NOT NULL, sequence INTEGER NOT NULL,
    state TEXT NOT NULL, detail TEXT,
    receipted TEXT,                    -- the last state whose receipt the broker took
    injecting INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0,
    place INTEGER,                     -- its turn among all that came; NULL: something before it is missing
    route TEXT, role TEXT,             -- how it reached the agent, and as whose words
    UNIQUE (team, to_key, sender_key, id));
CREATE INDEX inbox_waiting ON inbox (team, to_key, place) WHERE state = 'stored';
CREATE INDEX inbox_unreceipted ON inbox (team, to_key) WHERE receipted IS NOT state;
CREATE INDEX inbox_sequence ON inbox (team, to_key, sender_key, origin, sequence);
CREATE TABLE pairs (
    team TEXT NOT NULL, to_key TEXT NOT NULL, sender_key TEXT NOT NULL, origin TEXT NOT NULL,
    next INTEGER NOT NULL,             -- every sequence below it has been released or will never come
    PRIMARY KEY (team, to_key, sender_key, origin)) WITHOUT ROWID;
"""

_MEMBERS = """CREATE TABLE members (
    team TEXT NOT NULL, name_key TEXT NOT NULL, name TEXT NOT NULL,
    channel_key TEXT NOT NULL, channel TEXT NOT NULL, since REAL NOT NULL,
    PRIMARY KEY (team, name_key, channel_key)) WITHOUT ROWID
"""

_STEPS = {
    1: [
        f"ALTER TABLE {table} ADD COLUMN {column} TEXT"
        for table in ("outbox", "inbox")
        for column in ("route", "role")
    ],
    2: [_MEMBERS],
}
"""What makes tables of one version those of the next."""


def version(db: sqlite3.Connection) -> int:
    """The version of the tables in `db`; 0: there are none."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    return int(found)


def create(db: sqlite3.Connection) -> None:
    """Make the tables, within the caller's transaction."""
    for statement in [*_TABLES.split(";\n"), _MEMBERS]:
        db.execute(statement)
    db.execute("INSERT INTO meta VALUES (?)", (secrets.token_hex(8),))
    db.execute(f"PRAGMA user_version = {VERSION}")


def migrate(db: sqlite3.Connection) -> None:
    """Bring older tables to VERSION, within the caller's transaction; what they hold stays."""
    for step in range(version(db), VERSION):
        for change in _STEPS[step]:
            db.execute(change)
        db.execute(f"PRAGMA user_version = {step + 1}")


def explain(path: Path, error: sqlite3.Error) -> LedgerError:
    """What went wrong with the ledger at `path`, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    advice = {
        sqlite3.SQLITE_FULL: "the disk is full. Make room; nothing that was accepted is lost.",
        sqlite3.SQLITE_IOERR: "the disk fails or is full. Make room, or check it.",
        sqlite3.SQLITE_BUSY: "another process keeps it locked. Try again; `fuser` on the file shows who.",
        sqlite3.SQLITE_READONLY: "it is read-only. Make it writable, or set RELAY_HOME to another directory.",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Make its directory writable, or set RELAY_HOME.",
        sqlite3.SQLITE_CORRUPT: "it is damaged. Move it away; relay then begins a new one.",
        sqlite3.SQLITE_NOTADB: "it is not a ledger. Move it away; relay then begins a new one.",
    }.get(code, f"{error}.")
    return LedgerError(f"the message ledger {path}: {advice}")
