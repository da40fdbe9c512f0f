"""The embedded backend: one SQLite file per home, searched with FTS5, shared by all its agents.

Every call is one transaction, so a process that is killed leaves only whole memories behind.
"""

from __future__ import annotations

import builtins
import json
import sqlite3
from pathlib import Path

from relay.dataclass import replace
from relay.errors import MemoryStoreError
from relay.home import make_directories
from relay.memory.backend import IdTaken, Memory, Scope
from relay.memory.tables import DAY, SCHEMA
from relay.memory.terms import terms
from relay.storage.files import make_private
from relay.storage.sqlite import Database, WrongVersion
from relay.storage.writer import Writer

HITS = 50
"""Number of the best matches whose scores are added up; more if more are asked for."""

LENDERS = 10
"""Number of the best matches that lend some of their score to their neighbours."""

TO_NEXT, TO_PREVIOUS = 0.6, 0.3
"""The part of its score that a match lends to the memory saved after it, and to the one saved before it."""

FIT_TERMS = 3
"""Number of query terms with which a match brings in its neighbours, even if they have no term."""

_FIELDS = "memory.id, memory.text, memory.agent, memory.team, memory.shared, memory.time, memory.metadata"
_SEEN = "memory.team_key = ?1 AND (memory.shared OR memory.agent_key = ?2)"


def _neighbour(side: str, order: str) -> str:
    """Return SQL for the number of the memory next to `hit`, of the same owner and equally visible.

    An agent that sees one of them sees the other.
    """
    return f"""(
        SELECT beside.number FROM memory AS own JOIN memory AS beside
        ON beside.team_key = own.team_key AND beside.agent_key = own.agent_key AND beside.shared = own.shared
        AND beside.number {side} own.number
        WHERE own.number = hit.number ORDER BY beside.number {order} LIMIT 1
    )"""


# ?1, ?2: the keys of the scope. ?3: any of the terms. ?4: all of them. ?5: each, as a JSON array.
# ?6: how many hits. ?7: the limit.
# hit: the best matches. lender: the best of these, and whether their neighbours need a term.
_SEARCH = f"""
    WITH hit AS MATERIALIZED (
        SELECT memory.number, -bm25(memory_text) AS score, memory.number IN (
            SELECT rowid FROM memory_text WHERE memory_text MATCH ?4
        ) AS complete
        FROM memory_text JOIN memory ON memory.number = memory_text.rowid
        WHERE memory_text MATCH ?3 AND {_SEEN}
        ORDER BY complete DESC, score DESC, memory.time DESC, memory.number DESC LIMIT ?6
    ),
    lender AS MATERIALIZED (
        SELECT score, {_neighbour(">", "ASC")} AS next, {_neighbour("<", "DESC")} AS previous, (
            SELECT count(*) FROM json_each(?5) AS term CROSS JOIN memory_text
            WHERE memory_text MATCH term.value AND memory_text.rowid = hit.number
        ) >= {FIT_TERMS} AS fits
        FROM hit ORDER BY complete DESC, score DESC LIMIT {LENDERS}
    ),
    total AS (
        SELECT number, sum(score) AS score, max(complete) AS complete FROM (
            SELECT number, score, complete, 1 AS found FROM hit
            UNION ALL SELECT next, {TO_NEXT} * score, 0, fits FROM lender
            UNION ALL SELECT previous, {TO_PREVIOUS} * score, 0, fits FROM lender
        ) GROUP BY number HAVING max(found)
    )
    SELECT {_FIELDS} FROM total JOIN memory ON memory.number = total.number WHERE {_SEEN}
    ORDER BY total.complete DESC, total.score DESC, memory.time DESC, memory.number DESC LIMIT ?7
"""


class EmbeddedBackend:
    """The memories in the file `path`; see `MemoryBackend`.

    Safe for several threads and several processes.  The first call opens the file.
    """

    def __init__(self, path: Path) -> None:
        # Reopen `path` if the file was moved away: memories must go where other processes look.
        self._writer = Writer(_MemoryDatabase, path, reopen=True)

    def add(self, memory: Memory) -> Memory:
        return self._writer.call(lambda db: _add(db, memory))

    def search(self, query: str, scope: Scope, limit: int) -> builtins.list[Memory]:
        """Return the memories with a term of `query` (see `terms`) in their text or day, best first.

        Memories with all terms come first.  The rest are ranked by bm25 and by their neighbours: equally
        visible memories that the same agent saved just before and after them.  The neighbours of a memory
        with `FIT_TERMS` terms are found even without a term.

        If no term finds anything, the query is searched for literally (an emoji, a piece of a word, a sign),
        in any case of ASCII letters.
        """
        found: builtins.list[Memory] = []
        if words := terms(query):
            found = self._select(
                _SEARCH,
                *scope.keys,
                " OR ".join(words),
                " AND ".join(words),
                json.dumps(words),
                max(HITS, limit),
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
        # The index memory_by_text finds the beginning; the + keeps SQLite from substituting ?3 for `text`.
        same = "substr(text, 1, 64) = substr(?3, 1, 64) AND +text = ?3"
        query = f"SELECT {_FIELDS} FROM memory WHERE {same} AND {_SEEN} ORDER BY shared DESC"
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
            "INSERT INTO memory (id, text, agent, team, shared, time, metadata, team_key, agent_key, day)"
            f" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, {DAY.format(time='?6')})",
            (*row, *who),
        )
        return memory


class _MemoryDatabase(Database):
    """The file of all memories of a home."""

    schema = SCHEMA
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
            "Make its directory writable, or set RELAY_HOME to a directory you own."
        )
    if isinstance(error, WrongVersion):
        return (
            f"{path} was written by another relay (layout {error.found}; this one knows {SCHEMA.version}). "
            "Update this relay, or move the file away."
        )
    if "no such module: fts5" in str(error):
        return (
            "this Python's SQLite lacks FTS5, which the memory store needs. Install relay with another "
            "Python, such as python.org's, your distribution's or uv's."
        )
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the primary code (sqlite.org/rescode)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            what = (
                f"is damaged ({error}). Move it away, with its -wal and -shm files "
                f"if there are any (mv {path} {path}.damaged), and relay creates a new one; `sqlite3 "
                f"{path}.damaged .recover` may rescue its content."
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            what = f"cannot be written ({error}); nothing was changed. Free some space and try again."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            what = (
                f"cannot be written ({error}). "
                "Make the file and its directory writable, or set RELAY_HOME to a directory you own."
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
