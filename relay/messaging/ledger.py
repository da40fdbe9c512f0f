"""The ledger: every message of one home, written down before it travels and until it is settled.

One SQLite file per home, shared by all its processes.  Two tables hold the two ends of a message: `outbox`
what agents of this home sent, `inbox` what arrived for them; a message between two agents of one home is
in both.  All calls are synchronous, take well under a millisecond, and each is one transaction.

Raises LedgerError, with advice, when the file cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from relay import names
from relay.errors import LedgerError
from relay.message import Message, OutgoingMessage, State
from relay.messaging.channels import Channels
from relay.messaging.envelope import is_id
from relay.messaging.inbox import KEEP_DAYS, Inbox
from relay.messaging.ledger_database import COLUMNS, LedgerDatabase, message_of
from relay.messaging.name_registry import NameRegistry
from relay.messaging.outbox import Outbox, advance, unblock
from relay.messaging.runaway import Limits

_KEEP = KEEP_DAYS * 86400.0  # seconds


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A message as `relay messages` shows it."""

    message: Message
    team: str


class Ledger(LedgerDatabase):
    """One connection to a home's ledger; use it from one thread.

    registry: who was ever in a team. channels: who hears which. outbox, inbox: the two ends of a message.
    The methods are the person's.
    """

    def __init__(self, path: Path, clock: Callable[[], float] | None = None) -> None:
        super().__init__(path, clock)
        self.registry = NameRegistry(self)
        self.channels = Channels(self)
        self.outbox = Outbox(self)
        self.inbox = Inbox(self)

    def messages(
        self,
        *,
        team: str | None = None,
        to: str | None = None,
        sender: str | None = None,
        between: str | None = None,
        limit: int | None = None,
    ) -> list[LedgerEntry]:
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
        with self.reading() as db:
            rows = db.execute(
                f"SELECT * FROM (SELECT {COLUMNS}, team, place AS nr FROM outbox WHERE {where} UNION ALL "
                f"SELECT {COLUMNS}, team, arrival FROM inbox WHERE {where} "
                "AND id NOT IN (SELECT id FROM outbox)) ORDER BY time DESC, nr DESC LIMIT ?",
                (*values, *values, -1 if limit is None else limit),
            ).fetchall()
        return [LedgerEntry(message_of(message), team) for *message, team, _ in reversed(rows)]

    def lookup(self, ids: Iterable[str]) -> list[LedgerEntry]:
        """The messages with these ids that this home sent."""
        with self.reading() as db:
            rows = [
                row
                for id in ids
                for row in db.execute(f"SELECT {COLUMNS}, team FROM outbox WHERE id = ?", (id,))
            ]
        return [LedgerEntry(message_of(message), team) for *message, team in rows]

    def find(self, prefix: str) -> LedgerEntry:
        """The message whose id begins with `prefix`; LedgerError if it is none or several."""
        if not is_id(prefix):
            raise LedgerError(f"{prefix[:40]!a} is not the beginning of an id. `relay messages` shows them.")
        # A range, and not LIKE, which would read every row. Nothing in an id is greater than "z".
        begins = "id >= ?1 AND id < ?1 || '{'"
        with self.reading() as db:
            rows = db.execute(
                f"SELECT {COLUMNS}, team FROM outbox WHERE {begins} UNION ALL "
                f"SELECT {COLUMNS}, team FROM inbox WHERE {begins} "
                "AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.id = inbox.id) LIMIT 2",
                (prefix,),
            ).fetchall()
        if len(rows) != 1:
            what = "several messages have ids that begin" if rows else "no message has an id that begins"
            raise LedgerError(f"{what} with {prefix!a}. `relay messages` lists them.")
        *found, team = rows[0]
        return LedgerEntry(message_of(found), team)

    def retry(self, id: str, to: str | None = None, *, limits: Limits | None = None) -> Message:
        """Send message `id` again: what is on its way at once, what is settled anew, in a new place.

        to:     send it to another agent instead, and give up the first.
        limits: those of the agent that asks; None for the person, with whom a new chain of replies begins.

        A settled message keeps its id and its honest state; the new one has an id of its own, since a
        receiver ignores an id that it has seen. LedgerError when it waits at its receiver, or is held.
        """
        entry = self.find(id)
        message = entry.message
        with self.reading() as db:
            ours = db.execute("SELECT 1 FROM outbox WHERE id = ?", (message.id,)).fetchone()
        if ours is None:
            raise LedgerError(
                f"message {message.id} was sent from another home; ask {message.sender} to send it again."
            )
        if message.state is State.HELD:
            raise LedgerError(f"message {message.id} is held; `relay release` lets it go.")
        if to is not None and not message.state.final:
            pass  # given up below, once the other is written down
        elif message.state is State.STORED:
            raise LedgerError(
                f"message {message.id} has arrived and waits until {message.to} is ready. "
                "If it never will be, `relay drop` gives it up, and then it can be sent again."
            )
        elif not message.state.final:
            with self.transaction() as db:
                db.execute("UPDATE outbox SET due = ? WHERE id = ?", (self.now(), message.id))
            return message
        receiver = to or message.to
        outgoing = OutgoingMessage(
            receiver,
            message.body,
            message.thread,
            message.reply_to,
            message.priority,
            depth=message.depth if limits else 0,
        )
        (again,) = self.outbox.send(
            entry.team, message.sender, [receiver], outgoing, channel=message.channel, limits=limits
        )
        if not message.state.final:
            try:
                self.drop(message.id)
            except LedgerError:  # it is being typed
                self.drop(again.id)
                raise
        detail = f"sent again as {again.id}" + (f" to {to}" if to else "")
        with self.transaction() as db:
            db.execute("UPDATE outbox SET detail = ? WHERE id = ?", (detail, message.id))
        return again

    def drop(self, id: str, *, by: str = "the person") -> Message:
        """Give up message `id`: what waits will not be typed, what is settled is no longer listed.

        by: who does, for whoever reads of it.

        Returns it as it was. One that the broker or another home has may still be typed there, and its state
        then says so. LedgerError, and nothing is changed, when it is being typed.
        """
        with self.transaction() as db:
            message = self.find(id).message
            detail = f"dropped by {by}"
            if message.state.final or _read_here(message):
                for table in ("outbox", "inbox"):
                    db.execute(f"UPDATE {table} SET hidden = 1 WHERE id = ?", (message.id,))
            elif db.execute(
                "UPDATE inbox SET state = 'rejected', detail = ? WHERE id = ? AND state = 'stored' "
                "AND NOT injecting",
                (detail, message.id),
            ).rowcount:
                advance(db, "id = ?", (message.id,), State.REJECTED, detail)
            elif db.execute(
                "SELECT 1 FROM inbox WHERE id = ? AND state = 'stored'", (message.id,)
            ).fetchone():
                raise LedgerError(
                    f"message {message.id} cannot be dropped any more: it is being typed into {message.to}. "
                    "`relay messages` shows what becomes of it."
                )
            else:
                if message.state is State.STORED:
                    detail += (
                        f"; it had arrived at {message.to}, on another host, and may still be typed there"
                    )
                advance(db, "id = ?", (message.id,), State.EXPIRED, detail)
                unblock(db, [message.id], self.now())
        return message

    def held(self, *, team: str | None = None, sender: str | None = None, to: str | None = None) -> list[str]:
        """The ids of what the runaway guard holds, in the order in which it was sent."""
        keys = [each and names.key(each) for each in (team, sender, to)]
        with self.reading() as db:
            rows = db.execute(
                "SELECT id FROM outbox WHERE state = 'held' AND team = ifnull(?, team) "
                "AND sender_key = ifnull(?, sender_key) AND to_key = ifnull(?, to_key) ORDER BY place",
                keys,
            ).fetchall()
        return [id for (id,) in rows]

    def prune(self) -> None:
        """Forget what an earlier call found settled more than KEEP_DAYS ago.

        Not what was accepted so long ago: its end may be news, even if that came with a jump of the clock.
        And nothing whose end its sender was not told.
        """
        now = self.now()
        states = ", ".join(f"'{state}'" for state in State if state.final)
        final = f"(state IN ({states}) OR (state = 'stored' AND to_key = '{names.key(names.PERSON)}'))"
        with self.transaction() as db:
            for table, known in (("outbox", ""), ("inbox", "AND receipted IS state")):
                db.execute(f"DELETE FROM {table} WHERE {final} AND settled < ? {known}", (now - _KEEP,))
                db.execute(
                    f"UPDATE {table} SET settled = iif({final}, ?, NULL) WHERE (settled IS NULL) = {final}",
                    (now,),
                )


def _read_here(message: Message) -> bool:
    """Whether it has arrived where it was to go, the ledger, in which the person reads it."""
    return message.state is State.STORED and names.same(message.to, names.PERSON)
