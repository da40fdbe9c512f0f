"""The inbox: what arrived for agents of this home, until it is given to them.

store ──→ waiting ──→ injecting ──→ settle        and for each step a receipt to the sender
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import replace

from relay.errors import LedgerError, MessageRefused
from relay.message import Message, State
from relay.messaging.envelope import Envelope, Receipt
from relay.messaging.ledger_database import COLUMNS, LedgerDatabase, insert, keys, message_of
from relay.messaging.outbox import advance

KEEP_DAYS = 30
"""Days for which settled messages are kept; their ids are not taken twice."""

_OLD = KEEP_DAYS * 86400 / 2
"""Seconds; what was sent earlier may have been forgotten. Half of KEEP_DAYS: clocks of two hosts differ."""


class InboxFull(LedgerError):
    """Too much waits for a receiver. Its senders keep the rest, and try again."""


_ITS = "team = ? AND to_key = ? AND id = ?"
_PAIR = "team = ? AND to_key = ? AND sender_key = ?"
_STREAM = f"{_PAIR} AND origin = ?"

_COUNT = (  # the third value: also those whose turn has not come
    "SELECT count(*) FROM (SELECT 1 FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
    "AND (? OR place IS NOT NULL) LIMIT ?)"
)


class Inbox:
    """The messages that arrived. Names may be spelled in any way."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def store(self, team: str, envelope: Envelope, most: int = 0) -> list[Message]:
        """Commit an arrived message; return the messages whose turn has come with it, in order.

        A message that overtook another gets no receipt before its turn, so that its sender publishes it again
        with a new `Envelope.base`.  A message that is known already gets another receipt: its sender seems to
        lack it.  A message that its sender has given up meanwhile is ignored, and so is one for another home
        of the receiver: it may have been typed there, and its sender says so (`Outbox.appeared`).  A message
        so old that `prune` may have forgotten it is uncertain.

        Raise InboxFull if `most` (0: any number) wait for the receiver: the message stays with its sender.
        """
        if envelope.home not in {None, self._db.origin}:
            return []
        message, now = envelope.message, self._db.now()
        pair = keys(team, message.to, message.sender)
        same, its = f"{_PAIR} AND id = ?", (*pair, message.id)
        with self._db.transaction() as db:
            forgotten = False
            dropped = self._db.rows(f"SELECT 1 FROM outbox WHERE {same} AND state = 'expired'", *its)
            if not (dropped or db.execute(f"UPDATE inbox SET receipted = NULL WHERE {same}", its).rowcount):
                turn = _turn(db, (*pair, envelope.origin))
                if envelope.sequence < turn:
                    # Its sender let others go before it: it was given up, or confirmed by another home.
                    if message.time >= now - _OLD:
                        return []
                    forgotten = True
                # What others wait for is refused only if these have their turn already.
                whole = envelope.sequence > max(turn, envelope.base)
                if most and self._db.rows(_COUNT, *pair[:2], whole, most) == [(most,)]:
                    raise InboxFull(
                        f"{most} messages wait for {message.to}; further ones stay with their senders."
                    )
                expires = None if envelope.ttl is None else now + envelope.ttl
                new = replace(message, state=State.STORED, expires=expires)
                place = {"origin": envelope.origin, "sequence": envelope.sequence}
                insert(db, "inbox", team, new, accepted=now, **place)
            if forgotten:
                detail = "it came again, and may have been given to its receiver long ago"
                db.execute(f"UPDATE inbox SET state = 'uncertain', detail = ? WHERE {same}", (detail, *its))
                advance(db, same, its, State.UNCERTAIN, detail)
            released = _release(db, (*pair, envelope.origin), envelope.base)
            for each in released:
                advance(db, same, (*pair, each.id), State.STORED)
        return released

    def waiting(self, team: str, name: str, limit: int = -1) -> list[Message]:
        """Return the first `limit` messages (-1: all) that may be typed into `name` now, in order."""
        query = (
            f"SELECT {COLUMNS} FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' "
            "AND place IS NOT NULL AND NOT injecting ORDER BY priority, place LIMIT ?"
        )
        return [message_of(row) for row in self._db.rows(query, *keys(team, name), limit)]

    def stored(self, team: str, name: str) -> set[str]:
        """Return the ids of all that is stored for `name`: what waits, and what is being typed."""
        query = "SELECT id FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored'"
        return {id for (id,) in self._db.rows(query, *keys(team, name))}

    def injecting(self, team: str, name: str, id: str) -> None:
        """Note that typing message `id` into `name` begins. Raise MessageRefused if it waits no more."""
        mark = f"UPDATE inbox SET injecting = 1 WHERE {_ITS} AND state = 'stored'"
        if not self._db.write(mark, *keys(team, name), id):
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
        """Note the end of message `id` at `name` (injected, uncertain or rejected) and how it got there.

        With `stored`: typing it, which `injecting` announced, has not begun after all, and it waits again.
        """
        if state not in {State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED}:
            raise ValueError(f"a receiver cannot settle a message as {state}")
        its = (*keys(team, name), id)
        if state is State.STORED:
            self._db.write(f"UPDATE inbox SET injecting = 0 WHERE {_ITS} AND state = 'stored'", *its)
            return
        end = (state, detail, route, role)
        with self._db.transaction() as db:
            settled = db.execute(
                "UPDATE inbox SET state = ?, detail = ?, route = ?, role = ? "
                f"WHERE {_ITS} AND state IN ('stored', 'uncertain')",
                (*end, *its),
            )
            if settled.rowcount:  # else it has come to another end meanwhile
                advance(db, _ITS, its, *end)

    def expire(self, team: str, name: str) -> int:
        """Give up what has waited too long at `name` and is not being typed; return how many messages."""
        receiver = keys(team, name)
        late = (
            "SELECT id FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' AND NOT injecting "
            "AND expires <= ?"
        )
        due = (*receiver, self._db.now())
        if not self._db.rows(f"{late} LIMIT 1", *due):
            return 0
        detail = "its receiver was not ready in time"
        with self._db.transaction() as db:
            ids = self._db.rows(late, *due)
            for id in ids:
                its = (*receiver, *id)
                db.execute(f"UPDATE inbox SET state = 'expired', detail = ? WHERE {_ITS}", (detail, *its))
                advance(db, _ITS, its, State.EXPIRED, detail)
        return len(ids)

    def begun(self, team: str) -> list[str]:
        """Return the agents of `team` into which something is being typed, as far as the ledger knows."""
        query = "SELECT DISTINCT recipient FROM inbox WHERE team = ? AND state = 'stored' AND injecting"
        return [name for (name,) in self._db.rows(query, *keys(team))]

    def recover(self, team: str, name: str, in_hand: Collection[str] = ()) -> list[Message]:
        """Mark as uncertain, and return, what a dead session of `name` was typing.

        in_hand: the ids of messages that a living session is giving to the agent; these are left alone.
        """
        query = (
            f"SELECT {COLUMNS} FROM inbox WHERE team = ? AND to_key = ? AND state = 'stored' AND injecting"
        )
        left = [message_of(row) for row in self._db.rows(query, *keys(team, name)) if row[0] not in in_hand]
        why = "the receiver ended while it was being typed"
        for message in left:
            self.settle(team, name, message.id, State.UNCERTAIN, why)
        return left

    def receipts(self, team: str, name: str, limit: int) -> list[Receipt]:
        """Return up to `limit` receipts of `name` that the broker has not taken yet, oldest first."""
        rows = self._db.rows(
            "SELECT id, recipient, sender, state, detail, route, role FROM inbox WHERE team = ? "
            "AND to_key = ? AND receipted IS NOT state AND place IS NOT NULL ORDER BY place LIMIT ?",
            *keys(team, name),
            limit,
        )
        return [Receipt(id, to, sender, State(state), *how) for id, to, sender, state, *how in rows]

    def receipted(self, team: str, receipts: Iterable[Receipt]) -> None:
        """Note that the broker took these receipts."""
        with self._db.transaction() as db:
            db.executemany(
                f"UPDATE inbox SET receipted = ? WHERE {_ITS}",
                [(each.state, *keys(team, each.receiver), each.id) for each in receipts],
            )


def _turn(db: sqlite3.Connection, stream: tuple[str, ...]) -> int:
    """Return the sequence in (team, receiver, sender, origin) below which all have had their turn."""
    row = db.execute(f"SELECT next FROM pairs WHERE {_STREAM}", stream).fetchone()
    return int(row[0]) if row else 1


def _release(db: sqlite3.Connection, stream: tuple[str, ...], base: int) -> list[Message]:
    """Give places to the messages of a stream that nothing before them holds back any more."""
    turn = _turn(db, stream)
    following = max(base, turn)
    arrived = f"SELECT 1 FROM inbox WHERE {_STREAM} AND sequence = ? LIMIT 1"
    while db.execute(arrived, (*stream, following)).fetchone():
        following += 1
    if following != turn:
        db.execute(
            "INSERT INTO pairs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
            (*stream, following),
        )
    held = db.execute(
        f"SELECT arrival, {COLUMNS} FROM inbox WHERE {_STREAM} AND place IS NULL AND sequence < ? "
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
