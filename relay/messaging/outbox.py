"""The outbox: what agents of this home sent, until its end is known.

    (held) ─→ queued ── claim ──→ published ── sent ──→ receipt ──→ outcomes

The messages of one sender to one receiver with one priority are a stream: numbered from 1, and given to the
receiver in that order.
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from relay import names
from relay.errors import MessageRefused
from relay.message import Message, OutgoingMessage, Priority, State
from relay.messaging import runaway
from relay.messaging.envelope import Envelope, Receipt
from relay.messaging.ledger_database import COLUMNS, LedgerDatabase, message_of
from relay.messaging.runaway import Guard, Limits

WINDOW = 256
"""Messages of a stream that are under way unconfirmed, at most. Brokers keep some 1,000 for one client and
drop, acknowledged, what comes after (max_queued_messages of mosquitto.conf(5))."""

# From which states a receipt (or the sender's own progress) may move a row. An expired message may still have
# been on its way, and one whose receiver has moved may have reached it: the truth from its receiver wins.
# But a broker may bring an old receipt again after a newer one: *stored* never replaces *uncertain*.
_UNTOLD = (State.QUEUED, State.SENT, State.EXPIRED)
_BEFORE: dict[State, tuple[State, ...]] = {
    State.SENT: (State.QUEUED,),
    State.STORED: _UNTOLD,
    State.INJECTED: (*_UNTOLD, State.STORED, State.UNCERTAIN),
    State.UNCERTAIN: (*_UNTOLD, State.STORED),
    State.REJECTED: (*_UNTOLD, State.STORED, State.UNCERTAIN),
    State.EXPIRED: (State.HELD, State.QUEUED, State.SENT, State.STORED),
}

_STREAM = "team = ? AND sender_key = ? AND to_key = ? AND priority = ?"
_PENDING = "state IN ('queued', 'sent')"

_MANY = 10_000  # how many rows are changed in one transaction, at most


class Outbox:
    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def send(
        self,
        team: str,
        sender: str,
        recipients: Iterable[str],
        outgoing: OutgoingMessage,
        *,
        channel: str | None = None,
        fanout: bool = False,
        limits: Limits | None = None,
    ) -> list[Message]:
        """Commit `outgoing` to each of `recipients`, to be published at once.

        One for the person needs no journey: the person of this home reads it in the ledger.

        channel: the channel to which it goes. fanout: it is one broadcast to all of them.
        limits:  what the runaway guard allows; None: anything. What exceeds them is held.

        Raises MessageRefused, and commits nothing, when too much of the sender's waits.
        """
        now = self._db.now()
        ttl = runaway.WEEK if outgoing.ttl is None else outgoing.ttl
        draft = Message(
            id="",
            sender=sender,
            to="",
            body=outgoing.body,
            time=time.time(),
            thread=outgoing.thread,
            reply_to=outgoing.reply_to,
            priority=outgoing.priority,
            channel=channel,
            depth=outgoing.depth,
            expires=now + ttl if ttl else None,
        )
        batch = secrets.token_hex(8) if fanout else None
        messages = []
        with self._db.transaction() as db:
            guard = None
            if limits is not None:
                _check_room(db, names.key(team), names.key(sender), limits)
                guard = Guard(
                    db, names.key(team), names.key(sender), now, limits, depth=outgoing.depth, fanout=fanout
                )
            for to in recipients:
                message = replace(draft, id=secrets.token_hex(8), to=to)
                pair = (names.key(team), names.key(sender), names.key(to))
                if guard is not None and (why := guard.suspicion(pair[2])) is not None:
                    message = replace(message, state=State.HELD, detail=why)
                elif names.same(to, names.PERSON) and not names.same(sender, names.PERSON):
                    message = replace(message, state=State.STORED, expires=None)
                sequence = _next(db, (*pair, message.priority.rank)) if message.state is State.QUEUED else 0
                _insert(db, pair, message, sequence, accepted=now, fanout=batch)
                messages.append(message)
        return messages

    def claim(
        self,
        team: str,
        sender: str,
        delay: Callable[[str, int], float | None],
        limit: int,
        home: Callable[[str], str | None] = lambda receiver: None,
        size: int = sys.maxsize,
    ) -> list[Envelope]:
        """Up to `limit` messages of `sender` that are due, in order; they are due again after `delay`.

        Of each stream no more than WINDOW are under way; the others are due when these are confirmed.

        delay: seconds for (receiver, number of attempts), or None to wait until the receiver appears.
        home:  the ledger that the receiver has now, None if it is away: it may get the message.
        size:  after how many characters of bodies no further one is taken.
        Two processes that claim at once never get the same message.
        """
        now = self._db.now()
        who = (names.key(team), names.key(sender))
        # A look without a write lock first: most wake-ups find nothing.
        due = f"FROM outbox WHERE team = ? AND sender_key = ? AND {_PENDING} AND due <= ?"
        with self._db.reading() as db:
            if db.execute(f"SELECT 1 {due} LIMIT 1", (*who, now)).fetchone() is None:
                return []
        with self._db.transaction() as db:
            bases = _bases(db, who, now)
            rows = db.execute(
                f"SELECT {COLUMNS}, to_key, sequence, attempts, home, place {due} "
                "ORDER BY priority, place LIMIT ?",
                (*who, now, limit),
            ).fetchall()
            envelopes = []
            for *fields, to_key, sequence, attempts, may_have_it, place in rows:
                if size <= 0:
                    break
                message = message_of(fields)
                size -= len(message.body)
                wait = delay(message.to, attempts + 1)
                target = home(message.to) or may_have_it
                db.execute(
                    "UPDATE outbox SET attempts = attempts + 1, due = ?, home = ? WHERE place = ?",
                    (None if wait is None else now + wait, target, place),
                )
                base = bases[to_key, message.priority.rank]
                ttl = None if message.expires is None else max(0.0, message.expires - now)
                origin = self._db.origin
                if message.priority is not Priority.NORMAL:
                    origin += f"/{message.priority}"
                envelopes.append(Envelope(message, origin, sequence, base, ttl, target))
        return envelopes

    def park(self, team: str, sender: str, present: Callable[[str], bool]) -> None:
        """Let what is due for receivers that are not `present` wait, unpublished, until they appear."""
        due = f"team = ? AND sender_key = ? AND {_PENDING} AND due <= ?"
        values = (names.key(team), names.key(sender), self._db.now())
        with self._db.reading() as db:
            receivers = db.execute(f"SELECT DISTINCT recipient FROM outbox WHERE {due}", values).fetchall()
        absent = [names.key(receiver) for (receiver,) in receivers if not present(receiver)]
        if absent:
            with self._db.transaction() as db:
                db.executemany(
                    f"UPDATE outbox SET due = NULL WHERE {due} AND to_key = ?",
                    [(*values, to) for to in absent],
                )

    def reopen(self, team: str, sender: str, present: Callable[[str], bool]) -> None:
        """Make due what waits though its receiver is `present` and nothing before it is under way."""
        who = (names.key(team), names.key(sender))
        with self._db.reading() as db:
            receivers = db.execute(
                f"SELECT DISTINCT recipient FROM outbox WHERE team = ? AND sender_key = ? AND {_PENDING} "
                "AND due IS NULL",
                who,
            ).fetchall()
        here = [names.key(receiver) for (receiver,) in receivers if present(receiver)]
        if here:
            with self._db.transaction() as db:
                for to in here:
                    for priority in Priority:
                        _slide(db, (*who, to, priority.rank), self._db.now())

    def next_due(self, team: str, sender: str) -> float | None:
        """In how many seconds a message of `sender` is due, at the earliest 0; None if none is."""
        with self._db.reading() as db:
            (due,) = db.execute(
                f"SELECT min(due) FROM outbox WHERE team = ? AND sender_key = ? AND {_PENDING}",
                (names.key(team), names.key(sender)),
            ).fetchone()
        return None if due is None else max(0.0, float(due) - self._db.now())

    def resume(self, team: str, sender: str) -> None:
        """Make due at once what `sender` committed and nobody has published."""
        with self._db.transaction() as db:
            db.execute(
                "UPDATE outbox SET due = ? WHERE team = ? AND sender_key = ? AND state = 'queued'",
                (self._db.now(), names.key(team), names.key(sender)),
            )

    def appeared(self, team: str, receiver: str, sender: str, home: str | None = None) -> None:
        """Make due at once what waits for `receiver` to appear, and all that `sender` has under way to it.

        home: the ledger that it has now. What it may have got when it had another, and never confirmed, is
        uncertain: sent again, it might be given to it twice.
        """
        pair = (names.key(team), names.key(receiver))
        pending = f"FROM outbox WHERE team = ? AND to_key = ? AND {_PENDING}"
        with self._db.reading() as db:  # for most who appear nothing waits, and all sessions of the home look
            if db.execute(f"SELECT 1 {pending} LIMIT 1", pair).fetchone() is None:
                return
        with self._db.transaction() as db:
            if home is not None:
                moved = db.execute(f"SELECT id {pending} AND home <> ?", (*pair, home)).fetchall()
                detail = f"{receiver} was on another host, and may have got it there"
                for (id,) in moved:
                    advance(db, "id = ?", (id,), State.UNCERTAIN, detail)
            db.execute(
                "UPDATE outbox SET due = ?, attempts = min(attempts, 1) WHERE team = ? AND to_key = ? "
                f"AND {_PENDING} AND (sender_key = ? OR due IS NULL)",
                (self._db.now(), *pair, names.key(sender)),
            )

    def sent(self, ids: Iterable[str]) -> None:
        """The broker took these."""
        with self._db.transaction() as db:
            db.executemany(
                "UPDATE outbox SET state = 'sent', told = 'sent', detail = NULL "
                "WHERE id = ? AND state = 'queued'",
                [(id,) for id in ids],
            )

    def hindered(self, team: str, sender: str, why: str) -> None:
        """Say of what `sender` has not sent yet why that is so."""
        with self._db.transaction() as db:
            db.execute(
                "UPDATE outbox SET detail = ? WHERE team = ? AND sender_key = ? AND state = 'queued' "
                "AND detail IS NOT ?",
                (why, names.key(team), names.key(sender), why),
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
            found = db.execute(
                "SELECT team, sender_key, to_key, priority, sequence FROM outbox WHERE id = ?", (receipt.id,)
            ).fetchone()
            if found is not None:
                *stream, sequence = found
                now = self._db.now()
                base = _slide(db, tuple(stream), now)
                if receipt.state is State.STORED and base is not None and base > sequence:
                    # What was tried before and is now the first of its stream may be held back at the
                    # receiver by those that it need not wait for any more (`Envelope.base`): tell it now.
                    db.execute(
                        "UPDATE outbox SET due = ? WHERE attempts > 1 AND state = 'sent' AND sequence = ? "
                        f"AND {_STREAM}",
                        (now, base, *stream),
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

    def expire(self) -> int:
        """Give up what has waited for too long; how many messages that were."""
        past = (self._db.now(), _MANY)
        which = f"FROM outbox WHERE {_PENDING} AND expires <= ? LIMIT ?"
        with self._db.reading() as db:
            if db.execute(f"SELECT 1 {which}", past).fetchone() is None:
                return 0
        with self._db.transaction() as db:
            ids = [id for (id,) in db.execute(f"SELECT id {which}", past)]
            for id in ids:
                why = (
                    "it was never sent"
                    if _state(db, id) == State.QUEUED
                    else "its receiver did not confirm it"
                )
                advance(db, "id = ?", (id,), State.EXPIRED, f"{why} in time")
            unblock(db, ids, self._db.now())
        return len(ids)

    def release(self, ids: Iterable[str]) -> list[Message]:
        """Let held messages go, in the order in which they were sent; those that were held.

        They expire as long after this as they would have after they were sent.
        """
        now = self._db.now()
        with self._db.transaction() as db:
            rows = [
                row
                for id in ids
                for row in db.execute(
                    f"SELECT place, team, sender_key, to_key, {COLUMNS} FROM outbox "
                    "WHERE id = ? AND state = 'held'",
                    (id,),
                )
            ]
            rows.sort()
            for place, team, sender, to, *_, rank, _channel, _depth, _expires in rows:
                person = names.same(to, names.PERSON)  # who reads it in the ledger
                sequence = 0 if person else _next(db, (team, sender, to, rank))
                db.execute(
                    "UPDATE outbox SET state = ?1, told = ?1, detail = NULL, depth = 0, due = ?2, "
                    "sequence = ?3, expires = iif(?4, NULL, expires + ?2 - accepted) WHERE place = ?5",
                    (State.STORED if person else State.QUEUED, now, sequence, person, place),
                )
            for pair in {(team, sender, to) for _, team, sender, to, *_ in rows}:
                runaway.note_release(db, *pair)
        return [message_of(fields) for _, _, _, _, *fields in rows]

    def senders_with_mail(self, team: str) -> list[str]:
        """The agents of this home that have something to publish in `team` now."""
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT DISTINCT sender FROM outbox WHERE team = ? AND {_PENDING} AND due <= ?",
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


def unblock(db: sqlite3.Connection, ids: Iterable[str], now: float) -> None:
    """Publish again, with a new base, what must no longer wait for the messages `ids`."""
    for stream in {
        row
        for id in ids
        for row in db.execute("SELECT team, sender_key, to_key, priority FROM outbox WHERE id = ?", (id,))
    }:
        db.execute(f"UPDATE outbox SET due = ? WHERE state = 'sent' AND {_STREAM}", (now, *stream))
        _slide(db, stream, now)


def _base(db: sqlite3.Connection, stream: tuple[str, str, str, int]) -> int | None:
    """The first sequence of a stream (team, sender, receiver, priority) that is not confirmed."""
    (base,) = db.execute(
        f"SELECT min(sequence) FROM outbox WHERE {_STREAM} AND {_PENDING}", stream
    ).fetchone()
    return None if base is None else int(base)


def _bases(db: sqlite3.Connection, who: tuple[str, str], now: float) -> dict[tuple[str, int], int]:
    """The bases of the streams of `who` (team, sender) in which something is due.

    What is due beyond their windows is put off.
    """
    bases: dict[tuple[str, int], int] = {}
    streams = db.execute(
        "SELECT DISTINCT to_key, priority FROM outbox WHERE team = ? AND sender_key = ? "
        f"AND {_PENDING} AND due <= ?",
        (*who, now),
    ).fetchall()
    for stream in streams:
        base = _base(db, (*who, *stream))
        assert base is not None  # something of it is due
        bases[stream] = base
        db.execute(
            f"UPDATE outbox SET due = NULL WHERE {_STREAM} AND {_PENDING} AND sequence >= ? "
            "AND due IS NOT NULL",
            (*who, *stream, base + WINDOW),
        )
    return bases


def _slide(db: sqlite3.Connection, stream: tuple[str, str, str, int], now: float) -> int | None:
    """Make due what lies within the window of a stream and waits; its base, None where nothing is pending."""
    base = _base(db, stream)
    if base is not None:
        db.execute(
            f"UPDATE outbox SET due = ? WHERE {_STREAM} AND {_PENDING} AND due IS NULL AND sequence < ?",
            (now, *stream, base + WINDOW),
        )
    return base


def _check_room(db: sqlite3.Connection, team: str, sender: str, limits: Limits) -> None:
    if not limits.queue:
        return
    waiting = 0
    for which in (_PENDING, "state = 'held'"):
        (count,) = db.execute(
            "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE team = ? AND sender_key = ? "
            f"AND {which} LIMIT {limits.queue})",
            (team, sender),
        ).fetchone()
        waiting += count
    if waiting >= limits.queue:
        raise MessageRefused(
            f"{waiting} messages of this sender wait already, and no more are taken. "
            "`relay messages` shows for whom; wait until they have arrived, or `relay drop` them."
        )


def _next(db: sqlite3.Connection, stream: tuple[str, str, str, int]) -> int:
    """The next sequence of a stream: team, sender, receiver, priority."""
    ((sequence,),) = db.execute(
        "INSERT INTO streams VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last",
        stream,
    ).fetchall()
    return int(sequence)


def _insert(
    db: sqlite3.Connection,
    pair: tuple[str, str, str],
    message: Message,
    sequence: int,
    *,
    accepted: float,
    fanout: str | None,
) -> None:
    row = {
        "id": message.id,
        "team": pair[0],
        "sender": message.sender,
        "sender_key": pair[1],
        "recipient": message.to,
        "to_key": pair[2],
        "body": message.body,
        "time": message.time,
        "thread": message.thread,
        "sequence": sequence,
        "state": message.state,
        "detail": message.detail,
        "told": message.state,
        "due": accepted,
        "reply_to": message.reply_to,
        "priority": message.priority.rank,
        "channel": message.channel,
        "depth": message.depth,
        "expires": message.expires,
        "accepted": accepted,
        "fanout": fanout,
    }
    db.execute(
        f"INSERT INTO outbox ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
    )


def _state(db: sqlite3.Connection, id: str) -> str:
    return str(db.execute("SELECT state FROM outbox WHERE id = ?", (id,)).fetchone()[0])
