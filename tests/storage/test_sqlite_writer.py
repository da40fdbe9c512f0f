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
from relay.storage.writer import Writer
from storage.notes import Notes, NotesError

TESTS = Path(__file__).parent.parent


def gate(writer: Writer[Notes]) -> threading.Event:
    """Keep the thread busy until the event is set, so jobs queue up behind it."""
    started, opened = threading.Event(), threading.Event()

    def wait(_: Notes) -> None:
        started.set()
        opened.wait(20)

    writer.run(wait)
    assert started.wait(20)  # so the next jobs are not in the same batch
    return opened


def test_queued_jobs_are_committed_together(
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


def test_a_failed_job_is_undone_without_affecting_others(writer: Writer[Notes]) -> None:
    def twice(db: Notes) -> None:
        db.add("gone")
        db.add("gone, too")
        raise ValueError("no")

    async def scenario() -> None:
        opened = gate(writer)
        outcomes = [
            writer.run(job) for job in (lambda db: db.add("a"), twice, lambda db: db.add("b"), Notes.all)
        ]
        opened.set()
        first, failed, last, seen = await asyncio.gather(*outcomes, return_exceptions=True)
        assert (first, last, seen) == ("a", "b", ["a", "b"])
        assert isinstance(failed, ValueError)

    asyncio.run(scenario())
    assert writer.call(Notes.all) == ["a", "b"]


def test_a_job_that_continues_after_a_failed_part_fails(writer: Writer[Notes]) -> None:
    def job(db: Notes) -> None:
        db.add("gone")
        with contextlib.suppress(ValueError), db.transaction():
            db.add("gone, too")
            raise ValueError("no")

    with pytest.raises(RuntimeError, match="a part of this transaction has failed"):
        writer.call(job)
    assert writer.call(lambda db: db.add("kept")) == "kept"
    assert writer.call(Notes.all) == ["kept"]


CHANGE = "INSERT INTO note VALUES (?) RETURNING text"


def test_a_change_of_one_statement_is_committed_by_it(path: Path, writer: Writer[Notes]) -> None:
    assert writer.call(lambda db: db.change(CHANGE, "alone")) == [("alone",)]

    async def scenario() -> None:
        opened = gate(writer)
        jobs = [
            lambda db: db.change(CHANGE, "first"),
            lambda db: db.add("second"),
            lambda db: db.change(CHANGE, "third"),
            lambda db: db.change("INSERT INTO note VALUES (no_such_column)"),
        ]
        running = [writer.run(job) for job in jobs]
        opened.set()
        first, second, third, failed = await asyncio.gather(*running, return_exceptions=True)
        assert (first, second, third) == ([("first",)], "second", [("third",)])
        assert isinstance(failed, NotesError)

    asyncio.run(scenario())
    with Notes(path) as other:
        assert other.all() == ["alone", "first", "second", "third"]


def test_a_change_before_a_failed_commit_is_not_made_twice(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and not failed:
                failed.append(sql)
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *parameters)

    Notes(path).close()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Failing, **named))

    async def scenario() -> None:
        opened = gate(writer)
        changing = writer.run(lambda db: db.change(CHANGE, "once"))
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(2)]
        opened.set()
        assert await changing == [("once",)]
        assert await asyncio.gather(*adding) == ["0", "1"]

    asyncio.run(scenario())
    assert failed
    assert writer.call(Notes.all) == ["once", "0", "1"]


@pytest.mark.parametrize("times", [1, 100])
def test_a_failed_commit_is_retried_for_each_job_alone(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """No unwritten change is reported as written, and every job that can be committed is."""
    failed: list[str] = []

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and len(failed) < times:
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
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
        if times == 1:
            assert outcomes == ["0", "1", "2"]
        else:
            assert all(
                isinstance(outcome, NotesError) and "disk I/O error" in str(outcome) for outcome in outcomes
            )

    asyncio.run(scenario())
    notes = Notes(path)
    assert notes.all() == (["0", "1", "2"] if times == 1 else [])
    notes.close()


def test_a_connection_that_cannot_roll_back_is_reopened(
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
    with pytest.raises(NotesError, match="disk I/O error"):
        writer.call(lambda db: db.add("lost"))
    failing.clear()
    assert writer.call(lambda db: db.add("kept")) == "kept"
    assert writer.call(Notes.all) == ["kept"]


DYING = """
import asyncio, os, signal, sqlite3, sys, threading
from pathlib import Path
from relay.storage.writer import Writer
from storage.notes import Notes

path, reported = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
steps, jobs = map(int, sys.argv[3:])
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
    report = lambda text: os.write(reported, text.encode())
    outcomes = [writer.run(lambda db, n=n: db.add(str(n)), report) for n in range(jobs)]
    doomed = True
    opened.set()
    await asyncio.gather(*outcomes)
    await writer.run(Notes.all)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

JOBS = 3
STEPS = 3 * JOBS  # BEGIN, a change, and COMMIT; for each further job a savepoint, the change, and its release


@pytest.mark.parametrize("steps", range(STEPS + 2))
def test_a_kill_during_a_commit_leaves_the_whole_group_or_nothing(path: Path, steps: int) -> None:
    """steps: the statements executed before the kill. No job is reported as done that is not."""
    Notes(path).close()
    reported = path.with_name("reported")
    reported.touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    run = subprocess.run(
        [sys.executable, "-c", DYING, path, reported, str(steps), str(JOBS)], env=environment, check=False
    )
    assert run.returncode == -signal.SIGKILL
    with Notes(path) as notes:
        before, *found = notes.all()
    everything = [str(number) for number in range(JOBS)]
    assert before == "before" and found == (everything if steps >= STEPS else [])
    assert everything[: len(reported.read_text())] == list(reported.read_text())
    assert len(reported.read_text()) <= len(found)


def test_jobs_that_arrive_while_others_wait_are_committed_with_them(
    writer: Writer[Notes], commits: Callable[[], int]
) -> None:
    """With many writing processes, most of the time is spent waiting for a turn."""
    started, opened = threading.Event(), threading.Event()

    def wait(notes: Notes) -> str:
        started.set()
        opened.wait(20)
        return notes.add("first")

    async def scenario() -> None:
        await writer.run(Notes.all)
        commits()
        outcomes = [writer.run(wait)]
        assert started.wait(20)
        outcomes += [writer.run(lambda db, n=n: db.add(str(n))) for n in range(3)]
        opened.set()
        assert await asyncio.gather(*outcomes) == ["first", "0", "1", "2"]
        assert commits() == 1

    asyncio.run(scenario())


def test_a_full_disk_rejects_only_jobs_that_do_not_fit(writer: Writer[Notes]) -> None:
    """SQLite then rolls back the whole transaction, including what the other jobs had done."""

    def fill(db: Notes) -> None:
        with db.reading() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 1}")

    async def scenario() -> None:
        await writer.run(fill)
        opened = gate(writer)
        outcomes = [writer.run(lambda db, text=text: db.add(text)) for text in ("a", "x" * 100_000, "b")]
        opened.set()
        first, failed, last = await asyncio.gather(*outcomes, return_exceptions=True)
        assert (first, last) == ("a", "b")
        assert isinstance(failed, NotesError) and "full" in str(failed)

    asyncio.run(scenario())
    assert writer.call(Notes.all) == ["a", "b"]


def test_a_job_that_hides_a_full_disk_still_fails(writer: Writer[Notes]) -> None:
    def hides(db: Notes) -> str:
        with db.reading() as connection:
            connection.execute("PRAGMA max_page_count = 3")
        with contextlib.suppress(NotesError):
            db.add("x" * 100_000)
        with contextlib.suppress(NotesError):
            db.add("after it")
        return "done"

    with pytest.raises(NotesError):
        writer.call(hides)
    assert writer.call(Notes.all) == []


def test_a_locked_file_delays_its_callers_but_not_the_event_loop(path: Path, writer: Writer[Notes]) -> None:
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


def test_all_waiting_jobs_share_one_wait_for_a_lock(
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
            outcomes = await asyncio.gather(*adding, return_exceptions=True)
            assert await reading == []
            assert Counting.statements.count("BEGIN IMMEDIATE") == 1 + 1  # and `locked`
        assert all(isinstance(outcome, NotesError) and "locked" in str(outcome) for outcome in outcomes)
        assert await writer.run(lambda db: db.add("then")) == "then"

    asyncio.run(scenario())


def test_a_lock_after_a_failed_commit_is_waited_for_only_once(
    path: Path, writer: Writer[Notes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notes, "busy_seconds", 0.01)
    started: list[str] = []
    rolled_back, locked_now = threading.Event(), threading.Event()

    class Failing(sqlite3.Connection):
        """Its first commit fails, and then another process has the lock."""

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and not rolled_back.is_set():
                raise sqlite3.OperationalError("disk I/O error")
            started.extend([sql] if sql == "BEGIN IMMEDIATE" else [])
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
            outcomes = await asyncio.gather(*adding, return_exceptions=True)
        assert all(isinstance(outcome, NotesError) and "locked" in str(outcome) for outcome in outcomes)
        assert started == ["BEGIN IMMEDIATE"] * 2

    asyncio.run(scenario())


def test_cancelling_a_caller_undoes_nothing(writer: Writer[Notes]) -> None:
    async def scenario() -> None:
        opened = gate(writer)

        async def caller() -> None:
            await writer.run(lambda db: db.add("kept"))

        task = asyncio.create_task(caller())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        opened.set()
        assert await writer.run(Notes.all) == ["kept"]

    asyncio.run(scenario())


def test_closing_finishes_queued_jobs_and_rejects_new_ones(path: Path) -> None:
    writer = Writer(Notes, path)

    async def scenario() -> None:
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(10)]
        opened.set()
        await asyncio.to_thread(writer.close)
        assert await asyncio.gather(*adding) == [str(n) for n in range(10)]
        with pytest.raises(NotesError, match="closed"):
            await writer.run(Notes.all)

    asyncio.run(scenario())
    writer.close()
    with pytest.raises(NotesError, match="closed"):
        writer.call(Notes.all)


def test_only_the_loop_that_awaits_jobs_cannot_block_on_one(writer: Writer[Notes]) -> None:
    """A user's coroutine, on the loop of handlers, can use the memory store like any function."""

    async def theirs() -> str:
        return writer.call(lambda db: db.add("from a handler"))

    async def ours() -> None:
        await writer.run(Notes.all)
        with pytest.raises(RuntimeError, match=r"await Writer\.run"):
            writer.call(Notes.all)
        assert await asyncio.to_thread(asyncio.run, theirs()) == "from a handler"

    asyncio.run(ours())


def test_concurrent_threads_each_get_their_own_results(writer: Writer[Notes]) -> None:
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


def test_a_file_that_cannot_be_opened_is_tried_again_by_the_next_job(path: Path) -> None:
    path.write_bytes(b"not a database, " * 100)
    writer = Writer(Notes, path)
    for _ in range(2):
        with pytest.raises(NotesError, match="not a database"):
            writer.call(Notes.all)
    path.unlink()
    assert writer.call(Notes.all) == []
    writer.close()


def test_a_moved_file_is_reopened_only_on_request(path: Path) -> None:
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


def test_the_size_of_a_batch_is_limited(
    path: Path, writer: Writer[Notes], commits: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.storage.writer.MAX_BATCH", 10)

    async def scenario() -> None:
        await writer.run(Notes.all)
        opened = gate(writer)
        adding = [writer.run(lambda db, n=n: db.add(str(n))) for n in range(95)]
        commits()
        opened.set()
        await asyncio.gather(*adding)
        assert commits() == 10

    asyncio.run(scenario())
