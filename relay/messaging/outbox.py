"""The outbox: sending a message, and what its sender learns of it.

send ─→ (held) ─→ stored: its receiver is an agent of this home, and gets it from the same row
              └─→ queued: its receiver is in another home, or may be (relay.messaging.transit)
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from relay import names
from relay.errors import MessageRefused, ReceiverEnded
from relay.message import Message, OutgoingMessage, State
from relay.messaging.ledger_database import (
    COLUMNS,
    NEXT_TURN,
    LedgerDatabase,
    advance,
    insert,
    keys,
    mark,
    message_of,
)
from relay.messaging.runaway import WEEK, WINDOW, Limits, suspicion
from relay.messaging.transit import ASK, ELSEWHERE, PENDING, next_sequence, unblock
from relay.place import REQUEST, Place

_PAIR = "team = ?1 AND sender_key = ?2 AND to_key = ?3"

_RELEASED = f"ifnull((SELECT place FROM releases WHERE {_PAIR}), 0)"
_WAITS = "(SELECT count(*) FROM (SELECT 1 FROM messages WHERE team = ?1 AND sender_key = ?2 AND {} LIMIT ?6))"

_FACTS = (
    "SELECT registry.name, owners.owner, ifnull(owners.ended, 0), ifnull(registry.here, 0), "
    f"{NEXT_TURN}, "
    "(SELECT owner FROM owners WHERE team = ?1 AND key = ?2 AND latest), "
    + " + ".join(map(_WAITS.format, (PENDING, "state = 'held'", "here AND state = 'stored'")))
    + f", EXISTS (SELECT 1 FROM messages WHERE {_PAIR} AND state = 'held'), {_RELEASED}, "
    f"(SELECT count(*) FROM (SELECT 1 FROM messages WHERE {_PAIR} AND accepted > 0 AND accepted > ?4 "
    f"AND place > {_RELEASED} LIMIT ?5)) "
    "FROM (SELECT 1) LEFT JOIN owners ON owners.team = ?1 AND owners.key = ?3 AND latest "
    "LEFT JOIN registry ON registry.team = ?1 AND registry.key = ?3"
)
"""Reads _Facts in one statement. Parameters: the keys of team, sender and receiver; since when, and up to how
many, messages of the pair count; up to how many waiting messages of the sender count."""

_MANY = 10_000  # maximum rows changed in one transaction


class Outbox:
    """The messages that were sent. Names may have any spelling."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db
        # By sender: how many messages it may send until those that wait are counted again, each of them.
        self._room = dict[tuple[str, ...], int]()

    def send(
        self,
        team: str,
        sender: str,
        recipients: Iterable[str],
        outgoing: OutgoingMessage,
        *,
        channel: str | None = None,
        fanout: bool = False,
        known: bool = False,
        limits: Limits | None = None,
        copied: bool = False,
    ) -> list[Message]:
        """Commit `outgoing` for each of `recipients`, and return the messages.

        A message to an agent of this home, or to the user, is stored at once: it is where it has to be.

        channel: the channel to which it goes. fanout: it is one broadcast to all recipients.
        known:   omit recipients that have never been in the team, and spell the others as they do.
        limits:  what the runaway guard allows; None: anything. A message beyond them is held.
        copied:  the caller publishes the copies of messages within this home (`envelope.copy_of`).

        Raise MessageRefused, and commit nothing, if too many messages of the sender wait, or a receiver was a
        run that has ended; a broadcast omits such a receiver.
        """
        now, when = self._db.now(), time.time()
        ttl = WEEK if outgoing.ttl is None else outgoing.ttl
        more: dict[str, Any] = {"fanout": os.urandom(8).hex() if fanout else None, "accepted": now}
        if outgoing.place is not None:
            more |= {"session": outgoing.session, "said": str(outgoing.place)}
        messages: list[Message] = []
        who = keys(team, sender)
        queue = 0 if limits is None or self._room.get(who, 0) > 0 else limits.queue
        with self._db.transaction() as db:
            broadcasts = _broadcasts(db, who, now) if fanout and limits is not None else []
            for to in recipients:
                facts = _Facts.read(db, (*who, names.key(to)), now, limits, 0 if messages else queue)
                if known:
                    if facts.name is None:
                        continue
                    to = facts.name
                if queue and not messages:
                    self._room[who] = facts.room(queue)
                if facts.ended and fanout:
                    continue
                if facts.ended:
                    raise ReceiverEnded(
                        f"{to} has ended, and no agent has its name now. `relay ps` lists the agents; "
                        f"messages to a name given with `relay wrap -n {to}` wait for the next agent of that "
                        "name."
                    )
                why = None
                if limits is not None:
                    counted = sum(place > facts.released for place in broadcasts)
                    why = suspicion(limits, facts.held, facts.lately, counted, outgoing.depth)
                message = Message(
                    id=os.urandom(8).hex(),
                    sender=sender,
                    to=to,
                    body=outgoing.body,
                    time=when,
                    state=facts.state if why is None else State.HELD,
                    thread=outgoing.thread,
                    detail=why,
                    reply_to=outgoing.reply_to,
                    priority=outgoing.priority,
                    channel=channel,
                    depth=outgoing.depth,
                    expires=now + ttl if ttl and not (why is None and _is_read_here(facts.pair)) else None,
                )
                columns = more | {"owner": facts.owner, "sent_by": facts.sent_by}
                if why is None:
                    columns |= facts.columns(db, outgoing.priority.rank, now, copied=copied)
                insert(db, team, message, told=message.state, **columns)
                messages.append(message)
        if who in self._room:
            self._room[who] -= len(messages)
        return messages

    def committed(self, session: str) -> set[str]:
        """Return the places of the directives for which the session `session` has sent messages."""
        query = "SELECT said FROM messages WHERE session = ? AND said NOT LIKE ?"
        return {place for (place,) in self._db.rows(query, session, f"{REQUEST}/%")}

    def sent_for(self, session: str, place: Place) -> list[Message]:
        query = f"SELECT {COLUMNS} FROM messages WHERE session = ? AND said = ? ORDER BY place"
        return [message_of(row) for row in self._db.rows(query, session, str(place))]

    def outcomes(self, team: str, sender: str, owner: str | None = None) -> list[Message]:
        """Return the messages of `sender` whose state changed since the last call, oldest first.

        owner: the owner of the sender's name (None: not known); messages of other owners are left out.
        """
        its_own = "(sent_by IS NULL OR ?3 IS NULL OR sent_by = ?3)"
        news = f"team = ?1 AND sender_key = ?2 AND told <> state AND {its_own}"
        return mark(self._db, "told = state", news, *keys(team, sender), owner)

    def heard(self, ids: Iterable[str]) -> None:
        """Record that the sender knows the states of these messages."""
        if told := [(id,) for id in ids]:
            with self._db.transaction() as db:
                db.executemany("UPDATE messages SET told = state WHERE id = ?", told)

    def untold(self, team: str) -> list[str]:
        """Return the agents of this home in `team` for which `outcomes` has news."""
        query = "SELECT DISTINCT sender FROM messages WHERE team = ? AND told <> state"
        return [sender for (sender,) in self._db.rows(query, *keys(team))]

    def expire(self) -> int:
        """Expire messages that have waited too long, and are not being typed; return their number.

        Messages that wait in another home are reported by that home; without a report they become uncertain.
        """
        now = self._db.now()
        silent = f"{ELSEWHERE} AND expires <= ?"
        if self._db.rows(f"SELECT 1 FROM messages WHERE {silent} LIMIT 1", now - 2 * ASK.last):
            with self._db.transaction() as db:
                detail = "it had arrived, but its receiver's host did not report the outcome"
                advance(db, silent, (now - 2 * ASK.last,), State.UNCERTAIN, detail)
        late = (
            "SELECT id, state FROM messages WHERE state IN ('queued', 'sent', 'stored') AND expires <= ? "
            "AND (state <> 'stored' OR (here AND NOT injecting)) LIMIT ?"
        )
        if not self._db.rows(late, now, 1):
            return 0
        with self._db.transaction() as db:
            found = self._db.rows(late, now, _MANY)
            for id, state in found:
                advance(db, "id = ?", (id,), State.EXPIRED, _LATE[state])
            unblock(db, [id for id, state in found if state != State.STORED], now)
        return len(found)

    def release(self, ids: Iterable[str]) -> list[Message]:
        """Release held messages, in the order in which they were sent; return those that were held.

        The time until they expire starts again. The release is news to their senders (`outcomes`).
        """
        now = self._db.now()
        columns = f"place, team, sender_key, to_key, accepted, {COLUMNS}"
        held = f"SELECT {columns} FROM messages WHERE id = ? AND state = 'held'"
        released = []
        with self._db.transaction() as db:
            rows = sorted(row for id in ids for row in self._db.rows(held, id))
            for place, team, sender, to, accepted, *fields in rows:
                message, pair = message_of(fields), (team, sender, to)
                facts = _Facts.read(db, pair, now)
                row: dict[str, Any] = {"state": facts.state}
                row |= facts.columns(db, message.priority.rank, now)
                if message.expires is not None:
                    row["expires"] = None if _is_read_here(pair) else message.expires + now - accepted
                changes = ", ".join(f"{column} = ?" for column in row)
                db.execute(
                    f"UPDATE messages SET {changes}, detail = NULL, depth = 0 WHERE place = ?",
                    (*row.values(), place),
                )
                released.append(message)
            # Messages that these pairs have sent so far no longer count (`suspicion`).
            db.executemany(
                "INSERT OR REPLACE INTO releases SELECT ?1, ?2, ?3, max(place) FROM messages "
                f"WHERE {_PAIR} AND told IS NOT NULL",
                {row[1:4] for row in rows},
            )
        return released


class _Facts(NamedTuple):
    """The facts on which the state of a new message depends, as of the transaction that sends it.

    pair:    the keys of team, sender and receiver. name: of the receiver, as it spells it; None: unknown.
    owner:   the owner of the receiver's name (None: not known). ended: it was a run that is over.
    here:    the receiver is an agent of this home.
    turn:    the next turn in this home.
    sent_by: the owner of the sender's name. waiting: how many of its messages wait.
    released: the place of the pair's last message when the user released held ones; 0: never.
    held, lately: as for `suspicion`.
    """

    pair: tuple[str, ...]
    name: str | None
    owner: str | None
    ended: bool
    here: bool
    turn: int
    sent_by: str | None
    waiting: int
    held: bool
    released: int
    lately: int

    @classmethod
    def read(
        cls,
        db: sqlite3.Connection,
        pair: tuple[str, ...],
        now: float,
        limits: Limits | None = None,
        queue: int = 0,
    ) -> _Facts:
        """queue: how many waiting messages of the sender to count at most."""
        rate = 0 if limits is None else limits.rate
        return cls(pair, *db.execute(_FACTS, (*pair, now - WINDOW, rate, queue)).fetchone())

    @property
    def state(self) -> State:
        """The first state of a message: stored in this home, or queued for another."""
        return State.STORED if self.here or _is_read_here(self.pair) else State.QUEUED

    def columns(
        self, db: sqlite3.Connection, rank: int, now: float, *, copied: bool = False
    ) -> dict[str, Any]:
        """Return the columns of a message with priority `rank` that say where it waits."""
        if self.state is State.QUEUED:
            return {"sequence": next_sequence(db, (*self.pair, rank)), "due": now}
        if _is_read_here(self.pair):
            return {}
        return {"here": 1, "turn": self.turn, "due": None if copied else now}

    def room(self, queue: int) -> int:
        """Return how many messages the sender may send before its waiting ones, at most `queue`, are counted.

        Other processes may send in its name, too. Raise MessageRefused if no more may wait.
        """
        if self.waiting >= queue:
            raise MessageRefused(
                f"{queue} messages from this sender are already waiting, and no more are accepted. "
                "`relay messages` lists them; wait until they arrive, or drop some with `relay drop`."
            )
        return (queue - self.waiting) // 8


def _broadcasts(db: sqlite3.Connection, who: tuple[str, ...], now: float) -> list[int]:
    """Return the last place of each recent broadcast of a sender."""
    rows = db.execute(
        "SELECT max(place) FROM messages WHERE team = ? AND sender_key = ? AND accepted > ? "
        "AND fanout IS NOT NULL GROUP BY fanout",
        (*who, now - WINDOW),
    )
    return [place for (place,) in rows]


def _is_read_here(pair: Sequence[str]) -> bool:
    """Return True for a message to the user, who reads it in this home's ledger."""
    _, sender, to = pair
    return to == names.key(names.PERSON) != sender


_LATE = {
    State.QUEUED: "it was never sent in time",
    State.SENT: "its receiver did not confirm it in time",
    State.STORED: "its receiver was not ready in time",
}
