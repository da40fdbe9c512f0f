"""The outbox: what agents of this home sent, until its end is known.

queued ── claim ──→ published ── sent ──→ receipt ──→ outcomes
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable

from relay import names
from relay.bus.database import COLUMNS, Database, message_of
from relay.bus.envelope import Parcel, Receipt
from relay.bus.message import Message, State

# From which states a receipt (or the sender's own progress) may move a row. An expired message may still have
# been on its way: the truth from its receiver wins.
_BEFORE: dict[State, tuple[State, ...]] = {
    State.SENT: (State.QUEUED,),
    State.STORED: (State.QUEUED, State.SENT, State.EXPIRED),
    State.INJECTED: (State.QUEUED, State.SENT, State.STORED, State.EXPIRED, State.UNCERTAIN),
    State.UNCERTAIN: (State.QUEUED, State.SENT, State.STORED, State.EXPIRED),
    State.REJECTED: (State.QUEUED, State.SENT, State.STORED, State.EXPIRED, State.UNCERTAIN),
    State.EXPIRED: (State.QUEUED, State.SENT),
}


class Outbox:
    def __init__(self, db: Database) -> None:
        self._db = db

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
        now = self._db.now()
        state = State.STORED if arrived else State.QUEUED
        messages = [Message(secrets.token_hex(8), sender, to, body, now, state, thread) for to in recipients]
        with self._db.transaction() as db:
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
        now = self._db.now()
        who = (names.key(team), names.key(sender))
        # A look without a write lock first: most wake-ups find nothing.
        due = "FROM outbox WHERE team = ? AND sender_key = ? AND state IN ('queued', 'sent') AND due <= ?"
        with self._db.reading() as db:
            if db.execute(f"SELECT 1 {due} LIMIT 1", (*who, now)).fetchone() is None:
                return []
        with self._db.transaction() as db:
            rows = db.execute(
                f"SELECT {COLUMNS}, to_key, sequence, attempts, place {due} ORDER BY place LIMIT ?",
                (*who, now, limit),
            ).fetchall()
            bases: dict[str, int] = {}
            parcels = []
            for *fields, to_key, sequence, attempts, place in rows:
                message = message_of(fields)
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
                parcels.append(Parcel(message, self._db.origin, sequence, bases[to_key]))
        return parcels

    def next_due(self, team: str, sender: str) -> float | None:
        """Seconds (of the clock) when a message of `sender` is due, or None."""
        with self._db.reading() as db:
            (due,) = db.execute(
                "SELECT min(due) FROM outbox WHERE team = ? AND sender_key = ? "
                "AND state IN ('queued', 'sent')",
                (names.key(team), names.key(sender)),
            ).fetchone()
        return None if due is None else float(due)

    def resume(self, team: str, sender: str) -> None:
        """Make due at once what `sender` committed and nobody has published."""
        with self._db.transaction() as db:
            db.execute(
                "UPDATE outbox SET due = ? WHERE team = ? AND sender_key = ? AND state = 'queued'",
                (self._db.now(), names.key(team), names.key(sender)),
            )

    def appeared(self, team: str, receiver: str, sender: str) -> None:
        """Make due at once what waits for `receiver` to appear, and all that `sender` has under way to it."""
        with self._db.transaction() as db:
            db.execute(
                "UPDATE outbox SET due = ? WHERE team = ? AND to_key = ? AND state IN ('queued', 'sent') "
                "AND (sender_key = ? OR due IS NULL)",
                (self._db.now(), names.key(team), names.key(receiver), names.key(sender)),
            )

    def sent(self, ids: Iterable[str]) -> None:
        """The broker took these."""
        with self._db.transaction() as db:
            db.executemany(
                "UPDATE outbox SET state = 'sent', told = 'sent' WHERE id = ? AND state = 'queued'",
                [(id,) for id in ids],
            )

    def receipt(self, team: str, receipt: Receipt) -> None:
        """Note what became of a message, as its receiver says; a receipt for an unknown one is ignored."""
        with self._db.transaction() as db:
            advance(
                db,
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
        query = f"SELECT {COLUMNS} FROM outbox WHERE team = ? AND sender_key = ? AND told IS NOT state"
        with self._db.reading() as db:
            if db.execute(f"{query} LIMIT 1", who).fetchone() is None:
                return []
        with self._db.transaction() as db:
            rows = db.execute(f"{query} ORDER BY place", who).fetchall()
            db.execute(
                "UPDATE outbox SET told = state WHERE team = ? AND sender_key = ? AND told IS NOT state", who
            )
        return [message_of(row) for row in rows]

    def senders_with_mail(self, team: str) -> list[str]:
        """The agents of this home that have something to publish in `team` now."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT DISTINCT sender FROM outbox WHERE team = ? AND state IN ('queued', 'sent') "
                "AND due <= ?",
                (names.key(team), self._db.now()),
            ).fetchall()
        return [sender for (sender,) in rows]


def advance(
    db: sqlite3.Connection,
    where: str,
    values: tuple[object, ...],
    state: State,
    detail: str | None = None,
    route: str | None = None,
    role: str | None = None,
) -> None:
    """Move outbox rows to `state` where that is a step forward."""
    before = ", ".join(f"'{earlier}'" for earlier in _BEFORE[state])
    db.execute(
        f"UPDATE outbox SET state = ?, detail = ?, route = ?, role = ? WHERE {where} AND state IN ({before})",
        (state, detail, route, role, *values),
    )
