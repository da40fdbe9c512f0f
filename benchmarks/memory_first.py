"""The memory store of relay 0.1.0, to compare with today's: its tables, search and insertion."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from relay import names
from relay.errors import MemoryStoreError
from relay.memory.backend import Memory, Scope
from relay.storage.sqlite import Database, Schema
from relay.storage.writer import Writer

_SCHEMA = Schema(
    1,
    (
        """
        CREATE TABLE memory (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, agent TEXT NOT NULL,
            agent_key TEXT NOT NULL, team TEXT NOT NULL, team_key TEXT NOT NULL, shared INTEGER NOT NULL,
            time REAL NOT NULL
        ) STRICT
        """,
        """
        CREATE VIRTUAL TABLE memory_text USING fts5 (
            text, content = 'memory', content_rowid = 'number',
            tokenize = 'porter unicode61 remove_diacritics 2'
        )
        """,
        """
        CREATE TRIGGER memory_added AFTER INSERT ON memory BEGIN
            INSERT INTO memory_text (rowid, text) VALUES (new.number, new.text);
        END
        """,
        """
        CREATE TRIGGER memory_removed AFTER DELETE ON memory BEGIN
            INSERT INTO memory_text (memory_text, rowid, text) VALUES ('delete', old.number, old.text);
        END
        """,
        "CREATE INDEX memory_by_owner ON memory (team_key, agent_key)",
    ),
)
_SEEN = "memory.team_key = ?1 AND (memory.shared OR memory.agent_key = ?2)"
_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = """
    a about all also am an and any are as at be because been but by can could d did do does for from had has
    have he her him his how i if in into is it its just ll m me my no not of on or our out re s she should so
    some t than that the their them then there these they this those to too up us ve was we were what when
    where which while who why will with would you your
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())


class FirstStore:
    """The file at `path`, created if missing. Calls run on a separate thread, as today's do."""

    def __init__(self, path: Path) -> None:
        self._writer = Writer(_FirstDatabase, path)

    def fill(self, notes: Iterable[Memory]) -> None:
        """Add `notes`, all of them new, in one transaction."""

        def fill(database: Database) -> None:
            with database.transaction() as db:
                for note in notes:
                    _insert(db, note)

        self._writer.call(fill)

    def add(self, note: Memory) -> None:
        """Add `note`, unless its agent already sees its text."""

        def add(database: Database) -> None:
            with database.transaction() as db:
                known = f"SELECT 1 FROM memory WHERE text = ?3 AND {_SEEN} ORDER BY shared DESC"
                if not db.execute(known, (*Scope(note.agent, note.team).keys, note.text)).fetchone():
                    _insert(db, note)

        self._writer.call(add)

    def search(self, query: str, scope: Scope, limit: int) -> list[str]:
        """Return the ids of the best matches."""
        words = list(dict.fromkeys(_WORD.findall(query.lower())))
        words = [word for word in words if word not in _STOP_WORDS] or words
        found = (
            "SELECT memory.id, memory.text FROM memory_text JOIN memory ON memory.number = memory_text.rowid"
            f" WHERE memory_text MATCH ?3 AND {_SEEN}"
            " ORDER BY bm25(memory_text), memory.time DESC, memory.number DESC LIMIT ?4"
        )
        expression = " OR ".join(f'"{word}"' for word in words)
        return [id for id, _ in self._writer.call(lambda db: db.rows(found, *scope.keys, expression, limit))]

    def close(self) -> None:
        self._writer.close()


class _FirstDatabase(Database):
    schema = _SCHEMA
    busy_seconds = 10.0

    @staticmethod
    def explain(path: Path, error: Exception) -> MemoryStoreError:
        return MemoryStoreError(f"{path}: {error}")


def _insert(db: sqlite3.Connection, note: Memory) -> None:
    agent, team = names.key(note.agent), names.key(note.team)
    db.execute(
        "INSERT INTO memory (id, text, agent, agent_key, team, team_key, shared, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (note.id, note.text, note.agent, agent, note.team, team, note.shared, note.time),
    )
