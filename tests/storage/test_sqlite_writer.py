"""The thread that owns a database: what is committed together, and what its callers wait for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgers import Counting, locked
from relay.storage import sqlite
from relay.storage.sqlite import Writer
from storage.notes import Notes, Trouble

TESTS = Path(__file__).parent.parent


def gate(writer: Writer[Notes]) -> threading.Event:
    """Keep the thread busy until the event is set, so jobs queue up behind it."""
    begun, opened = threading.Event(), threading.Event()

    def wait(_: Notes) -> None:
        begun.set()
        opened.wait(20)

    writer.run(wait)
    assert begun.wait(20)  # without the next ones
    return opened


def test_what_has_piled_up_is_committed_at_once(
    path: Path, commits: Callable[[], int], writer: Writer[Notes]
) -> None:
    async def scenario() -> None:
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(100)]
        reading = writer.run(Notes.all)
        commits()
        opened.set()
        assert await asyncio.gather(*adding) == [str(n) for n in range(100)]
        assert await reading == [str(n) for n in range(100)]
        assert 1 <= commits() < 10  # some arrive while the first are being committed

    asyncio.run(scenario())


def test_reading_alone_takes_no_lock(path: Path, commits: Callable[[], int], writer: Writer[Notes]) -> None:
    writer.call(lambda db: db.add("x"))
    commits()
    with locked(path):
        assert writer.call(Notes.all) == ["x"]
    assert commits() == 0


def test_a_job_that_fails_takes_back_all_it_did_and_nothing_of_others(writer: Writer[Notes]) -> None:
    def twice(db: Notes) -> None:
        db.add("gone")
        db.add("gone, too")
        raise ValueError("no")

    async def scenario() -> None:
        opened = gate(writer)
        ends = [writer.run(job) for job in (lambda db: db.add("a"), twice, lambda db: db.add("b"), Notes.all)]
        opened.set()
        first, failed, last, seen = await asyncio.gather(*ends, return_exceptions=True)
        assert (first, last, seen) == ("a", "b", ["a", "b"])
        assert isinstance(failed, ValueError)

    asyncio.run(scenario())
    assert writer.call(Notes.all) == ["a", "b"]


def test_a_job_fails_if_it_goes_on_after_a_part_of_it_has_failed(writer: Writer[Notes]) -> None:
    def job(db: Notes) -> None:
        db.add("gone")
        with contextlib.suppress(ValueError), db.transaction():
            db.add("gone, too")
            raise ValueError("no")

    with pytest.raises(RuntimeError, match="a part of this transaction has failed"):
        writer.call(job)
    assert writer.call(lambda db: db.add("kept")) == "kept"
    assert writer.call(Notes.all) == ["kept"]


@pytest.mark.parametrize("how_often", [1, 100])
def test_a_commit_that_fails_is_tried_for_each_job_by_itself(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch, how_often: int
) -> None:
    """Nobody is told that an unwritten change is written; what has room is written."""
    failed: list[str] = []

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and len(failed) < how_often:
                failed.append(sql)
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *parameters)

    Notes(path).close()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Failing, **named))

    async def scenario() -> None:
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(3)]
        opened.set()
        ends = await asyncio.gather(*adding, return_exceptions=True)
        if how_often == 1:
            assert ends == ["0", "1", "2"]
        else:
            assert all(isinstance(end, Trouble) and "disk I/O error" in str(end) for end in ends)

    asyncio.run(scenario())
    notes = Notes(path)
    assert notes.all() == (["0", "1", "2"] if how_often == 1 else [])
    notes.close()


def test_a_connection_that_cannot_even_roll_back_is_opened_anew(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may disappear for a moment."""
    failing = {"COMMIT", "ROLLBACK"}

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql in failing:
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *parameters)

    Notes(path).close()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Failing, **named))
    with pytest.raises(Trouble, match="disk I/O error"):
        writer.call(lambda db: db.add("lost"))
    failing.clear()
    assert writer.call(lambda db: db.add("kept")) == "kept"
    assert writer.call(Notes.all) == ["kept"]


DYING = """
import asyncio, os, signal, sqlite3, sys, threading
from pathlib import Path
from relay.storage.sqlite import Writer
from storage.notes import Notes
from storage.test_sqlite_writer import JOBS

path, told, steps = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), int(sys.argv[3])
doomed = False

class Dying(sqlite3.Connection):
    def execute(self, sql, *parameters):
        global steps
        if doomed and steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        steps -= doomed
        return super().execute(sql, *parameters)

connect = sqlite3.connect
sqlite3.connect = lambda *args, **named: connect(*args, factory=Dying, **named)

async def main():
    global doomed
    writer, opened = Writer(Notes, path), threading.Event()
    await writer.run(lambda db: db.add("before"))
    first = writer.run(lambda db: opened.wait(60))
    tell = lambda text: os.write(told, text.encode())
    ends = [writer.run(lambda db, n=n: db.add(str(n)), tell) for n in range(JOBS)]
    doomed = True
    opened.set()
    await asyncio.gather(*ends)
    await writer.run(Notes.all)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

JOBS = 3
STEPS = 3 * JOBS  # BEGIN, a change, and COMMIT; for each further one a savepoint, the change, and its release


@pytest.mark.parametrize("steps", range(STEPS + 2))
def test_who_is_killed_while_it_commits_a_group_leaves_all_of_it_or_nothing(path: Path, steps: int) -> None:
    """steps: the statements executed before. Nobody was told that an undone job is done."""
    Notes(path).close()
    told = path.with_name("told")
    told.touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    run = subprocess.run([sys.executable, "-c", DYING, path, told, str(steps)], env=environment, check=False)
    assert run.returncode == -signal.SIGKILL
    with Notes(path) as notes:
        before, *found = notes.all()
    everything = [str(number) for number in range(JOBS)]
    assert before == "before" and found == (everything if steps >= STEPS else [])
    assert everything[: len(told.read_text())] == list(told.read_text())
    assert len(told.read_text()) <= len(found)


def test_what_comes_while_others_wait_is_committed_with_them(
    writer: Writer[Notes], commits: Callable[[], int]
) -> None:
    """With many writing processes, most of the time is spent waiting for a turn."""
    begun, opened = threading.Event(), threading.Event()

    def wait(notes: Notes) -> str:
        begun.set()
        opened.wait(20)
        return notes.add("first")

    async def scenario() -> None:
        await writer.run(Notes.all)
        commits()
        ends = [writer.run(wait)]
        assert begun.wait(20)
        ends += [writer.run(lambda db, n=n: db.add(str(n))) for n in range(3)]
        opened.set()
        assert await asyncio.gather(*ends) == ["first", "0", "1", "2"]
        assert commits() == 1

    asyncio.run(scenario())


def test_a_full_disk_refuses_only_what_has_no_room(writer: Writer[Notes]) -> None:
    """SQLite then rolls back the whole transaction, including what the other jobs had done."""

    def fill(db: Notes) -> None:
        with db.reading() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 1}")

    async def scenario() -> None:
        await writer.run(fill)
        opened = gate(writer)
        ends = [writer.run(lambda db, text=text: db.add(text)) for text in ("a", "x" * 100_000, "b")]
        opened.set()
        first, failed, last = await asyncio.gather(*ends, return_exceptions=True)
        assert (first, last) == ("a", "b")
        assert isinstance(failed, Trouble) and "full" in str(failed)

    asyncio.run(scenario())
    assert writer.call(Notes.all) == ["a", "b"]


def test_a_job_that_hides_that_the_disk_is_full_has_failed_all_the_same(writer: Writer[Notes]) -> None:
    def hides(db: Notes) -> str:
        with db.reading() as connection:
            connection.execute("PRAGMA max_page_count = 3")
        with contextlib.suppress(Trouble):
            db.add("x" * 100_000)
        with contextlib.suppress(Trouble):
            db.add("after it")
        return "done"

    with pytest.raises(Trouble):
        writer.call(hides)
    assert writer.call(Notes.all) == []


def test_a_file_that_another_process_has_locked_delays_its_callers_and_not_the_loop(
    path: Path, writer: Writer[Notes]
) -> None:
    async def scenario() -> None:
        await writer.run(Notes.all)
        with locked(path):
            adding = writer.run(lambda db: db.add("late"))
            turns = 0
            while turns < 1000:  # turns of the event loop, however long the lock is held
                await asyncio.sleep(0)
                turns += 1
            assert not adding.done()
        assert await adding == "late"

    asyncio.run(scenario())


def test_a_lock_that_stays_is_waited_for_once_by_all_that_wait(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch, commits: Callable[[], int]
) -> None:
    monkeypatch.setattr(Notes, "busy_seconds", 0.01)

    async def scenario() -> None:
        await writer.run(Notes.all)
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(50)]
        reading = writer.run(Notes.all)
        Counting.statements.clear()
        with locked(path):
            opened.set()
            ends = await asyncio.gather(*adding, return_exceptions=True)
            assert await reading == []
            assert Counting.statements.count("BEGIN IMMEDIATE") == 1 + 1  # and `locked`
        assert all(isinstance(end, Trouble) and "locked" in str(end) for end in ends)
        assert await writer.run(lambda db: db.add("then")) == "then"

    asyncio.run(scenario())


def test_a_lock_after_a_failed_commit_is_waited_for_once_too(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notes, "busy_seconds", 0.01)
    begun: list[str] = []
    rolled_back, locked_now = threading.Event(), threading.Event()

    class Failing(sqlite3.Connection):
        """Its first commit fails, and then another process has the lock."""

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and not rolled_back.is_set():
                raise sqlite3.OperationalError("disk I/O error")
            begun.extend([sql] if sql == "BEGIN IMMEDIATE" else [])
            found = super().execute(sql, *parameters)
            if sql == "ROLLBACK":
                rolled_back.set()
                locked_now.wait(20)
            return found

    Notes(path).close()
    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Failing, **named))
        writer.call(Notes.all)

    async def scenario() -> None:
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(50)]
        opened.set()
        await asyncio.to_thread(rolled_back.wait, 20)
        with locked(path):
            locked_now.set()
            ends = await asyncio.gather(*adding, return_exceptions=True)
        assert all(isinstance(end, Trouble) and "locked" in str(end) for end in ends)
        assert begun == ["BEGIN IMMEDIATE"] * 2

    asyncio.run(scenario())


def test_a_caller_that_is_cancelled_undoes_nothing(writer: Writer[Notes]) -> None:
    async def scenario() -> None:
        opened = gate(writer)

        async def caller() -> None:
            await writer.run(lambda db: db.add("all the same"))

        task = asyncio.create_task(caller())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        opened.set()
        assert await writer.run(Notes.all) == ["all the same"]

    asyncio.run(scenario())


def test_closing_finishes_what_was_handed_over_and_takes_no_more(path: Path) -> None:
    writer = Writer(Notes, path)

    async def scenario() -> None:
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(10)]
        opened.set()
        await asyncio.to_thread(writer.close)
        assert await asyncio.gather(*adding) == [str(n) for n in range(10)]
        with pytest.raises(Trouble, match="closed"):
            await writer.run(Notes.all)

    asyncio.run(scenario())
    writer.close()
    with pytest.raises(Trouble, match="closed"):
        writer.call(Notes.all)


def test_the_loop_that_awaits_jobs_cannot_wait_for_one_and_others_can(writer: Writer[Notes]) -> None:
    """A user's coroutine, on the loop of handlers, can use the memory store like any function."""

    async def theirs() -> str:
        return writer.call(lambda db: db.add("from a handler"))

    async def ours() -> None:
        await writer.run(Notes.all)
        with pytest.raises(RuntimeError, match=r"await Writer\.run"):
            writer.call(Notes.all)
        assert await asyncio.to_thread(asyncio.run, theirs()) == "from a handler"

    asyncio.run(ours())


def test_threads_that_call_at_once_get_each_its_own(writer: Writer[Notes]) -> None:
    got: list[bool] = []

    def caller(name: str) -> None:
        got.append(all(writer.call(lambda db, n=n: db.add(f"{name}{n}")) == f"{name}{n}" for n in range(50)))

    threads = [threading.Thread(target=caller, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [True] * 4
    assert len(writer.call(Notes.all)) == 200


def test_a_file_that_cannot_be_opened_is_tried_again_with_the_next_job(path: Path) -> None:
    path.write_bytes(b"not a database, " * 100)
    writer = Writer(Notes, path)
    for _ in range(2):
        with pytest.raises(Trouble, match="not a database"):
            writer.call(Notes.all)
    path.unlink()
    assert writer.call(Notes.all) == []
    writer.close()


def test_a_file_that_was_moved_away_is_opened_anew_where_that_is_wanted(path: Path) -> None:
    reopening, staying = Writer(Notes, path, reopen=True), Writer(Notes, path)
    for each in (reopening, staying):
        each.call(lambda db: db.add("old"))
    for file in list(path.parent.iterdir()):
        file.rename(file.with_name("moved-" + file.name))
    reopening.call(lambda db: db.add("new"))
    assert reopening.call(Notes.all) == ["new"]
    assert staying.call(Notes.was_moved) and staying.call(Notes.all) == ["old", "old"]
    for each in (reopening, staying):
        each.close()


def test_a_batch_has_its_limit(
    path: Path, writer: Writer[Notes], commits: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_BATCH", 10)

    async def scenario() -> None:
        await writer.run(Notes.all)
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(95)]
        commits()
        opened.set()
        await asyncio.gather(*adding)
        assert commits() == 10

    asyncio.run(scenario())
