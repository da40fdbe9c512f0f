"""The ledger: every message of one home, recorded before it is published and until it is settled.

One SQLite file per home, shared by all its processes.  One row of `messages` holds a message to one receiver;
a message between two agents of the home is one row, which both use.  All calls are synchronous, take well
under a millisecond, and each is one transaction.

Every call raises LedgerError, with advice, if the file cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from relay import names
from relay.dataclass import dataclass
from relay.errors import LedgerError, NoSuchMessage
from relay.message import Message, OutgoingMessage, State
from relay.messaging.channels import ChannelRegistry
from relay.messaging.inbox import KEEP_DAYS, Inbox
from relay.messaging.ledger_database import COLUMNS, KEEP_TURN, LedgerDatabase, advance, keys, message_of
from relay.messaging.name_owners import NameOwners
from relay.messaging.outbox import Outbox
from relay.messaging.runaway import Limits
from relay.messaging.transit import Transit, unblock
from relay.messaging.user_inbox import UserInbox
from relay.transport.wire import is_id


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A message as `relay messages` shows it."""

    message: Message
    team: str


class NameRegistry:
    """All names that have ever been in a team."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def register(self, team: str, name: str, *, here: bool | None = None) -> None:
        """Record that `name` is in `team`, with its latest spelling.

        here: its agent is one of this home, which gives it its messages; None: as before.
        """
        row = (*keys(team, name), name, here)
        same = "SELECT 1 FROM registry WHERE team = ? AND key = ? AND name = ? AND here = ifnull(?, here)"
        if not self._db.rows(same, *row):
            self._db.write(
                "INSERT INTO registry VALUES (?1, ?2, ?3, ifnull(?4, 0)) ON CONFLICT DO UPDATE "
                "SET name = excluded.name, here = ifnull(?4, here)",
                *row,
            )

    def is_here(self, team: str, name: str) -> bool:
        """Return True if the last agent of that name was one of this home."""
        found = self._db.rows("SELECT here FROM registry WHERE team = ? AND key = ?", *keys(team, name))
        return found == [(1,)]

    def teams(self, name: str) -> list[str]:
        """Return the teams (keys) that `name` has ever been in, sorted."""
        found = self._db.rows("SELECT team FROM registry WHERE key = ? ORDER BY team", *keys(name))
        return [team for (team,) in found]

    def known(self, team: str, name: str | None = None) -> list[str]:
        """Return the names in `team`, sorted, or only `name`, as its owner spells it."""
        query = "SELECT name FROM registry WHERE team = ? AND key = ifnull(?, key) ORDER BY key"
        return [known for (known,) in self._db.rows(query, *keys(team), name and names.key(name))]


class Ledger(LedgerDatabase):
    """One connection to a home's ledger; use it from one thread.

    registry: the names in each team. owners: their owners. channels: the members of each channel.
    outbox: what agents of this home send. transit: what goes to other homes. inbox: what its agents get.
    user_inbox: what waits for the user.
    The methods serve the commands that list and manage messages.
    """

    def __init__(self, path: Path, clock: Callable[[], float] | None = None) -> None:
        super().__init__(path, clock)
        self.registry = NameRegistry(self)
        self.owners = NameOwners(self)
        self.channels = ChannelRegistry(self)
        self.outbox = Outbox(self)
        self.transit = Transit(self)
        self.inbox = Inbox(self)
        self.user_inbox = UserInbox(self)

    def arrive(self, team: str, name: str, owner: str | None = None) -> None:
        """Record that `name` is an agent of this home, which gives it its messages.

        owner: the owner of its name; None: not known.
        """
        self.registry.register(team, name, here=True)
        self.transit.end(team, name, owner)

    def move_away(self, team: str, name: str, home: str | None = None, owner: str | None = None) -> list[str]:
        """Record that `name` is an agent of another home, which gets its messages; return their senders.

        home, owner: as for `Transit.appeared`.
        """
        with self.transaction():
            self.registry.register(team, name, here=False)
            self.transit.begin(team, name, owner)
            return self.transit.appeared(team, name, home, owner)

    def messages(
        self,
        *,
        team: str | None = None,
        to: str | None = None,
        sender: str | None = None,
        of: str | None = None,
        about: Collection[str] = (),
        ids: Collection[str] = (),
        states: Collection[State] = (),
        limit: int | None = None,
    ) -> list[LedgerEntry]:
        """Return the latest `limit` messages of this home, in the order in which it got them.

        of:         only messages from and to the current or last owner of this name; requires `team`.
        about, ids: only messages from or to these names, and those with these ids.
        states:     only messages in these states.
        """
        conditions = ["NOT hidden"]
        values: list[str | int | None] = []

        def placeholder(value: str | None) -> str:
            values.append(value)
            return f"?{len(values)}"

        for column, value in (("team", team), ("to_key", to), ("sender_key", sender)):
            if value is not None:
                conditions.append(f"{column} = {placeholder(names.key(value))}")
        if of is not None:
            own = placeholder(names.key(of))
            owner = placeholder(self.owners.of(team or "", of)[0])
            its = f"{{}} = {own} AND ifnull({{}}, {owner}) IS {owner}"
            sent = f"told IS NOT NULL AND {its.format('sender_key', 'sent_by')}"
            conditions.append(f"({its.format('to_key', 'owner')} OR {sent})")
        either = []
        if about:
            keys = ", ".join(placeholder(names.key(name)) for name in about)
            either.append(f"sender_key IN ({keys}) OR to_key IN ({keys})")
        if ids:  # as one parameter: SQLite limits their number
            either.append(f"id IN (SELECT value FROM json_each({placeholder(json.dumps([*ids]))}))")
        if either:
            conditions.append(f"({' OR '.join(either)})")
        if states:
            conditions.append(f"state IN ({', '.join(map(placeholder, states))})")
        values.append(-1 if limit is None else limit)
        rows = self.rows(
            f"SELECT {COLUMNS}, team FROM messages WHERE {' AND '.join(conditions)} "
            f"ORDER BY place DESC LIMIT ?{len(values)}",
            *values,
        )
        return [LedgerEntry(message_of(message), team) for *message, team in reversed(rows)]

    def lookup(self, ids: Iterable[str]) -> list[LedgerEntry]:
        """Return the messages with these ids that this home sent."""
        query = f"SELECT {COLUMNS}, team FROM messages WHERE id = ? AND told IS NOT NULL"
        return [LedgerEntry(message_of(row), team) for id in ids for *row, team in self.rows(query, id)]

    def find(self, prefix: str) -> LedgerEntry:
        """Return the message whose id is, or begins with, `prefix`. Raise LedgerError for none or several."""
        if not is_id(prefix):
            raise NoSuchMessage(f"{prefix[:40]!r} does not begin any id. `relay messages` lists the ids.")
        # A range instead of LIKE, which would read every row. No character of an id is greater than "z".
        begins = "id >= ?1 AND id < ?1 || '{'"
        rows = self.rows(f"SELECT {COLUMNS}, team FROM messages WHERE {begins} ORDER BY id LIMIT 4", prefix)
        if not rows:
            raise NoSuchMessage(
                f"no message has an id that begins with {prefix!r}. `relay messages` lists them."
            )
        if len(rows) > 1 and rows[0][0] != prefix:
            ids = ", ".join(id for id, *_ in rows[:3]) + (", ..." if len(rows) > 3 else "")
            raise LedgerError(
                f"several messages have ids that begin with {prefix!r}: {ids}. Give more of the id."
            )
        *found, team = rows[0]
        return LedgerEntry(message_of(found), team)

    def retry(
        self, id: str, to: str | None = None, *, limits: Limits | None = None, by_user: bool = True
    ) -> Message:
        """Send message `id` again: at once if it is in transit, as a new message if it is settled.

        to:      send it to this agent instead, and drop the original.
        limits:  those of relay.toml (default: Limits()).
        by_user: the user asked: the runaway guard does not apply, and a new reply chain begins.

        A settled message keeps its id and its true state; the copy has a new id, because a receiver ignores
        an id that it has seen. Raise LedgerError if the message waits at its receiver, or is held.
        """
        entry = self.find(id)
        message = entry.message
        if not self.lookup([message.id]):
            raise LedgerError(
                f"message {message.id} was sent from another home; ask {message.sender} to send it again."
            )
        if message.state is State.HELD:
            raise LedgerError(f"message {message.id} is held; release it with `relay release`.")
        if to is None and message.state is State.STORED:
            raise LedgerError(
                f"message {message.id} has arrived and waits until {message.to} is ready. If that never "
                "happens, drop it with `relay drop`, then send it again."
            )
        if to is None and not message.state.final:
            self.write("UPDATE messages SET due = ? WHERE id = ?", self.now(), message.id)
            return message
        receiver = to or message.to
        limits = limits or Limits()
        same = (message.body, message.thread, message.reply_to, message.priority, limits.ttl)
        outgoing = OutgoingMessage(receiver, *same, depth=0 if by_user else message.depth)
        guard = None if by_user else limits
        with self.transaction() as db:  # exactly one of the two messages is sent
            (again,) = self.outbox.send(
                entry.team, message.sender, [receiver], outgoing, channel=message.channel, limits=guard
            )
            if not message.state.final:
                self.drop(message.id)
            detail = f"sent again as {again.id}" + (f" to {to}" if to else "")
            db.execute("UPDATE messages SET detail = ?, seen = 1 WHERE id = ?", (detail, message.id))
        return again

    def drop(self, id: str, *, by: str = "the user") -> Message:
        """Drop message `id`, and return it as it was.

        If it waits, it will not be typed; if it is settled, it is no longer listed.  If the broker or another
        home has it, it may still be typed there, and its state then says so.

        by: who drops it, for the message's detail.

        Raise LedgerError, and change nothing, if it is being typed.
        """
        with self.transaction() as db:
            message = self.find(id).message
            detail = f"dropped by {by}"
            read_here = message.state is State.STORED and names.same(message.to, names.PERSON)
            ((here, injecting),) = self.rows("SELECT here, injecting FROM messages WHERE id = ?", message.id)
            waits = here and message.state is State.STORED
            if message.state.final or read_here:
                db.execute("UPDATE messages SET hidden = 1 WHERE id = ?", (message.id,))
            elif waits and injecting:
                raise LedgerError(
                    f"message {message.id} can no longer be dropped: it is being typed into {message.to}. "
                    "Follow it with `relay messages`."
                )
            elif waits:
                advance(db, "id = ?", (message.id,), State.REJECTED, detail)
            else:
                if message.state is State.STORED:
                    detail += (
                        f"; it had arrived at {message.to}, on another host, and may still be typed there"
                    )
                advance(db, "id = ?", (message.id,), State.EXPIRED, detail)
                unblock(db, [message.id], self.now())
            db.execute("UPDATE messages SET seen = 1 WHERE id = ?", (message.id,))
        return message

    def held(self, *, team: str | None = None, sender: str | None = None, to: str | None = None) -> list[str]:
        """Return the ids of messages that the runaway guard holds, in the order in which they were sent."""
        query = (
            "SELECT id FROM messages WHERE state = 'held' AND team = ifnull(?, team) "
            "AND sender_key = ifnull(?, sender_key) AND to_key = ifnull(?, to_key) ORDER BY place"
        )
        values = [each and names.key(each) for each in (team, sender, to)]
        return [id for (id,) in self.rows(query, *values)]

    def prune(self) -> None:
        """Forget messages that a call more than KEEP_DAYS ago found settled.

        The age of a message does not count: its outcome may be news, even if the clock has jumped.
        No outcome is forgotten before the broker has accepted it for the sender.
        """
        now = self.now()
        states = ", ".join(f"'{state}'" for state in State if state.final)
        final = f"(state IN ({states}) OR (state = 'stored' AND to_key = '{names.key(names.PERSON)}'))"
        with self.transaction() as db:
            db.execute(KEEP_TURN)
            db.execute(
                f"DELETE FROM messages WHERE {final} AND settled < ? "
                "AND (told IS NOT NULL OR receipted IS state)",
                (now - KEEP_DAYS * 86400.0,),
            )
            db.execute(
                f"UPDATE messages SET settled = iif({final}, ?, NULL) WHERE (settled IS NULL) = {final}",
                (now,),
            )
