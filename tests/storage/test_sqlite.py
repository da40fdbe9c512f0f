"""The SQLite module: transactions, files, versions, and what never runs on an event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relay.storage.sqlite import Schema, WrongVersion
from storage.notes import Notes, NotesError

TESTS = Path(__file__).parent.parent


def test_a_nested_transaction_is_part_of_the_outer_one(path: Path) -> None:
    notes = Notes(path)
    with notes.transaction():
        notes.add("kept")
        with notes.transaction():
            notes.add("kept, too")
    with pytest.raises(ValueError, match="no"), notes.transaction():
        notes.add("gone")
        with notes.transaction():
            notes.add("gone, too")
            raise ValueError("no")
    assert notes.all() == ["kept", "kept, too"]
    notes.close()


def test_a_transaction_with_a_failed_part_is_not_committed(path: Path) -> None:
    notes = Notes(path)
    with pytest.raises(RuntimeError, match="a part of this transaction has failed"), notes.transaction():
        notes.add("gone")
        with suppress(ValueError), notes.transaction():
            raise ValueError("caught")
    notes.add("kept")
    assert notes.all() == ["kept"]
    notes.close()


def test_all_files_of_a_database_are_private(path: Path) -> None:
    notes = Notes(path)
    notes.add("a secret")
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert len(list(path.parent.iterdir())) == 3  # with the log and its index
    notes.close()


def test_a_second_connection_of_a_process_keeps_the_locks_of_the_first(path: Path) -> None:
    """Otherwise another process that closes the file acts as the last, and removes the writes of both."""
    other = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT * FROM note').connection.close()"
    with Notes(path) as first, Notes(path) as second:
        first.add("before")
        subprocess.run([sys.executable, "-c", other], check=True)
        assert path.with_name(f"{path.name}-wal").exists()
        second.add("after")
    with Notes(path) as later:
        assert later.all() == ["before", "after"]


def test_tables_of_another_version_are_rejected(path: Path) -> None:
    class Dated(Notes):
        schema = Schema(2, ["CREATE TABLE note (text TEXT NOT NULL, time REAL)"])

    Notes(path).close()
    with pytest.raises(NotesError, match="tables of version 1"):
        Dated(path)


def test_errors_are_explained_by_the_database_class(path: Path) -> None:
    notes = Notes(path)
    with (
        pytest.raises(NotesError, match=r"notes.db: no such table: absent\. Fix it"),
        notes.transaction() as db,
    ):
        db.execute("SELECT * FROM absent")
    with pytest.raises(NotesError, match="no such table"), notes.reading() as db:
        db.execute("SELECT * FROM absent")
    notes.close()
    assert issubclass(WrongVersion, Exception)


def test_the_switch_to_wal_waits_for_a_concurrent_switch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself does not wait for it."""
    tries: list[str] = []

    class Busy(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if "journal_mode" in sql:
                tries.append(sql)
                if len(tries) < 3:
                    error = sqlite3.OperationalError("database is locked")
                    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                    raise error
            return super().execute(sql, *parameters)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Busy, **named))
    Notes(path).close()
    assert len(tries) == 3


def test_no_statement_runs_on_the_thread_of_an_event_loop(path: Path) -> None:
    notes = Notes(path)

    async def scenario() -> None:
        for use in (lambda: Notes(path), lambda: notes.add("x"), notes.all, notes.data_version):
            with pytest.raises(RuntimeError, match=r"await Writer\.run"):
                use()

    asyncio.run(scenario())
    assert notes.all() == []
    notes.close()
