"""The outbox: messages that agents of this home sent, until their outcome is known.

    (held) ─→ queued ── claim ──→ published ── sent ──→ receipt ──→ outcomes

The messages of one sender to one receiver (a name and its owner) with one priority form a stream: they are
numbered, and given to the receiver in that order.
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any

from relay import names
from relay.errors import MessageRefused, ReceiverEnded
from relay.message import Message, OutgoingMessage, Priority, State
from relay.messaging.envelope import Envelope, Receipt, origin_of
from relay.messaging.ledger_database import COLUMNS, LedgerDatabase, insert, keys, message_of
from relay.messaging.owner import addressee
from relay.messaging.runaway import WEEK, Guard, Limits
from relay.place import REQUEST, Place

WINDOW = 256
"""Maximum unconfirmed messages of a stream in flight. Brokers queue about 1,000 for one client; they
acknowledge further ones, but drop them (max_queued_messages of mosquitto.conf(5))."""

FIRST_ASK, LAST_ASK = 60.0, 3600.0
"""Seconds until the receiver's home is asked for the outcome of a message that it has: doubling."""

ASKING = 16
"""Maximum messages to ask about at one time; likewise for senders without a session."""

# The states from which a receipt (or the sender's own progress) may move a row. An expired message may still
# have been in flight, or have reached a receiver that has moved: the receiver's report wins.
# But a broker may redeliver an old receipt after a newer one: *stored* never replaces *uncertain*.
_UNTOLD = (State.QUEUED, State.SENT, State.EXPIRED)
_BEFORE: dict[State, tuple[State, ...]] = {
    State.SENT: (State.QUEUED,),
    State.STORED: _UNTOLD,
    State.INJECTED: (*_UNTOLD, State.STORED, State.UNCERTAIN),
    State.UNCERTAIN: (*_UNTOLD, State.STORED),
    State.REJECTED: (*_UNTOLD, State.STORED, State.UNCERTAIN),
    State.EXPIRED: (State.HELD, State.QUEUED, State.SENT, State.STORED),
}

_SENDER = "team = ? AND sender_key = ?"
_STREAM = f"{_SENDER} AND to_key = ? AND priority = ? AND owner IS ?"
_PENDING = "state IN ('queued', 'sent')"
_ELSEWHERE = "state = 'stored' AND ask IS NOT NULL"

_MANY = 10_000  # maximum rows changed in one transaction


class Outbox:
    """The messages that were sent. Names may have any spelling."""

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
        """Commit `outgoing` for each of `recipients`, and return the messages, which are due at once.

        A message to the user is stored at once: the user reads it in this home's ledger.

        channel: the channel to which it goes. fanout: it is one broadcast to all recipients.
        limits:  what the runaway guard allows; None: anything. A message beyond them is held.

        Raise MessageRefused, and commit nothing, if too many messages of the sender wait, or a receiver was a
        run that has ended; a broadcast omits such a receiver.
        """
        now = self._db.now()
        ttl = WEEK if outgoing.ttl is None else outgoing.ttl
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
        who = keys(team, sender)
        with self._db.transaction() as db:
            guard, (sent_by, _) = None, addressee(db, *who)
            if limits is not None:
                _check_room(db, who, limits)
                guard = Guard(db, who, now, limits, outgoing.depth, fanout)
            for to in recipients:
                message = replace(draft, id=secrets.token_hex(8), to=to)
                key = names.key(to)
                owner, ended = addressee(db, who[0], key)
                if ended and fanout:
                    continue
                if ended:
                    raise ReceiverEnded(
                        f"{to} has ended, and no agent has its name now. `relay ps` lists the agents; "
                        f"messages to a name given with `relay wrap -n {to}` wait for the next agent of that "
                        "name."
                    )
                if guard is not None and (why := guard.suspicion(key)) is not None:
                    message = replace(message, state=State.HELD, detail=why)
                elif names.same(to, names.PERSON) and not names.same(sender, names.PERSON):
                    message = replace(message, state=State.STORED, expires=None)
                queued = message.state is State.QUEUED
                sequence = _next(db, (*who, key, message.priority.rank)) if queued else 0
                more = {"sequence": sequence, "told": message.state, "fanout": batch}
                more |= {"owner": owner, "sent_by": sent_by}
                if outgoing.place is not None:
                    more |= {"session": outgoing.session, "said": str(outgoing.place)}
                insert(db, "outbox", team, message, due=now, accepted=now, **more)
                messages.append(message)
        return messages

    def committed(self, session: str) -> set[str]:
        """Return the places of the directives for which the session `session` has sent messages."""
        query = "SELECT said FROM outbox WHERE session = ? AND said NOT LIKE ?"
        return {place for (place,) in self._db.rows(query, session, f"{REQUEST}/%")}

    def sent_for(self, session: str, place: Place) -> list[Message]:
        """Return the messages that the session `session` sent for the directive or request at `place`."""
        query = f"SELECT {COLUMNS} FROM outbox WHERE session = ? AND said = ? ORDER BY place"
        return [message_of(row) for row in self._db.rows(query, session, str(place))]

    def claim(
        self,
        team: str,
        sender: str,
        delay: Callable[[str, int], float | None],
        limit: int,
        home: Callable[[str], str | None] = lambda receiver: None,
        size: int = sys.maxsize,
    ) -> list[Envelope]:
        """Return up to `limit` messages of `sender` that are due, in order; they are due again after `delay`.

        At most WINDOW of each stream are in flight; the others become due as these are confirmed.

        delay: seconds for (receiver, number of attempts), or None to wait until the receiver appears.
        home:  the receiver's current ledger, which may get the message; None if the receiver is away.
        size:  claim no further message after this many characters of bodies.
        Two processes that claim at the same time never get the same message.
        """
        now = self._db.now()
        who = keys(team, sender)
        due = f"FROM outbox WHERE {_SENDER} AND {_PENDING} AND due <= ?"
        # Look without a write lock first: most wake-ups find nothing.
        if not self._db.rows(f"SELECT 1 {due} LIMIT 1", *who, now):
            return []
        with self._db.transaction() as db:
            bases = _bases(db, who, now)
            rows = self._db.rows(
                f"SELECT {COLUMNS}, to_key, owner, sequence, attempts, home, place {due} "
                "ORDER BY priority, place LIMIT ?",
                *(*who, now, limit),
            )
            envelopes = []
            for *fields, to_key, owner, sequence, attempts, may_have_it, place in rows:
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
                base = bases[to_key, message.priority.rank, owner]
                ttl = None if message.expires is None else max(0.0, message.expires - now)
                origin = origin_of(self._db.origin, message.priority, owner)
                envelopes.append(Envelope(message, origin, sequence, base, ttl, target, owner))
        return envelopes

    def ask(self, team: str, sender: str, home: Callable[[str], str | None]) -> list[Envelope]:
        """Return messages of `sender` that wait in another home, to ask it for their outcomes.

        That home knows them, and answers each with a receipt, which replaces one that was lost or not heard.
        home: as for `claim`; a receiver that is away, or has moved, is not asked.
        """
        now = self._db.now()
        who = keys(team, sender)
        due = f"FROM outbox WHERE {_SENDER} AND {_ELSEWHERE} AND ask <= ?"
        if not self._db.rows(f"SELECT 1 {due} LIMIT 1", *who, now):
            return []
        envelopes = []
        with self._db.transaction() as db:
            query = (
                f"SELECT {COLUMNS}, owner, sequence, attempts, home, place {due} ORDER BY ask LIMIT {ASKING}"
            )
            for *fields, owner, sequence, attempts, its_home, place in self._db.rows(query, *who, now):
                message = message_of(fields)
                db.execute(
                    "UPDATE outbox SET attempts = attempts + 1, ask = ? WHERE place = ?",
                    (now + min(LAST_ASK, FIRST_ASK * 2.0 ** min(attempts + 1, 10)), place),
                )
                if its_home is not None and its_home == home(message.to):
                    origin = origin_of(self._db.origin, message.priority, owner)
                    # Its turn has come there already: nothing before it is missing.
                    envelopes.append(Envelope(message, origin, sequence, sequence, None, its_home, owner))
        return envelopes

    def park(self, team: str, sender: str, present: Callable[[str, str | None], bool]) -> None:
        """Defer messages due for receivers (name, owner) that are not `present` until they appear."""
        due = f"{_SENDER} AND {_PENDING} AND due <= ?"
        values = (*keys(team, sender), self._db.now())
        receivers = self._db.rows(f"SELECT DISTINCT recipient, owner FROM outbox WHERE {due}", *values)
        absent = [(*values, names.key(to), owner) for to, owner in receivers if not present(to, owner)]
        if absent:
            with self._db.transaction() as db:
                db.executemany(
                    f"UPDATE outbox SET due = NULL WHERE {due} AND to_key = ? AND owner IS ?", absent
                )

    def reopen(self, team: str, sender: str, present: Callable[[str, str | None], bool]) -> None:
        """Make messages in their window due if they still wait for a `present` receiver (name, owner)."""
        who = keys(team, sender)
        waits = f"{_SENDER} AND {_PENDING} AND due IS NULL"
        rows = self._db.rows(f"SELECT DISTINCT recipient, owner FROM outbox WHERE {waits}", *who)
        here = [(names.key(to), owner) for to, owner in rows if present(to, owner)]
        if here:
            with self._db.transaction() as db:
                for to, owner in here:
                    for priority in Priority:
                        _slide(db, (*who, to, priority.rank, owner), self._db.now())

    def next_due(self, team: str, sender: str) -> float | None:
        """Return the seconds until a message of `sender` is due, at least 0; None if there is none."""
        query = f"SELECT min(due) FROM outbox WHERE {_SENDER} AND {_PENDING}"
        ((due,),) = self._db.rows(query, *keys(team, sender))
        return None if due is None else max(0.0, float(due) - self._db.now())

    def resume(self, team: str, sender: str) -> None:
        """Make the messages of `sender` that are committed but not published due at once."""
        statement = f"UPDATE outbox SET due = ? WHERE {_SENDER} AND state = 'queued'"
        self._db.write(statement, self._db.now(), *keys(team, sender))

    def appeared(
        self, team: str, receiver: str, home: str | None = None, owner: str | None = None
    ) -> list[str]:
        """Make messages that wait for `receiver`, or are in flight to it, due at once; return the senders.

        owner: the owner of its name; messages for another owner keep waiting. None: not known.
        home: its current ledger. Messages that it may have received with another ledger, but never
        confirmed, become uncertain: sent again, they might be given to it twice.
        """
        pair = (*keys(team, receiver), owner)
        pending = (
            "FROM outbox WHERE team = ?1 AND to_key = ?2 AND (owner IS NULL OR ?3 IS NULL OR owner = ?3) "
            f"AND {_PENDING}"
        )
        senders = [sender for (sender,) in self._db.rows(f"SELECT DISTINCT sender {pending}", *pair)]
        if not senders:  # as for most agents that appear
            return []
        with self._db.transaction() as db:
            if home is not None:
                detail = f"{receiver} was on another host, and may have received it there"
                for id in self._db.rows(f"SELECT id {pending} AND home <> ?4", *pair, home):
                    advance(db, "id = ?", id, State.UNCERTAIN, detail)
            db.execute(
                "UPDATE outbox SET due = ?4, attempts = min(attempts, 1) "
                f"{pending.removeprefix('FROM outbox ')}",
                (*pair, self._db.now()),
            )
        return senders

    def sent(self, ids: Collection[str]) -> None:
        """Record that the broker has accepted these messages."""
        # Look without a write lock first: many have arrived by now.
        these = f"id IN ({', '.join('?' * len(ids))})"
        if not self._db.rows(f"SELECT 1 FROM outbox WHERE {these} AND state = 'queued' LIMIT 1", *ids):
            return
        with self._db.transaction() as db:
            db.executemany(
                "UPDATE outbox SET state = 'sent', told = 'sent', detail = NULL "
                "WHERE id = ? AND state = 'queued'",
                [(id,) for id in ids],
            )

    def hindered(self, team: str, sender: str, why: str) -> None:
        """Record why the queued messages of `sender` are not published."""
        statement = f"UPDATE outbox SET detail = ? WHERE {_SENDER} AND state = 'queued' AND detail IS NOT ?"
        self._db.write(statement, why, *keys(team, sender), why)

    def receipt(self, team: str, receipt: Receipt) -> bool:
        """Record the outcome of a message that its receiver reports; return False for an unknown message."""
        its = (receipt.id, *keys(team, receipt.sender, receipt.receiver))
        found = self._db.rows(
            "SELECT sequence, state, team, sender_key, to_key, priority, owner FROM outbox "
            f"WHERE id = ? AND {_SENDER} AND to_key = ?",
            *its,
        )
        with self._db.transaction() as db:
            for sequence, state, *stream in found:
                now = self._db.now()
                news = state != receipt.state  # False if both agents share one ledger
                if news:
                    end = (receipt.state, receipt.detail, receipt.route, receipt.role)
                    advance(db, "id = ?", its[:1], *end)
                if news and receipt.state is State.STORED:
                    db.execute(
                        "UPDATE outbox SET attempts = 0, ask = ? WHERE id = ? AND state = 'stored' "
                        "AND ask IS NULL AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.id = outbox.id)",
                        (now + FIRST_ASK, receipt.id),
                    )
                base = _slide(db, stream, now)
                if base is not None and (base > sequence or receipt.state.final):
                    # The message that is now first in its stream, if it was tried before, may wait at the
                    # receiver for messages that it need not wait for any more (`Envelope.base`), or found no
                    # room there until this one was settled: publish it again now.
                    db.execute(
                        "UPDATE outbox SET due = ? WHERE attempts > 1 AND state = 'sent' AND sequence = ? "
                        f"AND {_STREAM}",
                        (now, base, *stream),
                    )
        return bool(found)

    def outcomes(self, team: str, sender: str, owner: str | None = None) -> list[Message]:
        """Return the messages of `sender` whose state changed since the last call, oldest first.

        owner: the owner of the sender's name (None: not known); messages of other owners are left out.
        """
        who = (*keys(team, sender), owner)
        its_own = "(sent_by IS NULL OR ?3 IS NULL OR sent_by = ?3)"
        news = f"team = ?1 AND sender_key = ?2 AND told IS NOT state AND {its_own}"
        if not self._db.rows(f"SELECT 1 FROM outbox WHERE {news} LIMIT 1", *who):
            return []
        with self._db.transaction() as db:
            told = f"UPDATE outbox SET told = state WHERE {news} RETURNING place, {COLUMNS}"
            rows = sorted(db.execute(told, who).fetchall(), key=itemgetter(0))
        return [message_of(row) for _, *row in rows]

    def expire(self) -> int:
        """Expire messages that have waited too long; return their number.

        Messages that wait in another home are reported by that home; without a report they become uncertain.
        """
        now = self._db.now()
        silent = f"{_ELSEWHERE} AND expires <= ?"
        if self._db.rows(f"SELECT 1 FROM outbox WHERE {silent} LIMIT 1", now - 2 * LAST_ASK):
            with self._db.transaction() as db:
                detail = "it had arrived, but its receiver's host did not report the outcome"
                advance(db, silent, (now - 2 * LAST_ASK,), State.UNCERTAIN, detail)
        late = f"SELECT id, state FROM outbox WHERE {_PENDING} AND expires <= ? LIMIT ?"
        if not self._db.rows(late, now, 1):
            return 0
        with self._db.transaction() as db:
            found = self._db.rows(late, now, _MANY)
            for id, state in found:
                why = "it was never sent" if state == State.QUEUED else "its receiver did not confirm it"
                advance(db, "id = ?", (id,), State.EXPIRED, f"{why} in time")
            unblock(db, [id for id, _ in found], self._db.now())
        return len(found)

    def untold(self, team: str) -> list[str]:
        """Return the agents of this home in `team` for which `outcomes` has news."""
        query = "SELECT DISTINCT sender FROM outbox WHERE team = ? AND told IS NOT state"
        return [sender for (sender,) in self._db.rows(query, *keys(team))]

    def release(self, ids: Iterable[str]) -> list[Message]:
        """Release held messages, in the order in which they were sent; return those that were held.

        The time until they expire starts again.
        """
        now = self._db.now()
        held = (
            f"SELECT place, team, sender_key, to_key, {COLUMNS} FROM outbox WHERE id = ? AND state = 'held'"
        )
        with self._db.transaction() as db:
            rows = sorted(row for id in ids for row in self._db.rows(held, id))
            for place, team, sender, to, *_, rank, _channel, _depth, _expires in rows:
                person = names.same(to, names.PERSON)  # the user reads it in the ledger
                sequence = 0 if person else _next(db, (team, sender, to, rank))
                db.execute(
                    "UPDATE outbox SET state = ?1, told = ?1, detail = NULL, depth = 0, due = ?2, "
                    "sequence = ?3, expires = iif(?4, NULL, expires + ?2 - accepted) WHERE place = ?5",
                    (State.STORED if person else State.QUEUED, now, sequence, person, place),
                )
            # Messages that these pairs have sent so far no longer count (runaway.Guard).
            db.executemany(
                "INSERT OR REPLACE INTO releases SELECT ?1, ?2, ?3, max(place) FROM outbox "
                "WHERE team = ?1 AND sender_key = ?2 AND to_key = ?3",
                {(team, sender, to) for _, team, sender, to, *_ in rows},
            )
        return [message_of(fields) for _, _, _, _, *fields in rows]

    def senders_with_mail(self, team: str) -> list[str]:
        """Return the agents of this home with messages in `team` to publish, or to ask about, now."""
        its = (*keys(team), self._db.now())
        due = f"SELECT DISTINCT sender FROM outbox WHERE team = ? AND {_PENDING} AND due <= ?"
        asks = f"SELECT DISTINCT sender FROM outbox WHERE team = ? AND {_ELSEWHERE} AND ask <= ? LIMIT ?"
        found = [*self._db.rows(due, *its), *self._db.rows(asks, *its, ASKING)]
        return sorted({sender for (sender,) in found})


def advance(
    db: sqlite3.Connection,
    where: str,
    values: tuple[object, ...],
    state: State,
    detail: str | None = None,
    route: str | None = None,
    role: str | None = None,
) -> None:
    """Move outbox rows to `state` if that is a step forward."""
    before = ", ".join(f"'{earlier}'" for earlier in _BEFORE[state])
    db.execute(
        f"UPDATE outbox SET state = ?, detail = ?, route = ?, role = ? WHERE {where} AND state IN ({before})",
        (state, detail, route, role, *values),
    )


def unblock(db: sqlite3.Connection, ids: Iterable[str], now: float) -> None:
    """Republish, with a new base, the messages that no longer wait for the messages `ids`."""
    query = "SELECT team, sender_key, to_key, priority, owner FROM outbox WHERE id = ?"
    for stream in {row for id in ids for row in db.execute(query, (id,))}:
        db.execute(f"UPDATE outbox SET due = ? WHERE state = 'sent' AND {_STREAM}", (now, *stream))
        _slide(db, stream, now)


def _base(db: sqlite3.Connection, stream: Iterable[Any]) -> int | None:
    """Return the first unconfirmed sequence of a stream (the columns of _STREAM)."""
    query = f"SELECT min(sequence) FROM outbox WHERE {_STREAM} AND {_PENDING}"
    base: int | None = db.execute(query, (*stream,)).fetchone()[0]
    return base


def _bases(
    db: sqlite3.Connection, who: tuple[str, ...], now: float
) -> dict[tuple[str, int, str | None], int]:
    """Return the bases of the streams of `who` (team, sender) in which something is due.

    Messages due beyond their windows are deferred.
    """
    bases: dict[tuple[str, int, str | None], int] = {}
    query = f"SELECT DISTINCT to_key, priority, owner FROM outbox WHERE {_SENDER} AND {_PENDING} AND due <= ?"
    # Two queries in one: an index gives either end at once, but not both.
    span = f"(SELECT {{}}(sequence) FROM outbox WHERE {_STREAM} AND {_PENDING})"
    for stream in db.execute(query, (*who, now)).fetchall():
        ends = f"SELECT {span.format('min')}, {span.format('max')}"
        base, last = db.execute(ends, (*who, *stream) * 2).fetchone()
        bases[stream] = base
        if last >= base + WINDOW:
            db.execute(
                f"UPDATE outbox SET due = NULL WHERE {_STREAM} AND {_PENDING} AND sequence >= ? "
                "AND due IS NOT NULL",
                (*who, *stream, base + WINDOW),
            )
    return bases


def _slide(db: sqlite3.Connection, stream: Iterable[Any], now: float) -> int | None:
    """Make the waiting messages in a stream's window due; return its base (None: nothing is pending)."""
    base = _base(db, stream)
    if base is not None:
        db.execute(
            f"UPDATE outbox SET due = ? WHERE {_STREAM} AND {_PENDING} AND due IS NULL AND sequence < ?",
            (now, *stream, base + WINDOW),
        )
    return base


def _check_room(db: sqlite3.Connection, who: tuple[str, ...], limits: Limits) -> None:
    if not limits.queue:
        return
    count = "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE {} AND {} LIMIT ?)"
    counts = (count.format(_SENDER, which) for which in (_PENDING, "state = 'held'"))
    found = db.execute(" UNION ALL ".join(counts), (*who, limits.queue) * 2)
    waiting = sum(number for (number,) in found)
    if waiting >= limits.queue:
        raise MessageRefused(
            f"{waiting} messages from this sender are already waiting, and no more are accepted. `relay "
            "messages` lists them; wait until they arrive, or drop some with `relay drop`."
        )


def _next(db: sqlite3.Connection, stream: tuple[Any, ...]) -> int:
    """Return the next sequence of a stream: team, sender, receiver (all its owners), priority."""
    ((sequence,),) = db.execute(
        "INSERT INTO streams VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last",
        stream,
    ).fetchall()
    return int(sequence)
