"""Helpers for ledgers and other databases, with and without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging import posting
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits

T = TypeVar("T")


class Counting(sqlite3.Connection):
    """Records the statements of every connection once `counted` has installed it."""

    statements: ClassVar[list[str]] = []

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self.statements.append(sql)
        return super().execute(sql, *parameters)


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that returns the number of transactions committed since its last call."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Counting, **named))

    def count() -> int:
        found = Counting.statements.count("COMMIT")
        Counting.statements.clear()
        return found

    return count


def cost(ledger: Ledger, job: Callable[[], T]) -> tuple[int, T]:
    """Return the cost of `job`, in steps of SQLite's virtual machine, and its result."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with ledger.reading() as db:
        db.set_progress_handler(count, 1)
        result = job()
        db.set_progress_handler(None, 1)
    return steps, result


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a database's write lock, as another process would."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def send(
    ledger: Ledger,
    team: str,
    sender: str,
    recipients: Iterable[str],
    body: str,
    thread: str | None = None,
    *,
    channel: str | None = None,
    fanout: bool = False,
    limits: Limits | None = None,
    **more: Any,
) -> list[Message]:
    """Commit a message to each of `recipients`, without the checks of `post`."""
    outgoing = OutgoingMessage("", body, thread, **more)
    return ledger.outbox.send(
        team, sender, recipients, outgoing, channel=channel, fanout=fanout, limits=limits
    )


def post(
    ledger: Ledger,
    team: str,
    sender: str,
    to: str,
    body: str,
    *,
    limits: Limits | None = None,
    there: Callable[[str], bool] | None = None,
    **more: Any,
) -> list[Message]:
    """Accept a message as an agent or the user would send it. there: by default, the known agents."""
    there = there or (lambda name: bool(ledger.registry.known(team, name)))
    return posting.post(ledger, team, sender, OutgoingMessage(to, body, **more), limits, there=there)


async def in_ledger(place: Home | Path, job: Callable[[Ledger], T]) -> T:
    """Run `job` with the ledger of a home, or at a path, off the event loop."""

    def work() -> T:
        with Ledger(place if isinstance(place, Path) else place.ledger) as ledger:
            return job(ledger)

    return await asyncio.to_thread(work)


async def messages(home: Home) -> list[Message]:
    """Return the messages of `home`, oldest first."""
    return [entry.message for entry in await in_ledger(home, Ledger.messages)]


async def states(home: Home) -> list[State]:
    """Return the states of the messages of `home`, oldest first."""
    return [message.state for message in await messages(home)]
