"""The memory store: one SQLite file per home, searched with FTS5, shared by all its agents.

An agent sees its own memories and those that members of its team shared; whoever sees a memory may forget it.
Every call is one transaction, so that a process that is killed leaves whole memories behind and nothing else.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from relay import names
from relay.errors import MemoryStoreError
from relay.memory import ids
from relay.memory.query import match_expression

MAX_TEXT = 64 * 1024
"""Bytes of UTF-8 in one memory; a larger one is refused, never cut."""

SHORTEST_PREFIX = 3
"""Characters of an id that `forget` accepts for the whole of it: a lone `2` means the second of a list."""

_BUSY = 10.0  # seconds that a call waits for the other processes' transactions

# `user_version` of the file. A later layout gets the next number and a step that leads there.
_VERSION = 1
_SCHEMA = (
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
        text, content = 'memory', content_rowid = 'number', tokenize = 'porter unicode61 remove_diacritics 2'
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
    f"PRAGMA user_version = {_VERSION}",
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

    Safe for several threads and several processes. Every method raises MemoryStoreError, with advice, where
    the file cannot be used.
    """

    def __init__(self, path: Path, team: str, agent: str, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._team = team
        self._agent = agent
        self._who = {"team": names.key(team), "agent": names.key(agent)}
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        with _explained(path):
            self._connection = _open(path)
            self._file = _identity(path)

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
        with self._writing() as connection:
            query = f"SELECT {_FIELDS} FROM memory WHERE text = :text AND {_SEEN} ORDER BY shared DESC"
            if row := connection.execute(query, {**self._who, "text": text}).fetchone():
                known = _memory(row)
                if shared and not known.shared:
                    connection.execute("UPDATE memory SET shared = 1 WHERE id = ?", (known.id,))
                    known = replace(known, shared=True)
                return known
            id = ids.unused(lambda id: _exists(connection, id))
            memory = Memory(id, text, self._agent, self._team, shared, self._clock())
            connection.execute(
                "INSERT INTO memory (id, text, agent, agent_key, team, team_key, shared, time)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    id,
                    text,
                    memory.agent,
                    self._who["agent"],
                    memory.team,
                    self._who["team"],
                    shared,
                    memory.time,
                ),
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
        with self._reading() as connection:
            rows = []
            if expression := match_expression(query):
                rows = connection.execute(
                    f"SELECT {_FIELDS} FROM memory_text JOIN memory ON memory.number = memory_text.rowid"
                    f" WHERE memory_text MATCH :expression AND {_SEEN}"
                    " ORDER BY bm25(memory_text), memory.time DESC, memory.number DESC LIMIT :limit",
                    {**self._who, "expression": expression, "limit": max(limit, 0)},
                ).fetchall()
            if not rows:
                rows = connection.execute(
                    f"SELECT {_FIELDS} FROM memory WHERE instr(lower(text), lower(:query)) AND {_SEEN}"
                    " ORDER BY time DESC, number DESC LIMIT :limit",
                    {**self._who, "query": query, "limit": max(limit, 0)},
                ).fetchall()
            return [_memory(row) for row in rows]

    def list(self, limit: int = 20) -> builtins.list[Memory]:
        """The newest memories, at most `limit`, newest first."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_FIELDS} FROM memory WHERE {_SEEN} ORDER BY time DESC, number DESC LIMIT :limit",
                {**self._who, "limit": max(limit, 0)},
            )
            return [_memory(row) for row in rows]

    def forget(self, id: str) -> bool:
        """Delete the memory `id` (any case, or the beginning of one); False where the agent sees none such.

        MemoryStoreError where `id` begins the ids of several.
        """
        id = _storable(id).lower()
        with self._writing() as connection:
            found = connection.execute(
                f"SELECT id FROM memory WHERE id = :id AND {_SEEN}", {**self._who, "id": id}
            ).fetchall()
            if not found and len(id) >= SHORTEST_PREFIX:
                found = connection.execute(
                    f"SELECT id FROM memory WHERE substr(id, 1, :length) = :id AND {_SEEN} ORDER BY id",
                    {**self._who, "id": id, "length": len(id)},
                ).fetchall()
            if len(found) > 1:
                several = ", ".join(row[0] for row in found[:5]) + (", ..." if len(found) > 5 else "")
                raise MemoryStoreError(f"'{id}' begins several ids: {several}. Give the whole id.")
            if found:
                connection.execute("DELETE FROM memory WHERE id = ?", found[0])
            return bool(found)

    def close(self) -> None:
        """Close the file. The store cannot be used after; closing twice does no harm."""
        with self._lock:
            self._closed = True
            self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained(self._path):
            if not self._closed and _identity(self._path) != self._file:
                # Somebody moved the file away or replaced it: what is saved goes where others look.
                self._connection.close()
                self._connection = _open(self._path)
                self._file = _identity(self._path)
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection, _transaction(connection):
            yield connection


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    )  # SQLite itself would take the umask's
    # Python's own lock around each call (self._lock) is what makes one connection safe for several threads.
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        _use_wal(connection)
        version = _version(connection)
        if version > _VERSION:
            raise MemoryStoreError(
                f"{path} was written by a newer relay (layout {version}; this one knows {_VERSION}). "
                "Update this relay."
            )
        if version == 0:  # else nothing is written: a session that starts waits for no other process's save
            _create(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    """The layout of the file; 0 where it is new."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _create(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        if _version(connection) == 0:  # else another process was first
            for statement in _SCHEMA:
                connection.execute(statement)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _use_wal(connection: sqlite3.Connection) -> None:
    """Write ahead, so that readers and the writer do not wait for each other (sqlite.org/wal.html)."""
    deadline = time.monotonic() + _BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # The one lock for which SQLite does not wait: another process makes the same switch.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # IMMEDIATE: the wait for other writers is here, where nothing has been read that could be out of date.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite or the system says into MemoryStoreError with what to do next."""
    try:
        yield
    except OSError as error:
        raise MemoryStoreError(
            f"the memory store {path} cannot be opened: {error.strerror}. "
            "Make its directory writable, or set RELAY_HOME to a directory of yours."
        ) from error
    except sqlite3.Error as error:
        raise MemoryStoreError(_what_is_wrong(path, error)) from error


def _what_is_wrong(path: Path, error: sqlite3.Error) -> str:
    if "no such module: fts5" in str(error):
        return (
            "the SQLite of this Python was built without FTS5, which the memory store needs. "
            "Install relay with another Python, such as python.org's, your distribution's or uv's."
        )
    match (
        getattr(error, "sqlite_errorcode", 0) & 0xFF
    ):  # the low byte is the primary code (sqlite.org/rescode)
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
                f"the memory store {path} was locked by another process for {_BUSY:.0f} seconds. "
                f"Try again; `fuser {path}` names the process."
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
