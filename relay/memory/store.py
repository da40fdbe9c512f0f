"""The memory store: one SQLite file per home, searched with FTS5, shared by all its agents.

An agent sees its own memories and those that members of its team shared; whoever sees a memory may forget it.
Every call is one transaction, so that a process that is killed leaves whole memories behind and nothing else.
"""

from __future__ import annotations

import builtins
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relay import names
from relay.errors import MemoryStoreError
from relay.memory import ids
from relay.memory.query import match_expression
from relay.storage.files import make_private
from relay.storage.sqlite import Database, Schema, Writer, WrongVersion

MAX_TEXT = 64 * 1024
"""Bytes of UTF-8 in one memory; a larger one is refused, never cut."""

SHORTEST_PREFIX = 3
"""Characters of an id that `forget` accepts for the whole of it: a lone `2` means the second of a list."""

_SCHEMA = Schema(
    1,
    (
        """
        CREATE TABLE memory (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            text TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_key TEXT NOT NULL,
            team TEXT NOT NULL,
            team_key TEXT NOT NULL,
            shared INTEGER NOT NULL,
            time REAL NOT NULL
        ) STRICT
        """,
        "CREATE INDEX memory_by_owner ON memory (team_key, agent_key)",
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
    ),
)

_FIELDS = "memory.id, memory.text, memory.agent, memory.team, memory.shared, memory.time"
_SEEN = "memory.team_key = :team AND (memory.shared OR memory.agent_key = :agent)"


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing remembered. `agent` is who saved it; `time` is seconds since the epoch."""

    id: str
    text: str
    agent: str
    team: str
    shared: bool
    time: float


class MemoryStore:
    """The memories that `agent` of `team` sees, in the file `path`.

    Safe for several threads and several processes.  The file is opened with the first call.  Every method
    raises MemoryStoreError, with advice, where it cannot be used.
    """

    def __init__(self, path: Path, team: str, agent: str, *, clock: Callable[[], float] = time.time) -> None:
        self._team = team
        self._agent = agent
        self._who = {"team": names.key(team), "agent": names.key(agent)}
        self._clock = clock
        # A file that was moved away is opened anew: what is saved goes where others look.
        self._writer = Writer(_MemoryDatabase, path, reopen=True)

    def check(self) -> None:
        """Raise MemoryStoreError where the file cannot be used."""
        self._writer.call(lambda db: None)

    def save(self, text: str, *, shared: bool = False) -> Memory:
        """Remember `text`, for this agent or, when `shared`, for its whole team.

        A text that the agent already sees is not stored twice: the memory it sees is returned, its time
        unchanged; where that one is the agent's own and `shared` is asked for, it becomes the team's.
        """
        text = _storable(text)
        if not text:
            raise MemoryStoreError("there is nothing to remember: the text is empty. Say what to save.")
        if (size := len(text.encode())) > MAX_TEXT:
            raise MemoryStoreError(
                f"the text has {size:,} bytes, and a memory holds at most {MAX_TEXT:,}. "
                "Save what matters of it, or the path of a file that has the rest."
            )
        return self._writer.call(lambda db: self._save(db, text, shared))

    def _save(self, database: Database, text: str, shared: bool) -> Memory:
        with database.transaction() as db:
            query = f"SELECT {_FIELDS} FROM memory WHERE text = :text AND {_SEEN} ORDER BY shared DESC"
            if row := db.execute(query, {**self._who, "text": text}).fetchone():
                known = _memory(row)
                if shared and not known.shared:
                    db.execute("UPDATE memory SET shared = 1 WHERE id = ?", (known.id,))
                    known = replace(known, shared=True)
                return known
            id = ids.unused(lambda id: _exists(db, id))
            memory = Memory(id, text, self._agent, self._team, shared, self._clock())
            db.execute(
                "INSERT INTO memory (id, text, agent, agent_key, team, team_key, shared, time)"
                " VALUES (:id, :text, :name, :agent, :team_name, :team, :shared, :time)",
                {
                    **self._who,
                    "id": id,
                    "text": text,
                    "name": memory.agent,
                    "team_name": memory.team,
                    "shared": shared,
                    "time": memory.time,
                },
            )
            return memory

    def search(self, query: str, limit: int = 10) -> builtins.list[Memory]:
        """At most `limit` memories that hold a word of `query` or a form of one, best first (bm25, newest).

        Any text is a valid query. What no word finds (an emoji, a piece of a word, a sign) is looked for as
        it is written, letter case of ASCII aside. An empty query finds nothing.
        """
        query = _storable(query)
        if not query:
            return []
        values = {**self._who, "query": query, "limit": max(limit, 0)}
        found: builtins.list[Memory] = []
        if expression := match_expression(query):
            found = self._select(
                f"SELECT {_FIELDS} FROM memory_text JOIN memory ON memory.number = memory_text.rowid"
                f" WHERE memory_text MATCH :expression AND {_SEEN}"
                " ORDER BY bm25(memory_text), memory.time DESC, memory.number DESC LIMIT :limit",
                {**values, "expression": expression},
            )
        return found or self._select(
            f"SELECT {_FIELDS} FROM memory WHERE instr(lower(text), lower(:query)) AND {_SEEN}"
            " ORDER BY time DESC, number DESC LIMIT :limit",
            values,
        )

    def list(self, limit: int = 20) -> builtins.list[Memory]:
        """The newest memories, at most `limit`, newest first."""
        return self._select(
            f"SELECT {_FIELDS} FROM memory WHERE {_SEEN} ORDER BY time DESC, number DESC LIMIT :limit",
            {**self._who, "limit": max(limit, 0)},
        )

    def _select(self, query: str, values: dict[str, Any]) -> builtins.list[Memory]:
        def read(database: Database) -> builtins.list[Memory]:
            with database.reading() as db:
                return [_memory(row) for row in db.execute(query, values)]

        return self._writer.call(read)

    def forget(self, id: str) -> bool:
        """Delete the memory `id` (any case, or the beginning of one); False where the agent sees none such.

        MemoryStoreError where `id` begins the ids of several.
        """
        return self._writer.call(lambda db: self._forget(db, _storable(id).lower()))

    def _forget(self, database: Database, id: str) -> bool:
        with database.transaction() as db:
            found = db.execute(
                f"SELECT id FROM memory WHERE id = :id AND {_SEEN}", {**self._who, "id": id}
            ).fetchall()
            if not found and len(id) >= SHORTEST_PREFIX:
                found = db.execute(
                    f"SELECT id FROM memory WHERE substr(id, 1, :length) = :id AND {_SEEN} ORDER BY id",
                    {**self._who, "id": id, "length": len(id)},
                ).fetchall()
            if len(found) > 1:
                several = ", ".join(row[0] for row in found[:5]) + (", ..." if len(found) > 5 else "")
                raise MemoryStoreError(f"'{id}' begins several ids: {several}. Give the whole id.")
            if found:
                db.execute("DELETE FROM memory WHERE id = ?", found[0])
            return bool(found)

    def close(self) -> None:
        """Close the file. The store cannot be used after; closing twice does no harm."""
        self._writer.close()


class _MemoryDatabase(Database):
    """The file of all memories of a home."""

    schema = _SCHEMA
    busy_seconds = 10.0

    @staticmethod
    def make_file(path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(path)

    @staticmethod
    def explain(path: Path, error: Exception) -> MemoryStoreError:
        """Return what `error` means for the user, and what to do next."""
        return MemoryStoreError(_what_is_wrong(path, error))


def _what_is_wrong(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return (
            f"the memory store {path} cannot be opened: {error.strerror}. "
            "Make its directory writable, or set RELAY_HOME to a directory of yours."
        )
    if isinstance(error, WrongVersion):
        return (
            f"{path} was written by a newer relay (layout {error.found}; this one knows {_SCHEMA.version}). "
            "Update this relay."
        )
    if "no such module: fts5" in str(error):
        return (
            "the SQLite of this Python was built without FTS5, which the memory store needs. "
            "Install relay with another Python, such as python.org's, your distribution's or uv's."
        )
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the primary code (sqlite.org/rescode)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                f"the memory store {path} is damaged ({error}). Move it away, with its -wal and -shm files "
                f"if there are any (mv {path} {path}.damaged), and a new one is made; "
                f"`sqlite3 {path}.damaged .recover` may save what it held."
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return (
                f"the memory store {path} cannot be written ({error}); nothing was changed. "
                "Make room on its disk and try again."
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return (
                f"the memory store {path} cannot be written ({error}). "
                "Make the file and its directory writable, or set RELAY_HOME to a directory of yours."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"the memory store {path} was locked by another process for "
                f"{_MemoryDatabase.busy_seconds:.0f} seconds. Try again; `fuser {path}` names the process."
            )
        case _:
            return f"the memory store {path} cannot be used ({error})."


def _storable(text: str) -> str:
    """`text` as UTF-8 can hold it, without white space around it."""
    return text.encode("utf-8", "replace").decode("utf-8").strip()


def _exists(connection: sqlite3.Connection, id: str) -> bool:
    return connection.execute("SELECT 1 FROM memory WHERE id = ?", (id,)).fetchone() is not None


def _memory(row: tuple[str, str, str, str, int, float]) -> Memory:
    id, text, agent, team, shared, when = row
    return Memory(id, text, agent, team, bool(shared), when)
