"""The memory store: one SQLite file per home, searched with FTS5, shared by all its agents.

An agent sees its own memories and those that members of its team shared, and may forget all that it sees.
Every call is one transaction, so that a process that is killed leaves only whole memories behind.
"""

from __future__ import annotations

import builtins
import itertools
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from relay import names
from relay.errors import MemoryStoreError
from relay.home import make_directories
from relay.storage.files import make_private
from relay.storage.sqlite import Database, Schema, Writer, WrongVersion

MAX_TEXT = 64 * 1024
"""Bytes of UTF-8 in one memory; a larger one is refused, never cut."""

SHORTEST_PREFIX = 3
"""Characters of an id that `forget` accepts as its beginning: a lone `2` means the second of a list."""

# No vowels, so that no id is a word; no 0, 1 or l, which are taken for o, i and one another.
_ALPHABET = "23456789bcdfghjkmnpqrstvwxyz"
_SHORTEST_ID = 4  # characters; 28**4 is some 600,000 ids
_TRIES = 4  # at one length; if all are taken the store is crowded, and the next length is tried

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
_SEEN = "memory.team_key = ?1 AND (memory.shared OR memory.agent_key = ?2)"


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
    raises MemoryStoreError, with advice, if it cannot be used.
    """

    def __init__(self, path: Path, team: str, agent: str, *, clock: Callable[[], float] = time.time) -> None:
        self._team = team
        self._agent = agent
        self._who = (names.key(team), names.key(agent))
        self._clock = clock
        # A file that was moved away is opened anew: what is saved goes where others look.
        self._writer = Writer(_MemoryDatabase, path, reopen=True)

    def check(self) -> None:
        """Raise MemoryStoreError if the file cannot be used."""
        self._writer.call(lambda db: None)

    def save(self, text: str, *, shared: bool = False) -> Memory:
        """Remember `text`, for this agent or, if `shared`, for its whole team; return the memory.

        A text that the agent already sees is not stored twice: that memory is returned, its time unchanged;
        if it is the agent's own and `shared` is given, it becomes the team's.
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
            query = f"SELECT {_FIELDS} FROM memory WHERE text = ?3 AND {_SEEN} ORDER BY shared DESC"
            if row := db.execute(query, (*self._who, text)).fetchone():
                known = _memory(row)
                if shared and not known.shared:
                    db.execute("UPDATE memory SET shared = 1 WHERE id = ?", (known.id,))
                    known = replace(known, shared=True)
                return known
            taken = "SELECT 1 FROM memory WHERE id = ?"
            id = unused_id(lambda id: db.execute(taken, (id,)).fetchone() is not None)
            memory = Memory(id, text, self._agent, self._team, shared, self._clock())
            db.execute(
                "INSERT INTO memory (id, text, agent, team, shared, time, team_key, agent_key)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*astuple(memory), *self._who),
            )
            return memory

    def search(self, query: str, limit: int = 10) -> builtins.list[Memory]:
        """Return at most `limit` memories with a word of `query` or a form of one, best first (bm25, newest).

        Any text is a valid query. If no word finds anything, the query is searched as it is written (an
        emoji, a piece of a word, a sign), in any case of ASCII letters. An empty query finds nothing.
        """
        query = _storable(query)
        if not query:
            return []
        found: builtins.list[Memory] = []
        if expression := _match(query):
            found = self._select(
                f"SELECT {_FIELDS} FROM memory_text JOIN memory ON memory.number = memory_text.rowid"
                f" WHERE memory_text MATCH ?3 AND {_SEEN}"
                " ORDER BY bm25(memory_text), memory.time DESC, memory.number DESC LIMIT ?4",
                expression,
                max(limit, 0),
            )
        return found or self._select(
            f"SELECT {_FIELDS} FROM memory WHERE instr(lower(text), lower(?3)) AND {_SEEN}"
            " ORDER BY time DESC, number DESC LIMIT ?4",
            query,
            max(limit, 0),
        )

    def list(self, limit: int = 20) -> builtins.list[Memory]:
        """Return the newest memories, at most `limit`, newest first."""
        newest = f"SELECT {_FIELDS} FROM memory WHERE {_SEEN} ORDER BY time DESC, number DESC LIMIT ?3"
        return self._select(newest, max(limit, 0))

    def _select(self, query: str, *values: object) -> builtins.list[Memory]:
        return [_memory(row) for row in self._writer.call(lambda db: db.rows(query, *self._who, *values))]

    def forget(self, id: str) -> bool:
        """Delete the memory `id` (in any case, or its beginning); return False if the agent sees none such.

        Raise MemoryStoreError if several ids begin so.
        """
        return self._writer.call(lambda db: self._forget(db, _storable(id).lower()))

    def _forget(self, database: Database, id: str) -> bool:
        with database.transaction() as db:
            found = database.rows(f"SELECT id FROM memory WHERE id = ?3 AND {_SEEN}", *self._who, id)
            if not found and len(id) >= SHORTEST_PREFIX:
                begins = f"SELECT id FROM memory WHERE substr(id, 1, ?4) = ?3 AND {_SEEN} ORDER BY id"
                found = database.rows(begins, *self._who, id, len(id))
            if len(found) > 1:
                several = ", ".join(row[0] for row in found[:5]) + (", ..." if len(found) > 5 else "")
                raise MemoryStoreError(f"'{id}' begins several ids: {several}. Give the whole id.")
            if found:
                db.execute("DELETE FROM memory WHERE id = ?", found[0])
            return bool(found)

    def close(self) -> None:
        """Close the file. Later calls raise; closing twice does no harm."""
        self._writer.close()


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


def _storable(text: str) -> str:
    """Return `text` as UTF-8 can hold it, without white space around it."""
    return text.encode("utf-8", "replace").decode("utf-8").strip()


def _memory(row: tuple[str, str, str, str, int, float]) -> Memory:
    id, text, agent, team, shared, when = row
    return Memory(id, text, agent, team, bool(shared), when)


def unused_id(taken: Callable[[str], bool]) -> str:
    """Return an id that is not `taken`: short enough to type, with no two characters that look alike."""
    lengths = (length for length in itertools.count(_SHORTEST_ID) for _ in range(_TRIES))
    ids = ("".join(secrets.choice(_ALPHABET) for _ in range(length)) for length in lengths)
    return next(id for id in ids if not taken(id))


def _match(text: str) -> str | None:
    """Return the argument of MATCH for any text, None if it has no word.

    FTS5's own syntax (quotes, NEAR, *, ^, column filters; sqlite.org/fts5.html section 3) is never exposed:
    the words are taken out, quoted, and joined with OR.  Stop words count only if there is nothing else.
    """
    words = list(dict.fromkeys(_WORD.findall(text.lower())))
    words = [word for word in words if word not in _STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in words[:MAX_TERMS]) or None
