"""The outbox: sending a message, and what its sender learns of it.

send ─→ (held) ─→ stored: its receiver is an agent of this home, and gets it from the same row
              └─→ queued: its receiver is in another home, or may be (relay.messaging.transit)
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

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
    message_of,
)
from relay.messaging.owner import addressee
from relay.messaging.runaway import WEEK, Guard, Limits
from relay.messaging.transit import ELSEWHERE, LAST_ASK, PENDING, next_sequence, unblock
from relay.place import REQUEST, Place

_SENDER = "team = ? AND sender_key = ?"
_PAIR = "team = ?1 AND sender_key = ?2 AND to_key = ?3"

_RECEIVER = (
    "SELECT owners.owner, ifnull(owners.ended, 0), ifnull(registry.here, 0), "
    f"EXISTS (SELECT 1 FROM messages WHERE {_PAIR} AND {PENDING}), "
    f"{NEXT_TURN} "
    "FROM (SELECT 1) LEFT JOIN owners ON owners.team = ?1 AND owners.key = ?3 AND latest "
    "LEFT JOIN registry ON registry.team = ?1 AND registry.key = ?3"
)
"""What sending needs to know of a receiver: parameters team, sender, receiver (keys)."""

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
        copied: bool = False,
    ) -> list[Message]:
        """Commit `outgoing` for each of `recipients`, and return the messages.

        A message to an agent of this home, or to the user, is stored at once: it is where it has to be.

        channel: the channel to which it goes. fanout: it is one broadcast to all recipients.
        limits:  what the runaway guard allows; None: anything. A message beyond them is held.
        copied:  the caller publishes the copies of messages within this home (`envelope.copy_of`).

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
        more: dict[str, Any] = {"fanout": secrets.token_hex(8) if fanout else None, "accepted": now}
        if outgoing.place is not None:
            more |= {"session": outgoing.session, "said": str(outgoing.place)}
        messages = []
        who = keys(team, sender)
        with self._db.transaction() as db:
            guard, (more["sent_by"], _) = None, addressee(db, *who)
            if limits is not None:
                _check_room(db, who, limits)
                guard = Guard(db, who, now, limits, outgoing.depth, fanout)
            for to in recipients:
                pair = (*who, names.key(to))
                route = _Route.of(db, pair, outgoing.priority.rank, now)
                if route.ended and fanout:
                    continue
                if route.ended:
                    raise ReceiverEnded(
                        f"{to} has ended, and no agent has its name now. `relay ps` lists the agents; "
                        f"messages to a name given with `relay wrap -n {to}` wait for the next agent of that "
                        "name."
                    )
                message = replace(draft, id=secrets.token_hex(8), to=to)
                columns = more | {"owner": route.owner}
                if guard is not None and (why := guard.suspicion(pair[-1])) is not None:
                    message = replace(message, state=State.HELD, detail=why)
                else:
                    expires = None if _is_read_here(pair) else message.expires
                    message = replace(message, state=route.state, expires=expires)
                    columns |= route.columns(db, copied=copied)
                insert(db, team, message, told=message.state, **columns)
                messages.append(message)
        return messages

    def committed(self, session: str) -> set[str]:
        """Return the places of the directives for which the session `session` has sent messages."""
        query = "SELECT said FROM messages WHERE session = ? AND said NOT LIKE ?"
        return {place for (place,) in self._db.rows(query, session, f"{REQUEST}/%")}

    def sent_for(self, session: str, place: Place) -> list[Message]:
        """Return the messages that the session `session` sent for the directive or request at `place`."""
        query = f"SELECT {COLUMNS} FROM messages WHERE session = ? AND said = ? ORDER BY place"
        return [message_of(row) for row in self._db.rows(query, session, str(place))]

    def outcomes(self, team: str, sender: str, owner: str | None = None) -> list[Message]:
        """Return the messages of `sender` whose state changed since the last call, oldest first.

        owner: the owner of the sender's name (None: not known); messages of other owners are left out.
        """
        who = (*keys(team, sender), owner)
        its_own = "(sent_by IS NULL OR ?3 IS NULL OR sent_by = ?3)"
        news = f"team = ?1 AND sender_key = ?2 AND told <> state AND {its_own}"
        if not self._db.rows(f"SELECT 1 FROM messages WHERE {news} LIMIT 1", *who):
            return []
        with self._db.transaction() as db:
            told = f"UPDATE messages SET told = state WHERE {news} RETURNING place, {COLUMNS}"
            rows = sorted(db.execute(told, who).fetchall(), key=itemgetter(0))
        return [message_of(row) for _, *row in rows]

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
        if self._db.rows(f"SELECT 1 FROM messages WHERE {silent} LIMIT 1", now - 2 * LAST_ASK):
            with self._db.transaction() as db:
                detail = "it had arrived, but its receiver's host did not report the outcome"
                advance(db, silent, (now - 2 * LAST_ASK,), State.UNCERTAIN, detail)
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

        The time until they expire starts again.
        """
        now = self._db.now()
        columns = f"place, team, sender_key, to_key, accepted, {COLUMNS}"
        held = f"SELECT {columns} FROM messages WHERE id = ? AND state = 'held'"
        released = []
        with self._db.transaction() as db:
            rows = sorted(row for id in ids for row in self._db.rows(held, id))
            for place, team, sender, to, accepted, *fields in rows:
                message, pair = message_of(fields), (team, sender, to)
                route = _Route.of(db, pair, message.priority.rank, now)
                row: dict[str, Any] = {"state": route.state, "told": route.state, **route.columns(db)}
                if message.expires is not None:
                    row["expires"] = None if _is_read_here(pair) else message.expires + now - accepted
                changes = ", ".join(f"{column} = ?" for column in row)
                db.execute(
                    f"UPDATE messages SET {changes}, detail = NULL, depth = 0 WHERE place = ?",
                    (*row.values(), place),
                )
                released.append(message)
            # Messages that these pairs have sent so far no longer count (runaway.Guard).
            db.executemany(
                "INSERT OR REPLACE INTO releases SELECT ?1, ?2, ?3, max(place) FROM messages "
                f"WHERE {_PAIR} AND told IS NOT NULL",
                {row[1:4] for row in rows},
            )
        return released


@dataclass(frozen=True, slots=True)
class _Route:
    """How a message reaches its receiver; `of` reads it, within the transaction that sends.

    owner: the owner of the receiver's name (None: not known). ended: it was a run that is over.
    state: the message's first state: stored (in this home) or queued (for another).
    turn:  its turn, if the receiver is an agent of this home.
    """

    pair: tuple[str, ...]
    rank: int
    owner: str | None
    ended: bool
    state: State
    turn: int | None
    now: float

    @classmethod
    def of(cls, db: sqlite3.Connection, pair: tuple[str, ...], rank: int, now: float) -> _Route:
        """Return the route of a pair: the keys of team, sender and receiver."""
        owner, ended, here, pending, turn = db.execute(_RECEIVER, pair).fetchone()
        # What is still in transit comes first, even to this home, where its receiver may have moved.
        local = here and not pending
        state = State.STORED if local or _is_read_here(pair) else State.QUEUED
        return cls(pair, rank, owner, bool(ended), state, turn if local else None, now)

    def columns(self, db: sqlite3.Connection, *, copied: bool = False) -> dict[str, Any]:
        """Return the columns of the message that say so."""
        if self.state is State.QUEUED:
            return {"sequence": next_sequence(db, (*self.pair, self.rank)), "due": self.now}
        here = {"here": 1, "turn": self.turn, "due": None if copied else self.now}
        return {} if self.turn is None else here


def _is_read_here(pair: Sequence[str]) -> bool:
    """Return True for a message to the user, who reads it in this home's ledger."""
    _, sender, to = pair
    return names.same(to, names.PERSON) and not names.same(sender, names.PERSON)


_LATE = {
    State.QUEUED: "it was never sent in time",
    State.SENT: "its receiver did not confirm it in time",
    State.STORED: "its receiver was not ready in time",
}


def _check_room(db: sqlite3.Connection, who: tuple[str, ...], limits: Limits) -> None:
    if not limits.queue:
        return
    count = f"(SELECT count(*) FROM (SELECT 1 FROM messages WHERE {_SENDER} AND {{}} LIMIT ?))"
    pending, here = map(count.format, ("state IN ('held', 'queued', 'sent')", "state = 'stored' AND here"))
    ((waiting,),) = db.execute(f"SELECT {pending} + {here}", (*who, limits.queue) * 2)
    if waiting >= limits.queue:
        raise MessageRefused(
            f"{waiting} messages from this sender are already waiting, and no more are accepted. `relay "
            "messages` lists them; wait until they arrive, or drop some with `relay drop`."
        )
