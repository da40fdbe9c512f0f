"""The ledger: every message of one home, written down before it travels and until it is settled.

One SQLite file per home, shared by all its processes.  Two tables hold the two ends of a message: `outbox`
what agents of this home sent, `inbox` what arrived for them; a message between two agents of one home is
in both.  All calls are synchronous, take well under a millisecond, and each is one transaction.

WAL with synchronous=NORMAL: what was committed survives kill -9 of every process.  After a power failure
the last commits may be missing, never the file's integrity (https://sqlite.org/pragma.html#pragma_synchronous);
the price of FULL would be a disk flush on each step of each message.

Raises LedgerError, with advice, when the file cannot be used.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from relay import names
from relay.bus import schema
from relay.bus.envelope import Parcel, Receipt
from relay.bus.message import Message, State
from relay.errors import LedgerError, MessageRefused

BUSY_SECONDS = 2.0
KEEP_DAYS = 30
"""Days for which settled messages are remembered, and with them the ids that are not taken twice."""

_MESSAGE = "id, sender, recipient, body, time, state, thread, detail, route, role"

# From which states a receipt (or the sender's own progress) may move an outbox row. An expired message may
# still have been on its way: the truth from its receiver wins.
_BEFORE: dict[State, tuple[State, ...]] = {
    State.SENT: (State.QUEUED,),
    State.STORED: (State.QUEUED, State.SENT, State.EXPIRED),
    State.INJECTED: (State.QUEUED, State.SENT, State.STORED, State.EXPIRED, State.UNCERTAIN),
    State.UNCERTAIN: (State.QUEUED, State.SENT, State.STORED, State.EXPIRED),
    State.REJECTED: (State.QUEUED, State.SENT, State.STORED, State.EXPIRED, State.UNCERTAIN),
    State.EXPIRED: (State.QUEUED, State.SENT),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as `relay messages` shows it."""

    message: Message
    team: str


class Ledger:
    """One connection to a home's ledger; use it from one thread."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        with self._guard():
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._guard():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The registry: every name that was ever in a team.

    def register(self, team: str, name: str, seen: float | None = None) -> None:
        """Note that `name` was in `team` at `seen` (default: now); its latest spelling is kept."""
        now = self._clock()
        with self._transaction() as db:
            db.execute(
                "INSERT INTO registry VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name, "
                "seen = max(seen, excluded.seen)",
                (names.key(team), names.key(name), name, now if seen is None else min(seen, now)),
            )

    def known(self, team: str, within: float | None = None) -> list[str]:
        """The names ever seen in `team`, or those seen `within` so many seconds, sorted."""
        since = float("-inf") if within is None else self._clock() - within
        with self._guard():
            rows = self._db.execute(
                "SELECT name FROM registry WHERE team = ? AND seen >= ? ORDER BY key",
                (names.key(team), since),
            ).fetchall()
        return [name for (name,) in rows]

    # The sender's side.

    def send(
        self,
        team: str,
        sender: str,
        recipients: Iterable[str],
        body: str,
        thread: str | None = None,
        *,
        arrived: bool = False,
    ) -> list[Message]:
        """Commit one message to each of `recipients`, to be published at once.

        arrived: it needs no journey, being for the person of this home, who reads it in the ledger.
        """
        now = self._clock()
        state = State.STORED if arrived else State.QUEUED
        messages = [Message(secrets.token_hex(8), sender, to, body, now, state, thread) for to in recipients]
        with self._transaction() as db:
            for message in messages:
                pair = (names.key(team), names.key(sender), names.key(message.to))
                ((sequence,),) = db.execute(
                    "INSERT INTO sequences VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET last = last + 1 "
                    "RETURNING last",
                    pair,
                ).fetchall()
                db.execute(
                    "INSERT INTO outbox (id, team, sender, sender_key, recipient, to_key, body, time, "
                    "thread, sequence, state, told, due) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(message.id, pair[0], sender, pair[1], message.to, pair[2], body, now, thread),
                        *(sequence, state, state, now),
                    ),
                )
        return messages

    def claim(
        self, team: str, sender: str, delay: Callable[[str, int], float | None], limit: int
    ) -> list[Parcel]:
        """Up to `limit` messages of `sender` that are due, in order; they are due again after `delay`.

        delay: seconds for (receiver, number of attempts), or None to wait until the receiver appears.
        Two processes that claim at once never get the same message.
        """
        now = self._clock()
        who = (names.key(team), names.key(sender))
        # A look without a write lock first: most wake-ups find nothing.
        due = "FROM outbox WHERE team = ? AND sender_key = ? AND state IN ('queued', 'sent') AND due <= ?"
        with self._guard():
            if self._db.execute(f"SELECT 1 {due} LIMIT 1", (*who, now)).fetchone() is None:
                return []
        with self._transaction() as db:
            rows = db.execute(
                f"SELECT {_MESSAGE}, to_key, sequence, attempts, place {due} ORDER BY place LIMIT ?",
                (*who, now, limit),
            ).fetchall()
            bases: dict[str, int] = {}
            parcels = []
            for *fields, to_key, sequence, attempts, place in rows:
                message = _message(fields)
                wait = delay(message.to, attempts + 1)
                db.execute(
                    "UPDATE outbox SET attempts = attempts + 1, due = ? WHERE place = ?",
                    (None if wait is None else now + wait, place),
                )
                if to_key not in bases:
                    ((bases[to_key],),) = db.execute(
                        "SELECT min(sequence) FROM outbox WHERE team = ? AND sender_key = ? AND to_key = ? "
                        "AND state IN ('queued', 'sent')",
                        (*who, to_key),
                    ).fetchall()
                parcels.append(Parcel(message, self._origin, sequence, bases[to_key]))
        return parcels

    def next_due(self, team: str, sender: str) -> float | None:
        """Seconds (of the clock) when a message of `sender` is due, or None."""
        with self._guard():
            (due,) = self._db.execute(
                "SELECT min(due) FROM outbox WHERE team = ? AND sender_key = ? "
                "AND state IN ('queued', 'sent')",
                (names.key(team), names.key(sender)),
            ).fetchone()
        return None if due is None else float(due)

    def resume(self, team: str, sender: str) -> None:
        """Make due at once what `sender` committed and nobody has published."""
        with self._transaction() as db:
            db.execute(
                "UPDATE outbox SET due = ? WHERE team = ? AND sender_key = ? AND state = 'queued'",
                (self._clock(), names.key(team), names.key(sender)),
            )

    def appeared(self, team: str, receiver: str, sender: str) -> None:
        """Make due at once what waits for `receiver` to appear, and all that `sender` has under way to it."""
        with self._transaction() as db:
            db.execute(
                "UPDATE outbox SET due = ? WHERE team = ? AND to_key = ? AND state IN ('queued', 'sent') "
                "AND (sender_key = ? OR due IS NULL)",
                (self._clock(), names.key(team), names.key(receiver), names.key(sender)),
            )

    def sent(self, ids: Iterable[str]) -> None:
        """The broker took these."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE outbox SET state = 'sent', told = 'sent' WHERE id = ? AND state = 'queued'",
                [(id,) for id in ids],
            )

    def receipt(self, team: str, receipt: Receipt) -> None:
        """Note what became of a message, as its receiver says; a receipt for an unknown one is ignored."""
        with self._transaction():
            self._advance(
                "id = ? AND team = ? AND sender_key = ? AND to_key = ?",
                (receipt.id, names.key(team), names.key(receipt.sender), names.key(receipt.receiver)),
                receipt.state,
                receipt.detail,
                receipt.route,
                receipt.role,
            )

    def outcomes(self, team: str, sender: str) -> list[Message]:
        """The messages of `sender` whose state changed since the last call, oldest first."""
        who = (names.key(team), names.key(sender))
        query = f"SELECT {_MESSAGE} FROM outbox WHERE team = ? AND sender_key = ? AND told IS NOT state"
        with self._guard():
            if self._db.execute(f"{query} LIMIT 1", who).fetchone() is None:
                return []
        with self._transaction() as db:
            rows = db.execute(f"{query} ORDER BY place", who).fetchall()
            db.execute(
                "UPDATE outbox SET told = state WHERE team = ? AND sender_key = ? AND told IS NOT state", who
            )
        return [_message(row) for row in rows]

    def senders_with_mail(self, team: str) -> list[str]:
        """The agents of this home that have something to publish in `team` now."""
        with self._guard():
            rows = self._db.execute(
                "SELECT DISTINCT sender FROM outbox WHERE team = ? AND state IN ('queued', 'sent') "
                "AND due <= ?",
                (names.key(team), self._clock()),
            ).fetchall()
        return [sender for (sender,) in rows]

    # The receiver's side.

    def store(self, team: str, parcel: Parcel) -> list[Message]:
        """Commit an arrived message; return those whose turn it is because of it, in order.

        One that overtook another has no receipt before its turn has come, so that its sender goes on to
        publish it, and with it what need not be waited for any more (`Parcel.base`).  A message that is
        known already is not stored again, but its receipt is sent again: the sender seems to lack it.  One
        that its sender dropped meanwhile is not taken.
        """
        message = parcel.message
        pair = (names.key(team), names.key(message.to), names.key(message.sender))
        same = "id = ? AND team = ? AND to_key = ? AND sender_key = ?"
        with self._transaction() as db:
            dropped = db.execute(
                f"SELECT 1 FROM outbox WHERE {same} AND state = 'expired'", (message.id, *pair)
            ).fetchone()
            if dropped is None:
                db.execute(
                    "INSERT INTO inbox (id, team, sender, sender_key, recipient, to_key, body, time, thread, "
                    "origin, sequence, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'stored') "
                    "ON CONFLICT DO UPDATE SET receipted = NULL",
                    (
                        *(message.id, pair[0], message.sender, pair[2], message.to, pair[1], message.body),
                        *(message.time, message.thread, parcel.origin, parcel.sequence),
                    ),
                )
            released = self._release((*pair, parcel.origin), parcel.base)
            for each in released:
                self._advance(same, (each.id, *pair), State.STORED)
        return released

    def waiting(self, team: str, name: str) -> list[Message]:
        """What is stored for `name`, its turn come and not yet being typed, in order."""
        with self._guard():
            rows = self._db.execute(
                f"SELECT {_MESSAGE} FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
                "AND place IS NOT NULL AND NOT injecting ORDER BY place",
                (names.key(team), names.key(name)),
            ).fetchall()
        return [_message(row) for row in rows]

    def injecting(self, team: str, name: str, id: str) -> None:
        """Note that typing message `id` into `name` begins; MessageRefused if it waits no more."""
        with self._transaction() as db:
            marked = db.execute(
                "UPDATE inbox SET injecting = 1 WHERE team = ? AND to_key = ? AND id = ? "
                "AND state = 'stored'",
                (names.key(team), names.key(name), id),
            )
            if not marked.rowcount:
                raise MessageRefused("it was dropped before it could be typed.")

    def settle(
        self,
        team: str,
        name: str,
        id: str,
        state: State,
        detail: str | None = None,
        *,
        route: str | None = None,
        role: str | None = None,
    ) -> None:
        """Note what became of message `id` at `name`: injected, uncertain or rejected; and how it got there.

        Or stored: typing it, which `injecting` announced, has not begun after all, and it waits again.
        """
        if state not in {State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED}:
            raise ValueError(f"a receiver cannot settle a message as {state}")
        with self._transaction() as db:
            if state is State.STORED:
                db.execute(
                    "UPDATE inbox SET injecting = 0 WHERE team = ? AND to_key = ? AND id = ? "
                    "AND state = 'stored'",
                    (names.key(team), names.key(name), id),
                )
                return
            db.execute(
                "UPDATE inbox SET state = ?, detail = ?, route = ?, role = ? WHERE team = ? AND to_key = ? "
                "AND id = ? AND state IN ('stored', 'uncertain')",
                (state, detail, route, role, names.key(team), names.key(name), id),
            )
            self._advance(
                "id = ? AND team = ? AND to_key = ?",
                (id, names.key(team), names.key(name)),
                state,
                detail,
                route,
                role,
            )

    def recover(self, team: str, name: str) -> list[Message]:
        """Mark as uncertain what a dead session of `name` was typing; it is never typed again by itself."""
        with self._guard():
            rows = self._db.execute(
                f"SELECT {_MESSAGE} FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
                "AND injecting",
                (names.key(team), names.key(name)),
            ).fetchall()
        for id, *_ in rows:
            self.settle(team, name, id, State.UNCERTAIN, "the receiver ended while it was being typed")
        return [_message(row) for row in rows]

    def receipts(self, team: str, name: str, limit: int) -> list[Receipt]:
        """Up to `limit` receipts of `name` that the broker has not taken yet, oldest first."""
        with self._guard():
            rows = self._db.execute(
                "SELECT id, recipient, sender, state, detail, route, role FROM inbox WHERE team = ? "
                "AND to_key = ? AND receipted IS NOT state AND place IS NOT NULL ORDER BY place LIMIT ?",
                (names.key(team), names.key(name), limit),
            ).fetchall()
        return [Receipt(id, to, sender, State(state), *how) for id, to, sender, state, *how in rows]

    def receipted(self, team: str, receipts: Iterable[Receipt]) -> None:
        """The broker took these."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE inbox SET receipted = ? WHERE team = ? AND to_key = ? AND id = ?",
                [(r.state, names.key(team), names.key(r.receiver), r.id) for r in receipts],
            )

    # The person's side.

    def messages(
        self,
        *,
        team: str | None = None,
        to: str | None = None,
        sender: str | None = None,
        between: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The latest `limit` messages of this home, oldest first; one for each message.

        between: only those that this agent sent or is sent.
        """
        conditions = ["NOT hidden"]
        values: list[str] = []
        for column, value in (("team", team), ("to_key", to), ("sender_key", sender)):
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(names.key(value))
        if between is not None:
            conditions.append("(to_key = ? OR sender_key = ?)")
            values += [names.key(between)] * 2
        where = " AND ".join(conditions)
        with self._guard():
            rows = self._db.execute(
                f"SELECT * FROM (SELECT {_MESSAGE}, team, place AS nr FROM outbox WHERE {where} UNION ALL "
                f"SELECT {_MESSAGE}, team, arrival FROM inbox WHERE {where} "
                "AND id NOT IN (SELECT id FROM outbox)) ORDER BY time DESC, nr DESC LIMIT ?",
                (*values, *values, -1 if limit is None else limit),
            ).fetchall()
        return [Entry(_message(message), team) for *message, team, _ in reversed(rows)]

    def lookup(self, ids: Iterable[str]) -> list[Entry]:
        """The messages with these ids that this home sent."""
        with self._guard():
            rows = [
                row
                for id in ids
                for row in self._db.execute(f"SELECT {_MESSAGE}, team FROM outbox WHERE id = ?", (id,))
            ]
        return [Entry(_message(message), team) for *message, team in rows]

    def find(self, prefix: str) -> Entry:
        """The message whose id begins with `prefix`; LedgerError if it is none or several."""
        pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        with self._guard():
            rows = self._db.execute(
                f"SELECT {_MESSAGE}, team FROM outbox WHERE id LIKE ?1 ESCAPE '\\' UNION ALL "
                f"SELECT {_MESSAGE}, team FROM inbox WHERE id LIKE ?1 ESCAPE '\\' "
                "AND id NOT IN (SELECT id FROM outbox) LIMIT 2",
                (pattern,),
            ).fetchall()
        if len(rows) != 1:
            what = "several messages have ids that begin" if rows else "no message has an id that begins"
            raise LedgerError(f"{what} with {prefix!a}. `relay messages` lists them.")
        *found, team = rows[0]
        return Entry(_message(found), team)

    def retry(self, id: str) -> Message:
        """Send message `id` again: what is on its way at once, what is settled anew, in a new place.

        A settled message keeps its id and its honest state; the new one has an id of its own, since a
        receiver ignores an id that it has seen. LedgerError when it waits at its receiver already.
        """
        entry = self.find(id)
        message = entry.message
        with self._guard():
            ours = self._db.execute("SELECT 1 FROM outbox WHERE id = ?", (message.id,)).fetchone()
        if ours is None:
            raise LedgerError(
                f"message {message.id} was sent from another home; ask {message.sender} to send it again."
            )
        if message.state is State.STORED:
            raise LedgerError(f"message {message.id} has arrived and waits until {message.to} is ready.")
        if not message.state.final:
            with self._transaction() as db:
                db.execute("UPDATE outbox SET due = ? WHERE id = ?", (self._clock(), message.id))
            return message
        (again,) = self.send(entry.team, message.sender, [message.to], message.body, message.thread)
        with self._transaction() as db:
            db.execute("UPDATE outbox SET detail = ? WHERE id = ?", (f"sent again as {again.id}", message.id))
        return again

    def drop(self, id: str) -> Message:
        """Give up message `id`: what waits will not be typed, what is settled is no longer listed.

        Returns it as it was. One that the broker has may still arrive elsewhere, and its state then says so.
        LedgerError, and nothing is changed, when it is too late for that.
        """
        with self._transaction() as db:
            message = self.find(id).message
            detail = "dropped by the person"
            if message.state.final:
                for table in ("outbox", "inbox"):
                    db.execute(f"UPDATE {table} SET hidden = 1 WHERE id = ?", (message.id,))
            elif db.execute(
                "UPDATE inbox SET state = 'rejected', detail = ? WHERE id = ? AND state = 'stored' "
                "AND NOT injecting",
                (detail, message.id),
            ).rowcount:
                self._advance("id = ?", (message.id,), State.REJECTED, detail)
            elif message.state is State.STORED:
                raise LedgerError(
                    f"message {message.id} cannot be dropped any more: it is being typed into {message.to}, "
                    "or has arrived in another home. `relay messages` shows what becomes of it."
                )
            else:
                self._advance("id = ?", (message.id,), State.EXPIRED, detail)
                # Those behind it must no longer wait for it: publish them again, with a new base.
                db.execute(
                    "UPDATE outbox SET due = ? WHERE state = 'sent' AND (team, sender_key, to_key) IN "
                    "(SELECT team, sender_key, to_key FROM outbox WHERE id = ?)",
                    (self._clock(), message.id),
                )
        return message

    def prune(self) -> None:
        """Forget what was settled more than KEEP_DAYS ago."""
        before = self._clock() - KEEP_DAYS * 86400
        final = ", ".join(f"'{state}'" for state in State if state.final)
        with self._transaction() as db:
            for table in ("outbox", "inbox"):
                db.execute(f"DELETE FROM {table} WHERE state IN ({final}) AND time < ?", (before,))

    def version(self) -> int:
        """A number that changes whenever another process has written."""
        with self._guard():
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _advance(
        self,
        where: str,
        values: tuple[object, ...],
        state: State,
        detail: str | None = None,
        route: str | None = None,
        role: str | None = None,
    ) -> None:
        """Move outbox rows to `state` where that is a step forward."""
        before = ", ".join(f"'{earlier}'" for earlier in _BEFORE[state])
        self._db.execute(
            f"UPDATE outbox SET state = ?, detail = ?, route = ?, role = ? WHERE {where} "
            f"AND state IN ({before})",
            (state, detail, route, role, *values),
        )

    def _release(self, stream: tuple[str, str, str, str], base: int) -> list[Message]:
        """Give places to the messages of a stream that nothing before them holds back any more."""
        db = self._db
        which = "team = ? AND to_key = ? AND sender_key = ? AND origin = ?"
        row = db.execute(f"SELECT next FROM pairs WHERE {which}", stream).fetchone()
        following = max(base, row[0] if row else 1)
        while db.execute(
            f"SELECT 1 FROM inbox WHERE {which} AND sequence = ? LIMIT 1", (*stream, following)
        ).fetchone():
            following += 1
        if row is None or following != row[0]:
            db.execute(
                "INSERT INTO pairs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
                (*stream, following),
            )
        held = db.execute(
            f"SELECT arrival, {_MESSAGE} FROM inbox WHERE {which} AND place IS NULL AND sequence < ? "
            "ORDER BY sequence",
            (*stream, following),
        ).fetchall()
        for arrival, *_ in held:
            db.execute(
                "UPDATE inbox SET place = (SELECT ifnull(max(place), 0) + 1 FROM inbox) WHERE arrival = ?",
                (arrival,),
            )
        messages = [_message(fields) for _, *fields in held]
        return [message for message in messages if message.state is State.STORED]  # the others were dropped

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        if schema.version(db) < schema.VERSION:
            with self._transaction():
                if schema.version(db) == 0:  # nobody was faster
                    schema.create(db)
                else:
                    schema.migrate(db)
        if schema.version(db) != schema.VERSION:
            raise LedgerError(
                f"{self._path} was written by another version of relay. Upgrade relay, or move it away."
            )
        (self._origin,) = db.execute("SELECT origin FROM meta").fetchone()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guard():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise schema.explain(self._path, error) from None


def _message(row: Iterable[object]) -> Message:
    id, sender, recipient, body, time_, state, *rest = row
    thread, detail, route, role = (None if each is None else str(each) for each in rest)
    return Message(
        id=str(id),
        sender=str(sender),
        to=str(recipient),
        body=str(body),
        time=float(str(time_)),
        state=State(str(state)),
        thread=thread,
        detail=detail,
        route=route,
        role=role,
    )
