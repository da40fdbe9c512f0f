"""SQLite for relay: private files, transactions, and versions of tables.

WAL with synchronous=NORMAL: commits survive the kill of every process.  A power failure may undo the last
commits, but never corrupts the file (https://sqlite.org/pragma.html#pragma_synchronous); FULL would cost a
disk flush for each commit.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from relay.dataclass import dataclass
from relay.errors import RelayError
from relay.storage.files import make_private
from relay.storage.turns import Turns

_WAL_EVERY = 0.005  # seconds between two attempts to switch a file to WAL

_BEGIN = "BEGIN IMMEDIATE"  # wait for other writers now, before reading anything that could become stale

End = tuple[Any, BaseException | None]
"""The value and the error of a job; one of them is None."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a database.

    version: PRAGMA user_version of a database with these tables; 0 is an empty file.
    tables:  statements that create them and their indexes in an empty database.
    """

    version: int
    tables: Sequence[str]


class WrongVersion(Exception):
    """A database has the tables of another relay. found: their version."""

    def __init__(self, found: int) -> None:
        super().__init__(f"tables of version {found}")
        self.found = found


class Database:
    """One connection to a SQLite file, for one thread; a base class.

    SQLite's errors are raised as `explain` returns them.  A statement on a running event loop's thread is
    a programming error (RuntimeError): give the job to a Writer instead.
    """

    schema: ClassVar[Schema]
    busy_seconds: ClassVar[float]
    """Seconds to wait for another process's lock."""
    crowded: ClassVar[bool] = False
    """True if many processes write the file, so they take turns."""

    def __init__(self, path: Path) -> None:
        """Open the file at `path`; create it (0600) and its tables if needed."""
        _refuse_event_loop()
        self.path = path
        self._file: tuple[int, int] | None = None
        self._batch: _Batch | None = None
        self._turns: Turns | None = None
        self._torn = False  # a part of the running transaction has raised
        try:
            self.make_file(path)
        except OSError as error:
            raise self.explain(path, error) from error
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=self.busy_seconds, isolation_level=None)
        try:
            if self.crowded:
                self._turns = Turns(f"{path}-turns")
            with self._explained():
                self._prepare()
            self._file = _identity(path)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def explain(path: Path, error: Exception) -> RelayError:
        """Return an error with advice for the user; `error` is a sqlite3.Error, OSError or WrongVersion."""
        raise NotImplementedError

    @staticmethod
    def make_file(path: Path) -> None:
        """Create the file 0600 before SQLite creates it with the umask; its companions get the same mode."""
        with contextlib.suppress(OSError):  # SQLite's error says more
            make_private(path)

    def close(self) -> None:
        """Close the connection. Closing twice does no harm."""
        self._connection.close()
        if self._turns is not None:
            self._turns.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def inspect(cls, path: Path) -> tuple[str, int]:
        """Return the result of quick_check ("ok") and the version of the tables. Write nothing."""
        try:
            with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
                (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
                return str(said), user_version(db)
        except sqlite3.Error as error:
            raise cls.explain(path, error) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection to a block that changes nothing."""
        _refuse_event_loop()
        with self._explained():
            yield self._connection

    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Commit all changes of the block, or none if it raises.

        Within another transaction, the block is a part of it: if it raises, the whole is rolled back.
        """
        _refuse_event_loop()
        return _Transaction(self)

    def was_moved(self) -> bool:
        """Return True if the file was moved away, deleted, or replaced since it was opened."""
        return self._file is not None and _identity(self.path) != self._file

    def check(self) -> None:
        """Raise if the file must not be written any more; called as each transaction begins."""

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a query that changes nothing."""
        _refuse_event_loop()
        try:  # not `reading`: a message takes dozens of queries, and two context managers cost more than one
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self.explain(self.path, error) from error

    def write(self, statement: str, *values: object) -> int:
        """Commit the changes of one statement; return the number of rows that it changed."""
        with self.transaction() as db:
            return db.execute(statement, values).rowcount

    def change(self, statement: str, *values: object) -> list[Any]:
        """Commit one statement, and return its rows (RETURNING): the only change of a job, the last to raise.

        It needs no transaction of its own, which would take three statements.
        """
        if (batch := self._batch) is None:
            with self.transaction() as db:
                return db.execute(statement, values).fetchall()
        if batch.begun:  # if it fails, it undoes itself
            return self.rows(statement, *values)
        rows = self._start(batch, statement, values)
        self._leave()
        return rows

    def data_version(self) -> int:
        """Return a number that changes whenever another connection has committed."""
        ((version,),) = self.rows("PRAGMA data_version")
        return int(version)

    def commit_together(self, jobs: Iterable[Callable[[Any], Any]]) -> list[End]:
        """Run `jobs`, commit all changes at once, and return their ends in the same order.

        Take each job only when those before it have run, so more may arrive while these wait for a lock.
        The changes of a job that raises are rolled back without effect on the others.  If the transaction
        cannot be committed (the disk is full), each of its jobs is run once more, in its own transaction: it
        must be safe to run twice.
        """
        batch = _Batch()
        coming, run = iter(jobs), list[Callable[[Any], Any]]()
        ends, whole = self._attempt(coming, batch, run)
        if not whole:
            run += coming
            if len(run) > batch.kept + 1:
                ends = ends[: batch.kept]
                for job in run[batch.kept :]:
                    batch = _Batch(refusal=batch.refusal)  # wait only once for a lock that stays
                    ends += self._attempt([job], batch, [])[0]
        return ends

    @property
    def stuck(self) -> bool:
        """True between two calls if a transaction could not even be rolled back: reopen the file."""
        return self._connection.in_transaction

    def _attempt(
        self, jobs: Iterable[Callable[[Any], Any]], batch: _Batch, run: list[Callable[[Any], Any]]
    ) -> tuple[list[End], bool]:
        """Return the ends of `jobs`, and False if all were rolled back. run: collects jobs that have run."""
        self._batch = batch
        ends: list[End] = []
        try:
            for job in jobs:
                run.append(job)
                if not batch.begun:
                    batch.kept = len(ends)
                ends.append(self._run(job, batch))
            if batch.begun:
                self._connection.execute("COMMIT")
        except (RelayError, sqlite3.Error) as error:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # then it is stuck
                    self._connection.execute("ROLLBACK")
            refusal = error if isinstance(error, RelayError) else self.explain(self.path, error)
            return [*ends[: batch.kept], *[(None, refusal)] * (len(run) - batch.kept)], False
        finally:
            self._batch = None
            self._leave()
        return ends, True

    def _run(self, job: Callable[[Any], Any], batch: _Batch) -> End:
        batch.joined = False
        end: End
        try:
            end = job(self), None
            self._check_parts()
        except BaseException as error:  # noqa: BLE001 (raised where the job came from)
            self._torn, end = False, (None, error)
        db = self._connection
        if batch.begun and not db.in_transaction:
            raise end[1] if isinstance(end[1], RelayError) else sqlite3.OperationalError(_LOST)
        if batch.joined and end[1] is not None:
            self._undo_job(batch)
        if batch.saved:
            db.execute("RELEASE job")
            batch.saved = False
        return end

    def _check_parts(self) -> None:
        """Raise RuntimeError if a part of the transaction has raised, and its error was caught."""
        torn, self._torn = self._torn, False
        if torn:
            raise RuntimeError("a part of this transaction has failed, and so has the whole")

    def _join(self, batch: _Batch) -> bool:
        """Begin the transaction of `batch` if this is its first change, otherwise the job's savepoint.

        Return True if this is the first change of the job.
        """
        if batch.begun and not self._connection.in_transaction:
            raise sqlite3.OperationalError(_LOST)
        if batch.joined:
            return False
        if batch.begun:
            self._connection.execute("SAVEPOINT job")
            batch.saved = True
        else:
            self._start(batch)
            batch.begun = True
        batch.joined = True
        return True

    def _start(self, batch: _Batch, statement: str = _BEGIN, values: Sequence[object] = ()) -> list[Any]:
        """Execute the first statement of `batch`; only one of its jobs waits for a lock that stays."""
        if batch.refusal is not None:
            raise batch.refusal
        try:
            return self._begin(statement, values)
        except RelayError as error:
            batch.refusal = error
            raise
        except sqlite3.Error as error:
            batch.refusal = self.explain(self.path, error)
            raise batch.refusal from error

    def _undo_job(self, batch: _Batch) -> None:
        """Roll back the running job's changes; for the first job, that is the whole transaction."""
        if batch.saved:
            self._connection.execute("ROLLBACK TO job")
        else:
            self._connection.execute("ROLLBACK")
            self._leave()
            batch.begun = batch.joined = False

    def _begin(self, statement: str = _BEGIN, values: Sequence[object] = ()) -> list[Any]:
        self.check()
        if self._turns is not None:
            self._turns.take(self.busy_seconds)
        try:
            return self._connection.execute(statement, values).fetchall()
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        if self._turns is not None:
            self._turns.leave()

    def _prepare(self) -> None:
        db = self._connection
        self._use_wal()
        db.execute("PRAGMA synchronous = NORMAL")
        if user_version(db) == 0:  # otherwise write nothing, and wait for no lock
            with self.transaction():
                if user_version(db) == 0:  # no other process was faster
                    for statement in (*self.schema.tables, f"PRAGMA user_version = {self.schema.version}"):
                        db.execute(statement)
        if (found := user_version(db)) != self.schema.version:
            raise WrongVersion(found)

    def _use_wal(self) -> None:
        """Use write-ahead logging, so readers and writer do not block each other (sqlite.org/wal.html)."""
        with contextlib.suppress(sqlite3.OperationalError):  # another process is switching it
            if self._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                return
        if self._turns is not None:  # of many that look meanwhile, none might ever get to switch
            self._turns.take(self.busy_seconds)
        try:
            self._switch_to_wal()
        finally:
            self._leave()

    def _switch_to_wal(self) -> None:
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # The one lock for which SQLite does not wait: another process is making the same switch.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_WAL_EVERY)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, WrongVersion) as error:
            raise self.explain(self.path, error) from error


class _Transaction:
    """A block of changes (`Database.transaction`). Not a generator: a message takes twenty of them."""

    __slots__ = ("_batch", "_database", "_kind")

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        self._kind: Literal["whole", "job", "part"]
        database = self._database
        db = database._connection
        try:
            self._batch = database._batch
            if self._batch is not None and database._join(self._batch):
                self._kind = "job"  # this is its first change
            elif db.in_transaction:
                self._kind = "part"
            else:
                database._begin()
                self._kind = "whole"
        except sqlite3.Error as error:
            raise database.explain(database.path, error) from error
        return db

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        database = self._database
        if self._kind == "part":  # without a savepoint, which costs as much as a change
            database._torn = database._torn or error is not None
            if isinstance(error, sqlite3.Error):
                raise database.explain(database.path, error) from error
            return
        db = database._connection
        try:
            try:
                if error is not None:
                    raise error
                database._check_parts()
                if self._kind == "whole":
                    db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # some errors end the whole transaction
                    if self._batch is not None and self._kind == "job":
                        database._undo_job(self._batch)
                    else:
                        db.execute("ROLLBACK")
                raise
            finally:
                database._torn = False
                if self._kind == "whole":
                    database._leave()
        except sqlite3.Error as failed:
            raise database.explain(database.path, failed) from failed


_LOST = "the transaction was rolled back"


@dataclass(slots=True)
class _Batch:
    """The state of jobs that are committed together.

    begun:   the transaction was begun. kept: how many jobs had ended before.
    joined:  the running job has changed something. saved: after a savepoint, because earlier jobs had, too.
    refusal: why the transaction could not be begun.
    """

    begun: bool = False
    kept: int = 0
    joined: bool = False
    saved: bool = False
    refusal: RelayError | None = None


def user_version(db: sqlite3.Connection) -> int:
    """Return the version of the tables in `db`; 0: there are none."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    return int(found)


def running_loop() -> Any:
    """Return the event loop that runs on this thread, None if there is none."""
    if (events := sys.modules.get("asyncio.events")) is None:
        return None
    try:
        return events.get_running_loop()
    except RuntimeError:
        return None


def _refuse_event_loop() -> None:
    if running_loop() is not None:
        raise RuntimeError("a database is used on the thread of an event loop: await Writer.run instead")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (this is called for every transaction)
    except OSError:
        return None
    return found.st_dev, found.st_ino
