"""Stores of earlier relays are migrated in place, even by racing or killed processes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore

COUNT = 300

# Opens the store, and kills itself after the statement with this number, unless it is 0.
OPENER = """
import os, signal, sqlite3, sys
from pathlib import Path
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore

class Counting(sqlite3.Connection):
    statements = 0
    def execute(self, sql, *parameters):
        if sql.split()[0] in ("DROP", "ALTER", "UPDATE", "CREATE", "INSERT") or "user_version =" in sql:
            Counting.statements += 1
            if Counting.statements == int(sys.argv[2]):
                done = super().execute(sql, *parameters)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *parameters)

connect = sqlite3.connect
sqlite3.connect = lambda *args, **options: connect(*args, factory=Counting, **options)
store = MemoryStore(EmbeddedBackend(Path(sys.argv[1])), "home", "Alice")
assert len(store.list(None)) == 300
store.close()
print(Counting.statements)
"""


def make_old(path: Path, version: int) -> None:
    """Create a store as relay 0.1.0 did (1), or the next version (2), with COUNT memories of two agents."""
    metadata = ", metadata TEXT NOT NULL DEFAULT '{}'" if version == 2 else ""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"""
            CREATE TABLE memory (
                number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, agent TEXT NOT NULL,
                agent_key TEXT NOT NULL, team TEXT NOT NULL, team_key TEXT NOT NULL, shared INTEGER NOT NULL,
                time REAL NOT NULL{metadata}
            ) STRICT;
            CREATE INDEX memory_by_owner ON memory (team_key, agent_key);
            CREATE VIRTUAL TABLE memory_text USING fts5 (
                text, content = 'memory', content_rowid = 'number',
                tokenize = 'porter unicode61 remove_diacritics 2'
            );
            CREATE TRIGGER memory_added AFTER INSERT ON memory BEGIN
                INSERT INTO memory_text (rowid, text) VALUES (new.number, new.text);
            END;
            CREATE TRIGGER memory_removed AFTER DELETE ON memory BEGIN
                INSERT INTO memory_text (memory_text, rowid, text) VALUES ('delete', old.number, old.text);
            END;
            PRAGMA user_version = {version};
        """)
        db.executemany(
            "INSERT INTO memory (id, text, agent, agent_key, team, team_key, shared, time)"
            " VALUES (?, ?, 'Alice', 'alice', 'home', 'home', ?, ?)",
            [
                (f"k{number}", f"fact {number} word{number % 7}", number % 2, 1_772_600_000.0 + number)
                for number in range(COUNT)
            ],
        )
        db.commit()


def assert_up_to_date(path: Path) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    assert len(store.list(None)) == COUNT
    assert len(store.search("2026-03", COUNT)) == COUNT
    assert [each.id for each in store.search("fact 41 word6", 1)] == ["k41"]
    assert store.forget("k41")
    assert "k41" not in [each.id for each in store.search("fact 41 word6", COUNT)]
    new = store.save("quite another thing")
    assert store.search("another thing") == [new]
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.execute("INSERT INTO memory_text (memory_text, rank) VALUES ('integrity-check', 1)")


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_store_is_migrated(tmp_path: Path, version: int) -> None:
    make_old(tmp_path / "memory.db", version)
    assert_up_to_date(tmp_path / "memory.db")


def start_opener(path: Path, killed_at: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OPENER, str(path), str(killed_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_migration_killed_at_any_statement_is_repeated(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    make_old(whole, 1)
    with start_opener(whole, 0) as process:
        out, _ = process.communicate(timeout=60)
    statements = int(out)
    assert statements > 8
    for number in range(1, statements + 1, 3):
        path = tmp_path / f"{number}.db"
        make_old(path, 1)
        with start_opener(path, number) as process:
            process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (1,)
            assert db.execute(
                "SELECT count(*) FROM memory_text WHERE memory_text MATCH 'fact'"
            ).fetchone() == (COUNT,)
        assert_up_to_date(path)


def test_racing_processes_migrate_a_store_once(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    make_old(path, 1)
    processes = [start_opener(path, 0) for _ in range(8)]
    counts = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(bool(count) for count in counts) == [False] * 7 + [True]
    assert_up_to_date(path)
