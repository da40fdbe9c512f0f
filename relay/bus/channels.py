"""Channels: who of a team hears what is sent to `#name`.

    relay join, relay.toml ─→ members ─→ the member's announcement ─→ members in the ledgers of other homes
                                 └─→ a message to `#name` is one message to each of them

Membership belongs to the member: it is written down in the ledger of its home, running or not, and all that
it is in goes out with its presence.  Other homes write down what they hear, so that a sender reaches members
that are away.  A channel is there as long as somebody is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relay import names
from relay.bus.database import Database

CATCH_UP = 100
"""Messages of one channel that wait for a member that is away; the oldest beyond it are left out."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of `team` and who is in it, each as it spells itself; `name` begins with `#`."""

    team: str
    name: str
    members: tuple[str, ...]


class Channels:
    """A channel is given and returned with its `#` (names.channel); it has one spelling in a ledger."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def join(self, team: str, channel: str, name: str) -> bool:
        """Have `name` hear `channel`; False if it did already."""
        where = (names.key(team), names.key(name), names.key(channel))
        with self._db.transaction() as db:
            known = db.execute(
                "SELECT channel FROM members WHERE team = ? AND channel_key = ? ORDER BY since LIMIT 1",
                (where[0], where[2]),
            ).fetchone()
            done = db.execute(
                "INSERT OR IGNORE INTO members (team, name_key, channel_key, name, channel, since) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*where, name, known[0] if known else channel, self._db.now()),
            )
        return done.rowcount == 1

    def leave(self, team: str, channel: str, name: str) -> bool:
        """Have `name` no longer hear `channel`; False if it did not."""
        with self._db.transaction() as db:
            done = db.execute(
                "DELETE FROM members WHERE team = ? AND name_key = ? AND channel_key = ?",
                (names.key(team), names.key(name), names.key(channel)),
            )
        return done.rowcount == 1

    def heard(self, team: str, name: str, channels: Iterable[str]) -> None:
        """`name`, of another home, is in these channels and in no other."""
        announced = {names.key(channel): channel for channel in channels}
        before = {names.key(channel) for channel in self.of(team, name)}
        if before == set(announced):
            return
        who = (names.key(team), names.key(name))
        with self._db.transaction() as db:
            db.executemany(
                "DELETE FROM members WHERE team = ? AND name_key = ? AND channel_key = ?",
                [(*who, key) for key in before - set(announced)],
            )
            db.executemany(
                "INSERT OR IGNORE INTO members (team, name_key, channel_key, name, channel, since) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [(*who, key, name, announced[key], self._db.now()) for key in set(announced) - before],
            )

    def of(self, team: str, name: str) -> list[str]:
        """The channels that `name` hears, sorted."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT channel FROM members WHERE team = ? AND name_key = ? ORDER BY channel_key",
                (names.key(team), names.key(name)),
            ).fetchall()
        return [channel for (channel,) in rows]

    def members(self, team: str, channel: str) -> list[str]:
        """Who hears `channel`, sorted; nobody where there is no such channel."""
        return next(
            (list(each.members) for each in self.list(team) if names.same(each.name, channel)),
            [],
        )

    def list(self, team: str | None = None) -> list[Channel]:
        """The channels of `team`, or of all teams, by team and name."""
        where, values = ("", ()) if team is None else ("WHERE members.team = ?", (names.key(team),))
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT members.team, channel_key, channel, ifnull(registry.name, members.name) FROM members "
                "LEFT JOIN registry ON registry.team = members.team AND registry.key = name_key "
                f"{where} ORDER BY members.team, channel_key, since",
                values,
            ).fetchall()
        found: dict[tuple[str, str], tuple[str, list[str]]] = {}
        for in_team, key, channel, name in rows:
            found.setdefault((in_team, key), (channel, []))[1].append(name)
        return [
            Channel(in_team, channel, tuple(sorted(members, key=names.key)))
            for (in_team, _), (channel, members) in found.items()
        ]
