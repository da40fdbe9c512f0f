"""The embedded backend: one SQLite file per home, searched with FTS5, shared by all its agents.

Every call is one transaction, so that a process that is killed leaves only whole memories behind.
"""

from __future__ import annotations

import builtins
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

from relay.errors import MemoryStoreError
from relay.home import make_directories
from relay.memory.backend import IdTaken, Memory, Scope
from relay.storage.files import make_private
from relay.storage.sqlite import Database, Schema, Writer, WrongVersion

MAX_TERMS = 100
"""Distinct words of a query that count; more, of a pasted page, would add time and no meaning."""

# The same runs that FTS5's unicode61 tokenizer sees: letters and digits, without the underscore.
_WORD = re.compile(r"[^\W_]+")

# English function words, which are in every memory.
_FUNCTION_WORDS = """
    a about all also am an and any are as at be because been but by can could d did do does for from had has
    have he her him his how i if in into is it its just ll m me my no not of on or our out re s she should so
    some t than that the their them then there these they this those to too up us ve was we were what when
    where which while who why will with would you your
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())

_SCHEMA = Schema(
    2,
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
            time REAL NOT NULL,
            metadata TEXT NOT NULL DEFAULT '{}'
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
    ),
    ("CREATE INDEX memory_by_owner ON memory (team_key, agent_key)",),
    {1: ("ALTER TABLE memory ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'",)},
)

_FIELDS = "memory.id, memory.text, memory.agent, memory.team, memory.shared, memory.time, memory.metadata"
_SEEN = "memory.team_key = ?1 AND (memory.shared OR memory.agent_key = ?2)"


class EmbeddedBackend:
    """The memories in the file `path`; see `MemoryBackend`.

    Safe for several threads and several processes.  The file is opened with the first call.
    """

    def __init__(self, path: Path) -> None:
        # A file that was moved away is opened anew: what is saved goes where others look.
        self._writer = Writer(_MemoryDatabase, path, reopen=True)

    def add(self, memory: Memory) -> Memory:
        return self._writer.call(lambda db: _add(db, memory))

    def search(self, query: str, scope: Scope, limit: int) -> builtins.list[Memory]:
        """Return the memories with a word of `query` or a form of one, best first (bm25, newest).

        If no word finds anything, the query is searched as it is written (an emoji, a piece of a word, a
        sign), in any case of ASCII letters.
        """
        found: builtins.list[Memory] = []
        if expression := _match(query):
            found = self._select(
                f"SELECT {_FIELDS} FROM memory_text JOIN memory ON memory.number = memory_text.rowid"
                f" WHERE memory_text MATCH ?3 AND {_SEEN}"
                " ORDER BY bm25(memory_text), memory.time DESC, memory.number DESC LIMIT ?4",
                *scope.keys,
                expression,
                limit,
            )
        return found or self._select(
            f"SELECT {_FIELDS} FROM memory WHERE instr(lower(text), lower(?3)) AND {_SEEN}"
            " ORDER BY time DESC, number DESC LIMIT ?4",
            *scope.keys,
            query,
            limit,
        )

    def list(self, scope: Scope, limit: int | None) -> builtins.list[Memory]:
        newest = f"SELECT {_FIELDS} FROM memory WHERE {_SEEN} ORDER BY time DESC, number DESC LIMIT ?3"
        return self._select(newest, *scope.keys, -1 if limit is None else limit)

    def everything(self) -> builtins.list[Memory]:
        return self._select(f"SELECT {_FIELDS} FROM memory ORDER BY time, number")

    def _select(self, query: str, *values: object) -> builtins.list[Memory]:
        return [_memory(row) for row in self._writer.call(lambda db: db.rows(query, *values))]

    def delete(self, id: str, scope: Scope) -> bool:
        mine = f"DELETE FROM memory WHERE id = ?3 AND {_SEEN}"
        return self._writer.call(lambda db: db.write(mine, *scope.keys, id)) > 0

    def close(self) -> None:
        """Close the file. Later calls raise; closing twice does no harm."""
        self._writer.close()


def _add(database: Database, memory: Memory) -> Memory:
    who = Scope(memory.agent, memory.team).keys
    with database.transaction() as db:
        query = f"SELECT {_FIELDS} FROM memory WHERE text = ?3 AND {_SEEN} ORDER BY shared DESC"
        if row := db.execute(query, (*who, memory.text)).fetchone():
            known = _memory(row)
            if memory.shared and not known.shared:
                db.execute("UPDATE memory SET shared = 1 WHERE id = ?", (known.id,))
                known = replace(known, shared=True)
            return known
        if db.execute("SELECT 1 FROM memory WHERE id = ?", (memory.id,)).fetchone():
            raise IdTaken(f"there is another memory {memory.id}.")
        metadata = json.dumps(dict(memory.metadata))
        row = (memory.id, memory.text, memory.agent, memory.team, memory.shared, memory.time, metadata)
        db.execute(
            "INSERT INTO memory (id, text, agent, team, shared, time, metadata, team_key, agent_key)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, *who),
        )
        return memory


class _MemoryDatabase(Database):
    """The file of all memories of a home."""

    schema = _SCHEMA
    busy_seconds = 10.0

    @staticmethod
    def make_file(path: Path) -> None:
        make_directories(path.parent)
        make_private(path)

    @staticmethod
    def explain(path: Path, error: Exception) -> MemoryStoreError:
        return MemoryStoreError(_what_is_wrong(path, error))


def _what_is_wrong(path: Path, error: Exception) -> str:
    """Return what `error` means for the user, and what to do next."""
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
            what = (
                f"is damaged ({error}). Move it away, with its -wal and -shm files "
                f"if there are any (mv {path} {path}.damaged), and a new one is made; "
                f"`sqlite3 {path}.damaged .recover` may save what it held."
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            what = f"cannot be written ({error}); nothing was changed. Make room on its disk and try again."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            what = (
                f"cannot be written ({error}). "
                "Make the file and its directory writable, or set RELAY_HOME to a directory of yours."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            what = (
                f"was locked by another process for {_MemoryDatabase.busy_seconds:.0f} seconds. "
                f"Try again; `fuser {path}` names the process."
            )
        case _:
            what = f"cannot be used ({error})."
    return f"the memory store {path} {what}"


def _memory(row: tuple[str, str, str, str, int, float, str]) -> Memory:
    id, text, agent, team, shared, when, metadata = row
    return Memory(id, text, agent, team, bool(shared), when, json.loads(metadata))


def _match(text: str) -> str | None:
    """Return the argument of MATCH for any text, None if it has no word.

    FTS5's own syntax (quotes, NEAR, *, ^, column filters; sqlite.org/fts5.html section 3) is never exposed:
    the words are taken out, quoted, and joined with OR.  Stop words count only if there is nothing else.
    """
    words = list(dict.fromkeys(_WORD.findall(text.lower())))
    words = [word for word in words if word not in _STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in words[:MAX_TERMS]) or None
