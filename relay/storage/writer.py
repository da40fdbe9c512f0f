"""A thread that commits to a database for an event loop.

run, call ─→ queue ─→ thread: BEGIN, the jobs that have piled up, COMMIT ─→ their results
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakSet

from relay.storage.sqlite import Database, End, running_loop

if TYPE_CHECKING:
    import asyncio

MAX_BATCH = 256
"""Maximum jobs that a Writer commits in one transaction."""

_Told = tuple[Callable[[Any, BaseException | None], None], Any, BaseException | None]
_Job = tuple[Callable[[Any], Any], Callable[[Any, BaseException | None], None]]
"""A function of the database, and the callback that gets its end."""

D = TypeVar("D", bound=Database)
T = TypeVar("T")

_loops: WeakSet[Any] = WeakSet()  # event loops that await jobs, and must never block on one


class Writer(Generic[D]):
    """A thread that owns a database, runs jobs in order of arrival, and commits waiting jobs together.

    A job is a plain function of the database; either all of its changes are committed, or none.  The caller
    gets its result, or its exception, after the commit.  A job runs even if its caller is cancelled; it may
    run twice (`Database.commit_together`).
    """

    def __init__(self, database: type[D], path: Path, *, reopen: bool = False) -> None:
        """The first job opens the file. If that fails, it raises the error, and the next job tries again.

        reopen: open the file at `path` again if the open one was moved away.
        """
        self._kind = database
        self._path = path
        self._reopen = reopen
        self._database: D | None = None  # used only by the thread
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # The ends for each loop, reported in one call, which wakes it once. Used only by the thread.
        self._ends: dict[asyncio.AbstractEventLoop, list[_Told]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"relay-{path.stem}", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[D], T], then: Callable[[T], None] | None = None) -> asyncio.Future[T]:
        """Hand over `job` at once; await its result on the running event loop.

        then: called on the loop with the result, even if the caller was cancelled meanwhile.
        """
        import asyncio  # a caller that runs a loop has already imported it

        loop = asyncio.get_running_loop()
        _loops.add(loop)
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if error is None and then is not None:
                then(value)
            if future.done():
                return  # its caller was cancelled
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def done(value: Any, error: BaseException | None) -> None:
            self._ends.setdefault(loop, []).append((settle, value, error))

        self._hand_over((job, done))
        return future

    def call(self, job: Callable[[D], T]) -> T:
        """Hand over `job` and wait for its result. Raise RuntimeError on a loop that uses `run`."""
        if (loop := running_loop()) is not None and loop in _loops:
            raise RuntimeError("a database is waited for on an event loop: await Writer.run instead")
        ends: queue.SimpleQueue[End] = queue.SimpleQueue()
        self._hand_over((job, lambda value, error: ends.put((value, error))))
        value, error = ends.get()
        if error is not None:
            raise error
        return cast(T, value)

    def close(self) -> None:
        """Run the jobs that were handed over, and close the file. Later jobs raise."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _hand_over(self, job: _Job) -> None:
        with self._lock:  # so that no job follows the end marker
            if not self._closed:
                self._jobs.put(job)
                return
        raise self._kind.explain(self._path, sqlite3.ProgrammingError("it was closed"))

    def _work(self) -> None:
        """Run jobs and pass on their ends, until the writer is closed."""
        job = self._jobs.get()
        while job is not None:
            taken = [job]
            jobs = self._waiting(taken)
            try:
                ends = self._opened().commit_together(jobs)
            except BaseException as error:  # noqa: BLE001 (raised where the jobs came from)
                list(jobs)  # take all waiting jobs: they have the same end
                ends = [(None, error)] * len(taken)
            for (_, done), end in zip(taken, ends, strict=True):
                done(*end)
            while self._ends:
                loop, all_ends = self._ends.popitem()
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    loop.call_soon_threadsafe(_settle, loop, all_ends)
            job = self._jobs.get()
        if self._database is not None:
            self._database.close()

    def _waiting(self, taken: list[_Job]) -> Iterator[Callable[[Any], Any]]:
        """Yield the job that was `taken`, then the waiting ones; append these to `taken`."""
        yield taken[0][0]
        while len(taken) < MAX_BATCH and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:  # the end marker, which stays last
                self._jobs.put(None)
                return
            taken.append(job)
            yield job[0]

    def _opened(self) -> D:
        database = self._database
        if database is not None and (database.stuck or (self._reopen and database.was_moved())):
            database.close()
            self._database = None
        if self._database is None:
            self._database = self._kind(self._path)
        return self._database


def _settle(loop: asyncio.AbstractEventLoop, ends: list[_Told]) -> None:
    for settle, value, error in ends:
        try:  # not `call_soon`, which would cost each job another turn of the loop
            settle(value, error)
        except Exception as failed:  # noqa: BLE001 (reported as asyncio reports those of its callbacks)
            loop.call_exception_handler({"message": "a database job's callback failed", "exception": failed})
