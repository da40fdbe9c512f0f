"""The user's inbox: what waits for the user, as one list in the home's ledger.

    sessions: AddItem, EndItem (features/user_inbox) ─→ add, end ─→ the table `items` ─┐
    messages to the user, held messages, and those that did not arrive ────────────────┴→ the view `inbox`

Commands, titles and sinks (relay.messaging.sinks) show the view; nothing else keeps what the user must know.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from relay import names
from relay.backoff import Backoff
from relay.dataclass import asdict, dataclass
from relay.errors import NoSuchMessage
from relay.text import count, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relay.messaging.ledger_database import LedgerDatabase

ORDER = (
    *("question", "failed", "held", "escalation", "unresponsive", "runaway"),
    *("message", "undelivered", "configuration", "notice"),
)
"""The kinds of items, the most urgent first."""

SINGLE = frozenset({"question", "failed", "held", "escalation"})
"""The kinds of which an agent has at most one item: a new one replaces the last."""

LASTING = frozenset({"failed", "notice"})
"""The kinds whose items outlast their agent."""

SAME = 15.0
"""Seconds within which an item that is added again is the same: a dialog is redrawn, a session replaced."""

NOTICES = 20
"""The newest notices of an agent that wait."""

NOTICE_DAYS = 7
"""Days after which a notice no longer waits; items that are done are forgotten then, too."""

SETTLES = 1.0
"""Seconds that an item must wait before a sink gets it: a user who sees it may deal with it at once."""

RATE, RATE_SECONDS = 10, 60.0
"""The most items that a sink gets in RATE_SECONDS; the others wait."""

LEASE = 60.0
"""Seconds after which a push without an outcome is repeated: the session that made it has died."""

RETRY = Backoff(15.0, 1800.0)
"""The waits between two attempts of a push."""

ATTEMPTS = 12
"""Attempts before a push is given up: about four hours."""

_MESSAGE = f"state = 'stored' AND NOT here AND to_key = '{names.key(names.PERSON)}' AND NOT hidden"
_RUNAWAY = "state = 'held'"
_UNDELIVERED = (
    "state IN ('expired', 'rejected', 'uncertain') AND told IS NOT NULL AND NOT hidden AND NOT seen"
)
_GROUPS = {
    "runaway": (_RUNAWAY, "team, sender_key"),
    "undelivered": (_UNDELIVERED, "team, sender_key, to_key"),
}
"""The kinds of which one item is several messages: their condition, and the columns that they share."""

TABLES = f"""CREATE TABLE items (
    id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, team TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
    text TEXT NOT NULL, since REAL NOT NULL,
    until REAL,                        -- when it no longer matters; NULL: never
    quiet INTEGER NOT NULL,            -- no sink gets it
    read INTEGER NOT NULL DEFAULT 0,
    done REAL                          -- since when it no longer waits; NULL: it does
);
CREATE TABLE pushes (
    item TEXT NOT NULL, sink TEXT NOT NULL, attempts INTEGER NOT NULL,
    at REAL NOT NULL,                  -- the last attempt
    due REAL,                          -- the next one; NULL: there is none
    PRIMARY KEY (item, sink)) WITHOUT ROWID;
-- The other columns are those of the row with the least or greatest place (SQLite, "bare columns").
CREATE VIEW inbox AS
    SELECT id, kind, team, group_concat(name, ', ') AS name, since, text, read, quiet, name AS owner,
        '' AS receiver, 1 AS number, min(rowid) AS place
        FROM items WHERE done IS NULL
        GROUP BY team, kind, text, iif(kind = 'configuration', '', key)
    UNION ALL SELECT id, 'message', team, sender, accepted, body, 0, 0, sender, '', 1, place
        FROM messages WHERE {_MESSAGE}
    UNION ALL SELECT id, 'runaway', team, sender, accepted, body, total(NOT seen) = 0, 0, sender, recipient,
        count(*), min(place) FROM messages WHERE {_RUNAWAY} GROUP BY team, sender_key
    UNION ALL SELECT id, 'undelivered', team, sender, accepted, ifnull(detail, state), 0,
        sender_key <> '{names.key(names.PERSON)}', sender, recipient, count(*), max(place)
        FROM messages WHERE {_UNDELIVERED} GROUP BY team, sender_key, to_key;
"""

INDEXES = f"""CREATE INDEX messages_undelivered ON messages (team, sender_key, to_key) WHERE {_UNDELIVERED};
CREATE INDEX items_open ON items (team, key, kind) WHERE done IS NULL;
"""

_SAME_ITEM = (
    "(team, kind, text) = (SELECT team, kind, text FROM items WHERE id = ?) "
    "AND (id = ? OR kind = 'configuration')"
)

_ITEM = "id, kind, name, team, since, text, read, receiver, number"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that waits for the user.

    The man page shows these lines (`make man`). Times are in seconds since the epoch.

    id:    its own id, or that of the message (of several, one of them).
    kind:  `question`, `failed`, `held` (the agent), `escalation`, `unresponsive`, `runaway` (its messages are
           held), `message`, `undelivered`, `configuration` or `notice`.
    name, team: the agent, or the sender of the messages.
    since: since when it waits; None if unknown.
    text:  what it is about; of a question, its rows and options as the agent drew them.
    read:  you have seen it with `relay inbox show`.
    next:  the command that deals with it.
    """

    id: str
    kind: str
    name: str
    team: str
    since: float | None
    text: str
    read: bool
    next: str

    @property
    def title(self) -> str:
        """A few words on what it is, with the name of the agent, or of several with the same mistake."""
        kind = "configurations" if self.kind == "configuration" and ", " in self.name else self.kind
        return _TITLES[kind].format(one_line(self.name, None))

    @property
    def line(self) -> str:
        """All of it, in one line."""
        text = one_line(self.text, None)
        return f"{self.title}: {text}{'' if text[-1:] in '.?!' else '.'} `{self.next}`"

    def public(self) -> dict[str, Any]:
        """Return the JSON object of `relay inbox --json`."""
        return asdict(self)


_TITLES = {
    "question": "{} has a question",
    "failed": "{} has failed",
    "held": "{} is held",
    "escalation": "{} needs you",
    "unresponsive": "{} does not answer",
    "runaway": "{} has sent too much",
    "message": "{} says to you",
    "undelivered": "a message from {} did not arrive",
    "configuration": "{} has a mistake in its configuration",
    "configurations": "{} have a mistake in their configuration",
    "notice": "{} has a notice for you",
}

_NEXT = {
    "question": "answer {name}",
    "failed": "logs {name}",
    "held": "release --agent {name}",
    "escalation": "attach {name}",
    "unresponsive": "reload {name}",
    "runaway": "release --from {name}",
    "configuration": "explain {name}",
}


def item(
    id: str,
    kind: str,
    name: str,
    team: str,
    since: float | None,
    text: str,
    read: int = 0,
    receiver: str = "",
    number: int = 1,
) -> Item:
    """Return the item in a row of the view. receiver, number: of the messages in it."""
    first = name.partition(",")[0]  # several have the same mistake in their configuration
    command = _NEXT.get(kind, "inbox show {id}").format(name=first, id=id[:8])
    if kind == "runaway":
        text = f"{count(number, 'message')} held"
    elif kind == "undelivered":
        text = f"{count(number, 'message')} did not reach {receiver}: {text}"
        command = f"messages --from {name} --to {receiver}" if number > 1 else f"retry {id[:8]}"
    return Item(id, kind, name, team, since, text, bool(read), f"relay {command}")


def in_order(items: Iterable[Item]) -> list[Item]:
    """Return the items, the most urgent first, and of each kind the oldest."""
    return sorted(items, key=lambda each: (ORDER.index(each.kind), each.since or 0.0))


def unread_sentence(number: int) -> str:
    return f"{count(number, 'unread item')} in your inbox: `relay inbox`"


def number_of_unread(ledger: Path, team: str | None = None) -> int:
    """Return how many items are unread; 0 if the ledger does not exist or cannot be read.

    For commands that need nothing else of the ledger.
    """
    try:
        with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as db:
            return _unread(db, team)
    except sqlite3.Error:
        return 0


def _unread(db: sqlite3.Connection, team: str | None) -> int:
    query = "SELECT count(*) FROM inbox WHERE NOT read AND team = ifnull(?, team)"
    (number,) = db.execute(query, [team and names.key(team)]).fetchone()
    return int(number)


class UserInbox:
    """The user's items in a ledger. Names may have any spelling."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def add(
        self, team: str, name: str, kind: str, text: str, *, quiet: bool = False, lasts: float | None = None
    ) -> None:
        """Add an item, unless it waits already, or did less than SAME ago.

        quiet: no sink gets it. lasts: seconds after which it no longer matters.
        """
        now = self._db.now()
        until = None if lasts is None else now + lasts
        its = (*_keys(team, name), kind)
        with self._db.transaction() as db:
            if kind in SINGLE:
                self._end("team = ? AND key = ? AND kind = ? AND text <> ?", *its, text)
            again = (
                "UPDATE items SET done = NULL, until = ? "
                "WHERE team = ? AND key = ? AND kind = ? AND text = ? AND ifnull(done, ?) > ?"
            )
            if db.execute(again, (until, *its, text, now, now - SAME)).rowcount:
                return
            db.execute(
                "INSERT INTO items (id, team, key, kind, name, text, since, until, quiet) "
                "VALUES (lower(hex(randomblob(8))), ?, ?, ?, ?, ?, ?, ?, ?)",
                (*its, name, text, now, until, quiet),
            )
            if kind == "notice":
                own = "team = ? AND key = ? AND kind = ?"
                newest = f"SELECT id FROM items WHERE {own} ORDER BY since DESC, rowid DESC LIMIT {NOTICES}"
                self._end(f"{own} AND id NOT IN ({newest})", *its, *its)

    def begin(self, team: str, name: str, *, begins: bool) -> None:
        """End what earlier sessions have added, and this one adds again if it still waits.

        Notices stay, and escalations, unless the agent `begins`: it was just started, so nothing is the same.
        """
        stay = "('notice')" if begins else "('notice', 'escalation')"
        self._end(f"team = ? AND key = ? AND kind NOT IN {stay}", *_keys(team, name))
        if begins:
            was = "UPDATE items SET done = min(done, ?) WHERE team = ? AND key = ? AND done > ?"
            self._db.write(was, before := self._db.now() - SAME, *_keys(team, name), before)

    def end(self, team: str, name: str, kind: str, text: str | None = None) -> None:
        """End the agent's items of a `kind`, or only the one with this `text`."""
        which = "team = ? AND key = ? AND kind = ? AND text = ifnull(?, text)"
        self._end(which, *_keys(team, name), kind, text)

    def _end(self, which: str, *values: object) -> None:
        which = f"{which} AND done IS NULL"
        if self._db.rows(f"SELECT 1 FROM items WHERE {which} LIMIT 1", *values):  # most calls find nothing
            self._db.write(f"UPDATE items SET done = ? WHERE {which}", self._db.now(), *values)

    def settle(self, is_alive: Callable[[str, str], bool]) -> None:
        """End the items of agents that have died, and those whose time is over; forget old ones."""
        now = self._db.now()
        self._end("until < ?", now)
        for team, key in self._db.rows("SELECT DISTINCT team, key FROM items WHERE done IS NULL"):
            if not is_alive(team, key):
                kinds = ", ".join(f"'{kind}'" for kind in sorted(LASTING))
                self._end(f"team = ? AND key = ? AND kind NOT IN ({kinds})", team, key)
        old = now - NOTICE_DAYS * 86400.0
        if self._db.rows("SELECT 1 FROM items WHERE done < ? LIMIT 1", old):
            with self._db.transaction() as db:
                db.execute("DELETE FROM items WHERE done < ?", (old,))
                db.execute("DELETE FROM pushes WHERE at < ? AND item NOT IN (SELECT id FROM inbox)", (old,))

    def items(self, team: str | None = None) -> list[Item]:
        """Return what waits, the most urgent first."""
        query = f"SELECT {_ITEM} FROM inbox WHERE team = ifnull(?, team)"
        return in_order(item(*row) for row in self._db.rows(query, team and names.key(team)))

    def unread(self) -> int:
        with self._db.reading() as db:
            return _unread(db, None)

    def find(self, prefix: str) -> Item:
        """Return the item whose id begins with `prefix`. Raise NoSuchMessage for none or several."""
        found = [each for each in self.items() if prefix and each.id.startswith(prefix)]
        if len(found) != 1:
            which = "nothing in the inbox has" if not found else "several items have"
            raise NoSuchMessage(f"{which} an id that begins with {prefix[:40]!r}. `relay inbox` lists them.")
        return found[0]

    def read(self, item: Item) -> None:
        """Record that the user has read `item`. Messages leave the list then; all else waits on."""
        if item.kind in _GROUPS:
            which, columns = _GROUPS[item.kind]
            same = f"({columns}) = (SELECT {columns} FROM messages WHERE id = ?)"
            self._db.write(f"UPDATE messages SET seen = 1 WHERE {which} AND {same}", item.id)
        elif item.kind == "message":
            state = f"UPDATE messages SET state = 'read', told = 'read' WHERE id = ? AND {_MESSAGE}"
            self._db.write(state, item.id)
        else:
            self._db.write(f"UPDATE items SET read = 1 WHERE {_SAME_ITEM}", item.id, item.id)

    def done(self, item: Item) -> None:
        """Take `item` off the list; messages that are held stay on it, read, until they are released."""
        self.read(item)
        self._end(_SAME_ITEM, item.id, item.id)

    def next_push(
        self, sink: str, agent: tuple[str, str] | None = None, *, settled: bool = False
    ) -> Item | None:
        """Return an unread item that `sink` has not got, for the caller to push: no other process does.

        agent: only an item of this team and agent. settled: it need not have waited for SETTLES.
        """
        now = self._db.now()
        which = "team = ? AND owner = ? COLLATE NOCASE" if agent else "1"
        query = (
            f"SELECT {_ITEM} FROM inbox LEFT JOIN pushes ON item = id AND sink = ? WHERE NOT read "
            f"AND NOT quiet AND (item IS NULL AND since <= ? OR due <= ?) AND {which} "
            "ORDER BY kind = 'message', since LIMIT 1"
        )
        values = (sink, now - (0.0 if settled else SETTLES), now, *(_keys(*agent) if agent else ()))
        if not self._db.rows(query, *values):  # without the lock for writing: most calls find nothing
            return None
        with self._db.transaction() as db:
            recent = "SELECT count(*) FROM pushes WHERE sink = ? AND at > ?"
            if db.execute(recent, (sink, now - RATE_SECONDS)).fetchone()[0] >= RATE:
                return None
            if (row := db.execute(query, values).fetchone()) is None:
                return None
            db.execute(
                "INSERT INTO pushes VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE "
                "SET attempts = attempts + 1, at = excluded.at, due = excluded.due",
                (row[0], sink, now, now + LEASE),
            )
        return item(*row)

    def pushed(self, id: str, sink: str, *, succeeded: bool) -> None:
        """Record the outcome of a push. After a failure it is repeated later, ATTEMPTS times in all."""
        with self._db.transaction() as db:
            where = "WHERE item = ? AND sink = ?"
            (attempts,) = db.execute(f"SELECT attempts FROM pushes {where}", (id, sink)).fetchone()
            over = succeeded or attempts >= ATTEMPTS
            due = None if over else self._db.now() + RETRY.wait(attempts)
            db.execute(f"UPDATE pushes SET due = ? {where}", (due, id, sink))


def _keys(*texts: str) -> tuple[str, ...]:
    return tuple(map(names.key, texts))
