"""The transit of messages to other homes, from their commit until the receivers' homes report the outcomes.

    queued ── claim ──→ published ── sent ──→ receipt

Messages between agents of one home are never in transit.  The messages of one sender to one receiver (a name
and its owner) with one priority form a stream: they are numbered, and the receiver's home gives them their
turns in that order.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

from relay import names
from relay.backoff import Backoff
from relay.message import State
from relay.messaging.envelope import Envelope, Receipt, copy_of
from relay.messaging.ledger_database import (
    COLUMNS,
    NEXT_TURN,
    LedgerDatabase,
    advance,
    keys,
    mark,
    message_of,
)

WINDOW = 256
"""Maximum unconfirmed messages of a stream in flight. Brokers queue about 1,000 for one client; they
acknowledge further ones, but drop them (max_queued_messages of mosquitto.conf(5))."""

ASK = Backoff(60.0, 3600.0)
"""The waits until the receiver's home is asked for the outcome of a message that it has."""

ASKING = 16
"""Maximum messages to ask about at one time; likewise for senders without a session."""

PENDING = "state IN ('queued', 'sent')"
ELSEWHERE = "state = 'stored' AND ask IS NOT NULL"
"""Conditions on a message that its receiver's home does not have, or has."""

_DUE = f"({PENDING} OR (here AND due IS NOT NULL))"  # in transit, or its copy is not published yet

_SENDER = "team = ? AND sender_key = ?"
_RECEIVER = "team = ? AND to_key = ? AND (owner IS NULL OR owner = ifnull(?, owner))"
_STREAM = f"{_SENDER} AND to_key = ? AND priority = ? AND owner IS ?"
_BASE = (  # the first unconfirmed sequence in the stream of a message
    "(SELECT min(sequence) FROM messages AS each WHERE each.team = messages.team "
    "AND each.sender_key = messages.sender_key AND each.to_key = messages.to_key "
    f"AND each.priority = messages.priority AND each.owner IS messages.owner AND {PENDING})"
)


class Transit:
    """The messages on their way to other homes. Names may have any spelling."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

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
        due = f"{_SENDER} AND {PENDING} AND due <= ?"
        # Look without a write lock first: most wake-ups find nothing.
        if not self._db.rows(f"SELECT 1 FROM messages WHERE {due} LIMIT 1", *who, now):
            return []
        with self._db.transaction() as db:
            beyond = f"sequence >= {_BASE} + {WINDOW}"
            db.execute(f"UPDATE messages SET due = NULL WHERE {due} AND {beyond}", (*who, now))
            rows = self._db.rows(
                f"SELECT {COLUMNS}, owner, sequence, {_BASE}, attempts, home, place FROM messages "
                f"WHERE {due} ORDER BY priority, place LIMIT ?",
                *(*who, now, limit),
            )
            envelopes = []
            for *fields, owner, sequence, base, attempts, may_have_it, place in rows:
                if size <= 0:
                    break
                message = message_of(fields)
                size -= len(message.body)
                wait = delay(message.to, attempts + 1)
                target = home(message.to) or may_have_it
                db.execute(
                    "UPDATE messages SET attempts = attempts + 1, due = ?, home = ? WHERE place = ?",
                    (None if wait is None else now + wait, target, place),
                )
                ttl = None if message.expires is None else max(0.0, message.expires - now)
                envelopes.append(Envelope(message, self._db.origin, sequence, base, ttl, target, owner))
        return envelopes

    def copies(self, team: str, sender: str) -> list[Envelope]:
        """Return envelopes for messages of `sender` within this home that are still to be published, once."""
        due = f"{_SENDER} AND {_DUE} AND here AND due <= ?"
        found = mark(self._db, "due = NULL", due, *keys(team, sender), self._db.now())
        return [copy_of(message, self._db.origin) for message in found]

    def ask(self, team: str, sender: str, home: Callable[[str], str | None]) -> list[Envelope]:
        """Return messages of `sender` that wait in another home, to ask it for their outcomes.

        That home knows them, and answers each with a receipt, which replaces one that was lost or not heard.
        home: as for `claim`; a receiver that is away, or has moved, is not asked.
        """
        now = self._db.now()
        who = keys(team, sender)
        due = f"FROM messages WHERE {_SENDER} AND {ELSEWHERE} AND ask <= ?"
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
                    "UPDATE messages SET attempts = attempts + 1, ask = ? WHERE place = ?",
                    (now + ASK.wait(attempts + 2), place),
                )
                if its_home is not None and its_home == home(message.to):
                    # Its turn has come there already: nothing before it is missing.
                    asked = Envelope(message, self._db.origin, sequence, sequence, None, its_home, owner)
                    envelopes.append(asked)
        return envelopes

    def park(self, team: str, sender: str, present: Callable[[str, str | None], bool]) -> None:
        """Defer messages due for receivers (name, owner) that are not `present` until they appear.

        Call it in one transaction with what `present` reads: one that appears meanwhile would be missed.
        """
        due = f"{_SENDER} AND {PENDING} AND due <= ?"
        values = (*keys(team, sender), self._db.now())
        receivers = self._db.rows(f"SELECT DISTINCT recipient, owner FROM messages WHERE {due}", *values)
        absent = [(*values, names.key(to), owner) for to, owner in receivers if not present(to, owner)]
        if absent:
            with self._db.transaction() as db:
                db.executemany(
                    f"UPDATE messages SET due = NULL WHERE {due} AND to_key = ? AND owner IS ?", absent
                )

    def next_due(self, team: str, sender: str) -> float | None:
        """Return the seconds until a message of `sender` is due, at least 0; None if there is none."""
        query = f"SELECT min(due) FROM messages WHERE {_SENDER} AND {_DUE} AND due IS NOT NULL"
        ((due,),) = self._db.rows(query, *keys(team, sender))
        return None if due is None else max(0.0, float(due) - self._db.now())

    def resume(self, team: str, sender: str) -> None:
        """Make the messages of `sender` that are committed but not published due at once."""
        statement = f"UPDATE messages SET due = ? WHERE {_SENDER} AND {PENDING} AND state = 'queued'"
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
        pending = f"{_RECEIVER} AND {PENDING}"
        query = f"SELECT DISTINCT sender FROM messages WHERE {pending}"
        senders = [sender for (sender,) in self._db.rows(query, *pair)]
        if not senders:  # as for most agents that appear
            return []
        with self._db.transaction() as db:
            if home is not None:
                self._give_up(pair, receiver, home)
            now = f"UPDATE messages SET due = ?, attempts = min(attempts, 1) WHERE {pending}"
            db.execute(now, (self._db.now(), *pair))
        return senders

    def begin(self, team: str, receiver: str, owner: str | None = None) -> None:
        """Put the messages sent here that wait here for `receiver` into transit: it runs in another home.

        owner: as for `appeared`. A message that a session is typing stays.
        """
        pair = (*keys(team, receiver), owner)
        waits = (
            f"SELECT place, sender_key, priority FROM messages WHERE {_RECEIVER} AND state = 'stored' "
            "AND here AND told IS NOT NULL AND NOT injecting ORDER BY turn"
        )
        if not self._db.rows(waits, *pair):
            return
        team, to = keys(team, receiver)
        with self._db.transaction() as db:
            for place, sender, rank in db.execute(waits, pair).fetchall():
                db.execute(
                    "UPDATE messages SET state = ?1, told = ?1, here = 0, turn = NULL, sequence = ?2, "
                    "attempts = due IS NULL WHERE place = ?3",  # its copy was published
                    (State.QUEUED, next_sequence(db, (team, sender, to, rank)), place),
                )

    def end(self, team: str, receiver: str, owner: str | None = None) -> None:
        """Store the messages in transit to `receiver` here: it runs in this home.

        owner: as for `appeared`, as are messages that it may have received in another home.
        """
        pair = (*keys(team, receiver), owner)
        pending = f"SELECT place FROM messages WHERE {_RECEIVER} AND {PENDING} ORDER BY sequence, place"
        if not self._db.rows(pending, *pair):
            return
        with self._db.transaction() as db:
            self._give_up(pair, receiver, self._db.origin)
            for place in db.execute(pending, pair).fetchall():
                db.execute(
                    "UPDATE messages SET state = 'stored', told = 'stored', detail = NULL, here = 1, "
                    f"turn = {NEXT_TURN}, due = iif(attempts, NULL, ?), home = NULL WHERE place = ?",
                    (self._db.now(), *place),
                )

    def _give_up(self, pair: tuple[str | None, ...], receiver: str, home: str) -> None:
        """Make the messages uncertain that the receiver may have received in another home than `home`."""
        detail = f"{receiver} was on another host, and may have received it there"
        elsewhere = f"{_RECEIVER} AND {PENDING} AND home <> ?"
        with self._db.transaction() as db:
            advance(db, elsewhere, (*pair, home), State.UNCERTAIN, detail)

    def sent(self, ids: Collection[str]) -> None:
        queued = f"id IN ({', '.join('?' * len(ids))}) AND state = 'queued'"  # many have arrived by now
        mark(self._db, "state = 'sent', told = 'sent', detail = NULL", queued, *ids)

    def hindered(self, team: str, sender: str, why: str) -> None:
        queued = f"{_SENDER} AND {PENDING} AND state = 'queued'"
        statement = f"UPDATE messages SET detail = ? WHERE {queued} AND detail IS NOT ?"
        self._db.write(statement, why, *keys(team, sender), why)

    def receipt(self, team: str, receipt: Receipt) -> None:
        """Record the outcome of a message that its receiver reports."""
        its = (receipt.id, *keys(team, receipt.sender, receipt.receiver))
        found = self._db.rows(
            "SELECT sequence, state, team, sender_key, to_key, priority, owner FROM messages "
            f"WHERE id = ? AND {_SENDER} AND to_key = ? AND told IS NOT NULL AND NOT here",
            *its,
        )
        with self._db.transaction() as db:
            for sequence, state, *stream in found:
                now = self._db.now()
                news = state != receipt.state
                if news:
                    end = (receipt.state, receipt.detail, receipt.route, receipt.role)
                    advance(db, "id = ?", its[:1], *end)
                if news and receipt.state is State.STORED:
                    db.execute(
                        "UPDATE messages SET attempts = 0, ask = ? WHERE id = ? AND state = 'stored' "
                        "AND ask IS NULL",
                        (now + ASK.first, receipt.id),
                    )
                base = _slide(db, stream, now)
                if base is not None and (base > sequence or receipt.state.final):
                    # The message that is now first in its stream, if it was tried before, may wait at the
                    # receiver for messages that it need not wait for any more (`Envelope.base`), or found no
                    # room there until this one was settled: publish it again now.
                    db.execute(
                        "UPDATE messages SET due = ? WHERE attempts > 1 AND state = 'sent' AND sequence = ? "
                        f"AND {_STREAM}",
                        (now, base, *stream),
                    )

    def senders_with_mail(self, team: str) -> list[str]:
        """Return the agents of this home with messages in `team` to publish, or to ask about, now."""
        its = (*keys(team), self._db.now())
        due = f"SELECT DISTINCT sender FROM messages WHERE team = ? AND {_DUE} AND due <= ?"
        asks = f"SELECT DISTINCT sender FROM messages WHERE team = ? AND {ELSEWHERE} AND ask <= ? LIMIT ?"
        found = [*self._db.rows(due, *its), *self._db.rows(asks, *its, ASKING)]
        return sorted({sender for (sender,) in found})


def unblock(db: sqlite3.Connection, ids: Iterable[str], now: float) -> None:
    """Republish, with a new base, the messages that no longer wait for the messages `ids`."""
    query = "SELECT team, sender_key, to_key, priority, owner FROM messages WHERE id = ?"
    for stream in {row for id in ids for row in db.execute(query, (id,))}:
        db.execute(f"UPDATE messages SET due = ? WHERE state = 'sent' AND {_STREAM}", (now, *stream))
        _slide(db, stream, now)


def _slide(db: sqlite3.Connection, stream: Iterable[Any], now: float) -> int | None:
    """Make the waiting messages in a stream's window due; return its base (None: nothing is pending)."""
    query = f"SELECT min(sequence) FROM messages WHERE {_STREAM} AND {PENDING}"
    base: int | None = db.execute(query, (*stream,)).fetchone()[0]
    if base is not None:
        db.execute(
            f"UPDATE messages SET due = ? WHERE {_STREAM} AND {PENDING} AND due IS NULL AND sequence < ?",
            (now, *stream, base + WINDOW),
        )
    return base


def next_sequence(db: sqlite3.Connection, stream: tuple[Any, ...]) -> int:
    """Return the next sequence of a stream: team, sender, receiver (all its owners), priority."""
    ((sequence,),) = db.execute(
        "INSERT INTO streams VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last",
        stream,
    ).fetchall()
    return int(sequence)
