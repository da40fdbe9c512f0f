"""The inbox: what arrived for agents of this home, until it was given to them.

store ──→ waiting ──→ injecting ──→ settle        and for each step a receipt to the sender
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from relay import names
from relay.errors import LedgerError, MessageRefused
from relay.message import Message, State
from relay.messaging.envelope import Envelope, Receipt
from relay.messaging.ledger_database import COLUMNS, LedgerDatabase, message_of
from relay.messaging.outbox import advance

KEEP_DAYS = 30
"""Days for which settled messages are remembered, and with them the ids that are not taken twice."""

_OLD = KEEP_DAYS * 86400 / 2
"""Seconds; what was sent longer ago may have been forgotten. Half of them: the clocks of two hosts differ."""


class InboxFull(LedgerError):
    """Too much waits for a receiver; its senders keep the rest, and try again."""


class Inbox:
    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def store(self, team: str, envelope: Envelope, most: int = 0) -> list[Message]:
        """Commit an arrived message; return those whose turn it is because of it, in order.

        One that overtook another has no receipt before its turn has come, so that its sender goes on to
        publish it, and with it what need not be waited for any more (`Envelope.base`).  A message that is
        known already is not stored again, but its receipt is sent again: the sender seems to lack it.  One
        that its sender has given up meanwhile is not taken, and one that may have been forgotten here
        (`prune`) is uncertain.  One for another home of its receiver's name is not taken: the broker brings
        it there too, and it may have been typed there; its sender says so (`Outbox.appeared`).

        Raises InboxFull when `most` wait for the receiver: the message stays with its sender.
        """
        if envelope.home not in {None, self._db.origin}:
            return []
        message = envelope.message
        expires = None if envelope.ttl is None else self._db.now() + envelope.ttl
        pair = (names.key(team), names.key(message.to), names.key(message.sender))
        same = "id = ? AND team = ? AND to_key = ? AND sender_key = ?"
        with self._db.transaction() as db:
            dropped = db.execute(
                f"SELECT 1 FROM outbox WHERE {same} AND state = 'expired'", (message.id, *pair)
            ).fetchone()
            forgotten = False
            if dropped is None:
                if not _is_known(db, message.id, pair):
                    turn = _turn(db, (*pair, envelope.origin))
                    if envelope.sequence < turn:
                        # Its sender let others go before it: it was given up, or confirmed by another home.
                        if message.time >= self._db.now() - _OLD:
                            return []
                        forgotten = True
                    # What others wait for is refused only if these have their turn already.
                    if most and _is_full(
                        db, pair[:2], most, all=envelope.sequence > max(turn, envelope.base)
                    ):
                        raise InboxFull(
                            f"{most} messages wait for {message.to}; further ones stay with their senders."
                        )
                db.execute(
                    "INSERT INTO inbox (id, team, sender, sender_key, recipient, to_key, body, time, thread, "
                    "origin, sequence, reply_to, priority, channel, depth, expires, accepted, state) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'stored') "
                    "ON CONFLICT DO UPDATE SET receipted = NULL",
                    (
                        *(message.id, pair[0], message.sender, pair[2], message.to, pair[1], message.body),
                        *(message.time, message.thread, envelope.origin, envelope.sequence, message.reply_to),
                        *(message.priority.rank, message.channel, message.depth, expires, self._db.now()),
                    ),
                )
            if forgotten:
                detail = "it came again, and may have been given to its receiver long ago"
                where = (message.id, *pair)
                db.execute(f"UPDATE inbox SET state = 'uncertain', detail = ? WHERE {same}", (detail, *where))
                advance(db, same, where, State.UNCERTAIN, detail)
            released = _release(db, (*pair, envelope.origin), envelope.base)
            for each in released:
                advance(db, same, (each.id, *pair), State.STORED)
        return released

    def waiting(self, team: str, name: str, limit: int = -1) -> list[Message]:
        """What is stored for `name`, its turn come and not yet being typed, in order; the first `limit`."""
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
                "AND place IS NOT NULL AND NOT injecting ORDER BY priority, place LIMIT ?",
                (names.key(team), names.key(name), limit),
            ).fetchall()
        return [message_of(row) for row in rows]

    def stored(self, team: str, name: str) -> set[str]:
        """The ids of all that is stored for `name`: what waits, and what is being typed."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT id FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored'",
                (names.key(team), names.key(name)),
            ).fetchall()
        return {id for (id,) in rows}

    def injecting(self, team: str, name: str, id: str) -> None:
        """Note that typing message `id` into `name` begins; MessageRefused if it waits no more."""
        with self._db.transaction() as db:
            marked = db.execute(
                "UPDATE inbox SET injecting = 1 WHERE team = ? AND to_key = ? AND id = ? "
                "AND state = 'stored'",
                (names.key(team), names.key(name), id),
            )
            if not marked.rowcount:
                raise MessageRefused("it was dropped, or has expired, before it could be typed.")

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
        with self._db.transaction() as db:
            if state is State.STORED:
                db.execute(
                    "UPDATE inbox SET injecting = 0 WHERE team = ? AND to_key = ? AND id = ? "
                    "AND state = 'stored'",
                    (names.key(team), names.key(name), id),
                )
                return
            settled = db.execute(
                "UPDATE inbox SET state = ?, detail = ?, route = ?, role = ? WHERE team = ? AND to_key = ? "
                "AND id = ? AND state IN ('stored', 'uncertain')",
                (state, detail, route, role, names.key(team), names.key(name), id),
            )
            if not settled.rowcount:
                return  # it has come to another end meanwhile
            advance(
                db,
                "id = ? AND team = ? AND to_key = ?",
                (id, names.key(team), names.key(name)),
                state,
                detail,
                route,
                role,
            )

    def expire(self, team: str, name: str) -> int:
        """Give up what has waited at `name` for too long and is not being typed; how many that were."""
        values = (names.key(team), names.key(name), self._db.now())
        which = (
            "FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' AND NOT injecting AND expires <= ?"
        )
        with self._db.reading() as db:
            if db.execute(f"SELECT 1 {which} LIMIT 1", values).fetchone() is None:
                return 0
        detail = "its receiver was not ready in time"
        with self._db.transaction() as db:
            ids = [id for (id,) in db.execute(f"SELECT id {which}", values)]
            for id in ids:
                same = "id = ? AND team = ? AND to_key = ?"
                db.execute(
                    f"UPDATE inbox SET state = 'expired', detail = ? WHERE {same}", (detail, id, *values[:2])
                )
                advance(db, same, (id, *values[:2]), State.EXPIRED, detail)
        return len(ids)

    def begun(self, team: str) -> list[str]:
        """The agents of `team` into which something is being typed, as far as the ledger knows."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT DISTINCT recipient FROM inbox WHERE team = ? AND state = 'stored' AND injecting",
                (names.key(team),),
            ).fetchall()
        return [name for (name,) in rows]

    def recover(self, team: str, name: str, in_hand: Collection[str] = ()) -> list[Message]:
        """Mark as uncertain what a dead session of `name` was typing; it is never typed again by itself.

        in_hand: the ids of those that a living one is giving to the agent.
        """
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
                "AND injecting",
                (names.key(team), names.key(name)),
            ).fetchall()
        left = [message_of(row) for row in rows if row[0] not in in_hand]
        for message in left:
            self.settle(
                team, name, message.id, State.UNCERTAIN, "the receiver ended while it was being typed"
            )
        return left

    def receipts(self, team: str, name: str, limit: int) -> list[Receipt]:
        """Up to `limit` receipts of `name` that the broker has not taken yet, oldest first."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT id, recipient, sender, state, detail, route, role FROM inbox WHERE team = ? "
                "AND to_key = ? AND receipted IS NOT state AND place IS NOT NULL ORDER BY place LIMIT ?",
                (names.key(team), names.key(name), limit),
            ).fetchall()
        return [Receipt(id, to, sender, State(state), *how) for id, to, sender, state, *how in rows]

    def receipted(self, team: str, receipts: Iterable[Receipt]) -> None:
        """The broker took these."""
        with self._db.transaction() as db:
            db.executemany(
                "UPDATE inbox SET receipted = ? WHERE team = ? AND to_key = ? AND id = ?",
                [(r.state, names.key(team), names.key(r.receiver), r.id) for r in receipts],
            )


def _is_full(db: sqlite3.Connection, receiver: tuple[str, ...], most: int, *, all: bool) -> bool:
    """Whether `most` messages wait for (team, name); all: also those whose turn has not come."""
    (waiting,) = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
        "AND (? OR place IS NOT NULL) LIMIT ?)",
        (*receiver, all, most),
    ).fetchone()
    return int(waiting) >= most


def _turn(db: sqlite3.Connection, stream: tuple[str, str, str, str]) -> int:
    """The sequence in (team, receiver, sender, origin) below which all have had their turn."""
    row = db.execute(
        "SELECT next FROM pairs WHERE team = ? AND to_key = ? AND sender_key = ? AND origin = ?", stream
    ).fetchone()
    return int(row[0]) if row else 1


def _is_known(db: sqlite3.Connection, id: str, pair: tuple[str, str, str]) -> bool:
    found = db.execute(
        "SELECT 1 FROM inbox WHERE id = ? AND team = ? AND to_key = ? AND sender_key = ?", (id, *pair)
    )
    return found.fetchone() is not None


def _release(db: sqlite3.Connection, stream: tuple[str, str, str, str], base: int) -> list[Message]:
    """Give places to the messages of a stream that nothing before them holds back any more."""
    which = "team = ? AND to_key = ? AND sender_key = ? AND origin = ?"
    turn = _turn(db, stream)
    following = max(base, turn)
    while db.execute(
        f"SELECT 1 FROM inbox WHERE {which} AND sequence = ? LIMIT 1", (*stream, following)
    ).fetchone():
        following += 1
    if following != turn:
        db.execute(
            "INSERT INTO pairs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
            (*stream, following),
        )
    held = db.execute(
        f"SELECT arrival, {COLUMNS} FROM inbox WHERE {which} AND place IS NULL AND sequence < ? "
        "ORDER BY sequence",
        (*stream, following),
    ).fetchall()
    for arrival, *_ in held:
        db.execute(
            "UPDATE inbox SET place = (SELECT ifnull(max(place), 0) + 1 FROM inbox) WHERE arrival = ?",
            (arrival,),
        )
    messages = [message_of(fields) for _, *fields in held]
    return [message for message in messages if message.state is State.STORED]  # the others were dropped
