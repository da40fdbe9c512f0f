"""The inbox: messages for agents of this home, from their arrival until the agents get them.

sent here ───────────────────────┬→ stored: waiting ─→ injecting ─→ settle
store: it came from another home ┘                                    └→ a receipt, to another home
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable

from relay.dataclass import replace
from relay.errors import LedgerError, MessageRefused
from relay.message import MAX_BODY, Message, State
from relay.messaging.envelope import Envelope, Receipt
from relay.messaging.ledger_database import (
    COLUMNS,
    KEEP_TURN,
    NEXT_TURN,
    LedgerDatabase,
    insert,
    keys,
    message_of,
)
from relay.messaging.name_owners import TYPING, addressee, is_run
from relay.transport.wire import ForeignPayload

KEEP_DAYS = 30
"""Days for which settled messages are kept; their ids are not accepted twice."""

_OLD = KEEP_DAYS * 86400 / 2
"""Seconds; an older message may have been forgotten. Half of KEEP_DAYS: clocks of two hosts differ."""


MOST = 2_000
"""Maximum messages of one sender in another home, not given to the receiver, that are kept for it: those that
wait, and the latest of those that ended otherwise (_ENDED)."""

MOST_BYTES = 16 << 20
"""Maximum bytes of their bodies, once there are more messages than a stream has in flight."""

STREAMS = 64
"""Maximum streams of one sender tracked for a receiver; a sender has three in each ledger it ever had."""

NEWS = 256
"""Maximum messages that `arrived` returns at a time."""


class InboxFull(LedgerError):
    """Too many messages wait for a receiver. The senders keep the rest, and try again."""


_STORED = "here AND state = 'stored'"
_ITS = "team = ? AND to_key = ? AND id = ? AND here"
_PAIR = "team = ? AND to_key = ? AND sender_key = ?"
_STREAM = f"{_PAIR} AND origin = ?"

_FOR = "(owner IS NULL OR ifnull(?, owner) = owner)"
"""The message is for the given owner of the receiver's name (NULL: any owner)."""

_ENDED = "state IN ('expired', 'rejected', 'uncertain')"

_COUNT = (  # the fourth parameter: also count messages whose turn has not come
    f"SELECT count(*) FROM (SELECT 1 FROM messages WHERE team = ? AND to_key = ? AND {_STORED} "
    f"AND {_FOR} AND (? OR turn IS NOT NULL) LIMIT ?)"
)


class Inbox:
    """The messages for agents of this home. Names may have any spelling."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def store(self, team: str, envelope: Envelope, most: int = 0, owner: str | None = None) -> None:
        """Commit a message that came over the broker; those whose turn has come are `arrived`.

        A message that overtook another gets no receipt before its turn, so its sender publishes it again with
        a new `Envelope.base`.  A known message gets another receipt: its sender seems to have missed the
        first.  A message that this home sent is ignored: it is here already (`Transit.end`).  One for another
        home of the receiver is ignored, too: it may have been typed there, and its sender says so
        (`Transit.appeared`).  A message so old that `prune` may have forgotten it is uncertain.

        owner: the owner of the receiver's name (None: not known). A message for a run that is over is
        rejected; one for another folder's agent is ignored, and published again when that agent appears.

        Raise InboxFull if `most` messages (0: no limit) wait for the receiver, or too many from this sender:
        the message stays with its sender.  Raise ForeignPayload if another message has its id.
        """
        if envelope.home not in {None, self._db.origin}:
            return
        another = owner is not None and envelope.owner not in {None, owner}
        if another and not is_run(str(envelope.owner)):
            return
        message, now = envelope.message, self._db.now()
        pair = keys(team, message.to, message.sender)
        found = self._db.rows(
            f"SELECT {_PAIR}, told IS NOT NULL FROM messages WHERE id = ?", *pair, message.id
        )
        ((same, sent_here),) = found or ((True, False),)
        if not same:
            raise ForeignPayload("its id is another message's")
        if sent_here:
            return
        stream = (*pair, envelope.stream)
        with self._db.transaction() as db:
            turn = _turn(db, stream)
            if found:
                db.execute("UPDATE messages SET receipted = NULL WHERE id = ?", (message.id,))
                _release(db, stream, turn, envelope)
                return
            end: tuple[State, str] | None = None
            if another or addressee(db, *pair[:2]) == (envelope.owner or owner, True):
                end = State.REJECTED, f"the {message.to} that it was sent to has ended"
            if envelope.sequence < turn:
                # Its sender let later messages pass it: it was given up, or another home confirmed it.
                if message.time >= now - _OLD:
                    return
                end = State.UNCERTAIN, "it came again, and its receiver may have received it long ago"
            self._check_room(db, pair, envelope, turn, 0 if end else most, owner)
            state, detail = end or (State.STORED, None)
            expires = None if envelope.ttl is None else now + envelope.ttl
            stored = replace(message, state=state, detail=detail, expires=expires)
            more = {
                "origin": envelope.stream,
                "sequence": envelope.sequence,
                "size": len(message.body.encode()),
            }
            insert(db, team, stored, accepted=now, here=1, owner=envelope.owner or owner, **more)
            _release(db, stream, turn, envelope)

    def _check_room(
        self,
        db: sqlite3.Connection,
        pair: tuple[str, ...],
        envelope: Envelope,
        turn: int,
        most: int,
        owner: str | None,
    ) -> None:
        """Raise InboxFull; `store` explains. turn: the result of `_turn`. most: 0 for no limit."""
        message = envelope.message
        # For a message that others wait for, count only messages whose turn has come.
        whole = envelope.sequence > max(turn, envelope.base)
        if most and self._db.rows(_COUNT, *pair[:2], owner, whole, most) == [(most,)]:
            raise InboxFull(
                f"{most} messages are waiting for {message.to}; further ones stay with their senders."
            )
        known = turn > 1 or _knows(db, pair, envelope.stream)
        if not (known and _has_room(db, pair, whole=whole)):
            raise InboxFull(
                f"{message.sender} has reached the limit of waiting messages for {message.to}; "
                f"further messages stay with {message.sender}."
            )

    def arrived(
        self, team: str, name: str, since: int, owner: str | None = None
    ) -> list[tuple[int, Message]]:
        """Return messages that wait for `name`, with their turns, in that order: up to NEWS after `since`."""
        query = (
            f"SELECT turn, {COLUMNS} FROM messages WHERE team = ? AND to_key = ? AND {_STORED} AND {_FOR} "
            "AND turn > ? AND NOT injecting ORDER BY turn LIMIT ?"
        )
        rows = self._db.rows(query, *keys(team, name), owner, since, NEWS)
        return [(turn, message_of(fields)) for turn, *fields in rows]

    def waiting(self, team: str, name: str, most: int = -1, owner: str | None = None) -> list[Message]:
        """Return the messages that may be typed into `name` now: by priority, then from each sender in turn.

        most:  messages of one sender, besides urgent ones; -1: all.
        owner: the owner of the name; None: any.
        """
        receiver = keys(team, name)
        senders = f"SELECT DISTINCT sender_key FROM messages WHERE team = ? AND to_key = ? AND {_STORED}"
        query = (
            f"SELECT {COLUMNS}, turn FROM messages WHERE {_PAIR} AND {_STORED} AND {_FOR} "
            "AND turn IS NOT NULL AND NOT injecting AND {} ORDER BY priority, turn LIMIT ?"
        )
        found: list[tuple[int, int, int, Message]] = []
        for (sender,) in self._db.rows(senders, *receiver):
            turns = Counter[int]()
            for which, limit in (("priority = 0", -1), ("priority > 0", most)):
                for *fields, place in self._db.rows(query.format(which), *receiver, sender, owner, limit):
                    message = message_of(fields)
                    rank = message.priority.rank
                    found.append((rank, turns[rank], place, message))
                    turns[rank] += 1
        return [message for *_, message in sorted(found, key=lambda each: each[:3])]

    def stored(self, team: str, name: str, owner: str | None = None) -> set[str]:
        """Return the ids of all messages stored for `name`, waiting or being typed."""
        query = f"SELECT id FROM messages WHERE team = ? AND to_key = ? AND {_STORED} AND {_FOR}"
        return {id for (id,) in self._db.rows(query, *keys(team, name), owner)}

    def injecting(self, team: str, name: str, id: str) -> None:
        """Record that typing `id` into `name` begins. Raise MessageRefused if the message no longer waits."""
        mark = f"UPDATE messages SET injecting = 1 WHERE {_ITS} AND state = 'stored' RETURNING 1"
        if not self._db.change(mark, *keys(team, name), id):
            raise MessageRefused("it was dropped or has expired before it could be typed.")

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
    ) -> str | None:
        """Record the final state of message `id` at `name` (injected, uncertain or rejected), and its route.

        Return its sender if it was sent in this home, to be told. With `stored`: the message was not typed
        after `injecting`, and waits again.
        """
        if state not in {State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED}:
            raise ValueError(f"a receiver cannot settle a message as {state}")
        its = (*keys(team, name), id)
        if state is State.STORED:
            self._db.change(f"UPDATE messages SET injecting = 0 WHERE {_ITS} AND state = 'stored'", *its)
            return None
        settled = self._db.change(  # unless it was settled differently meanwhile
            "UPDATE messages SET state = ?, detail = ?, route = ?, role = ? "
            f"WHERE {_ITS} AND state IN ('stored', 'uncertain') RETURNING iif(told IS NULL, NULL, sender)",
            *(state, detail, route, role, *its),
        )
        return settled[0][0] if settled else None

    def begun(self, team: str) -> list[str]:
        """Return the agents of `team` into which a session is typing, according to the ledger."""
        query = f"SELECT DISTINCT recipient FROM messages WHERE team = ? AND {_STORED} AND injecting"
        return [name for (name,) in self._db.rows(query, *keys(team))]

    def recover(self, team: str, name: str, in_hand: Collection[str] = ()) -> list[str]:
        """Mark as uncertain the messages that a dead session of `name` was typing; return their ids.

        in_hand: the ids of messages that a living session is giving to the agent; these are left alone.
        """
        query = f"SELECT id FROM messages WHERE team = ? AND to_key = ? AND {_STORED} AND injecting"
        left = [id for (id,) in self._db.rows(query, *keys(team, name)) if id not in in_hand]
        with self._db.transaction():
            for id in left:
                self.settle(team, name, id, State.UNCERTAIN, TYPING)
        return left

    def receipts(self, team: str, name: str, limit: int) -> list[Receipt]:
        """Return up to `limit` receipts of `name` that the broker has not accepted yet, oldest first."""
        rows = self._db.rows(
            "SELECT id, recipient, sender, state, detail, route, role FROM messages WHERE team = ? "
            "AND to_key = ? AND told IS NULL AND receipted IS NOT state AND turn IS NOT NULL "
            "ORDER BY turn LIMIT ?",
            *keys(team, name),
            limit,
        )
        return [Receipt(id, to, sender, State(state), *how) for id, to, sender, state, *how in rows]

    def left_receipts(self, team: str) -> list[str]:
        """Return the finished runs of `team` with unsent receipts."""
        over = "EXISTS (SELECT 1 FROM owners WHERE team = ?1 AND key = to_key AND latest AND ended)"
        query = (
            "SELECT min(recipient) FROM messages WHERE team = ?1 AND told IS NULL "
            f"AND receipted IS NOT state AND turn IS NOT NULL AND {over} GROUP BY to_key"
        )
        return [name for (name,) in self._db.rows(query, *keys(team))]

    def receipted(self, team: str, receipts: Iterable[Receipt]) -> None:
        """Record that the broker has accepted these receipts."""
        with self._db.transaction() as db:
            db.executemany(
                f"UPDATE messages SET receipted = ? WHERE {_ITS}",
                [(each.state, *keys(team, each.receiver), each.id) for each in receipts],
            )


def _has_room(db: sqlite3.Connection, pair: tuple[str, ...], *, whole: bool) -> bool:
    """Return True if there is room for another message of `pair`; forget old ended ones if needed.

    whole: also count messages that wait for earlier ones.
    """
    count = f"SELECT count(*), ifnull(sum(size), 0) FROM messages WHERE {_PAIR} AND here AND told IS NULL AND"
    for ended in (True, False):
        found = db.execute(
            f"{count} state = 'stored' AND (? OR turn IS NOT NULL) UNION ALL {count} {_ENDED}",
            (*pair, whole, *pair),
        )
        number, size = map(sum, zip(*found, strict=True))
        if number < MOST and (size < MOST_BYTES or number * MAX_BODY < MOST_BYTES):
            return True
        if ended:
            db.execute(KEEP_TURN)
            db.execute(
                "DELETE FROM messages WHERE place IN (SELECT place FROM messages "
                f"WHERE {_PAIR} AND here AND told IS NULL AND {_ENDED} AND receipted IS state "
                "ORDER BY place LIMIT ?)",
                (*pair, MOST // 10),
            )
    return False


def _knows(db: sqlite3.Connection, pair: tuple[str, ...], origin: str) -> bool:
    """Return True if there is room for the stream of `origin`; forget streams without mail if needed."""
    known = db.execute(f"SELECT origin FROM pairs WHERE {_PAIR}", pair).fetchall()
    if len(known) < STREAMS or (origin,) in known:
        return True
    waits = f"SELECT origin FROM messages WHERE {_PAIR} AND {_STORED}"
    forget = f"DELETE FROM pairs WHERE {_PAIR} AND origin NOT IN ({waits})"
    return bool(db.execute(forget, (*pair, *pair)).rowcount)


def _turn(db: sqlite3.Connection, stream: tuple[str, ...]) -> int:
    """Return the sequence of (team, receiver, sender, origin) below which all messages had their turn."""
    row = db.execute(f"SELECT next FROM pairs WHERE {_STREAM}", stream).fetchone()
    return int(row[0]) if row else 1


def _release(db: sqlite3.Connection, stream: tuple[str, ...], turn: int, envelope: Envelope) -> None:
    """Give their turns to the messages of a stream that no longer wait for earlier ones.

    turn: the result of `_turn`. envelope: the latest of the stream.
    """
    following = max(envelope.base, turn)
    arrived = f"SELECT 1 FROM messages WHERE {_STREAM} AND sequence = ? LIMIT 1"
    while db.execute(arrived, (*stream, following)).fetchone():
        following += 1
    if following != turn:
        db.execute(
            "INSERT INTO pairs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next",
            (*stream, following),
        )
    held = db.execute(
        f"SELECT place FROM messages WHERE {_STREAM} AND turn IS NULL AND sequence BETWEEN ? AND ? "
        "ORDER BY sequence",
        (*stream, min(turn, envelope.sequence), following - 1),
    ).fetchall()
    for place in held:
        db.execute(f"UPDATE messages SET turn = {NEXT_TURN} WHERE place = ?", place)
