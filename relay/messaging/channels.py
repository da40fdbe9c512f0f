"""Channels: who of a team hears what is sent to `#name`.

    relay join, relay.toml ─→ members ─→ the member's announcement ─→ members in the ledgers of other homes
                                 └─→ a message to `#name` is one message to each of them

Membership belongs to the member: it is written down in the ledger of its home, running or not, and all that
it is in goes out with its presence.  Other homes write down what they hear, so that a sender reaches members
that are away.  A channel is there as long as somebody is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from relay import names
from relay.errors import MessageRefused, NotAMember, UnknownRecipient
from relay.message import State
from relay.messaging.ledger_database import LedgerDatabase
from relay.messaging.outbox import advance
from relay.transport.presence import MAX_CHANNELS

CATCH_UP = 100
"""Messages of one channel that wait for a member that is away; of what one home has sent."""

_SHOWN = 5  # channels, and members of each, that an error names

_JOIN = (
    "INSERT INTO members (team, channel_key, key, channel, name, joined, time) VALUES (?1, ?2, ?3, "
    "ifnull((SELECT min(channel) FROM members WHERE team = ?1 AND channel_key = ?2), ?4), ?5, 1, ?6) "
    "ON CONFLICT DO UPDATE SET joined = 1, time = excluded.time WHERE NOT joined"
)
_LEAVE = "UPDATE members SET joined = 0, time = ? WHERE team = ? AND channel_key = ? AND key = ? AND joined"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of `team` (in lower case) and who is in it, each as it spells itself."""

    name: str
    team: str
    members: tuple[str, ...]


class Channels:
    """Who is in which; a channel is given and returned without its `#`, in one spelling for each ledger."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def join(self, team: str, channel: str, name: str) -> bool:
        """Have `name` hear `channel`; False if it did already. Raises MessageRefused beyond MAX_CHANNELS."""
        where = (names.key(team), names.key(channel), names.key(name))
        own = self.of(team, name)
        if len(own) >= MAX_CHANNELS and not any(names.same(channel, each) for each in own):
            raise MessageRefused(f"{name!a} is in {MAX_CHANNELS} channels. `relay leave` one of them first.")
        with self._db.transaction() as db:
            done = db.execute(_JOIN, (*where, channel, name, self._db.now()))
        return done.rowcount == 1

    def leave(self, team: str, channel: str, name: str) -> None:
        """Have `name` no longer hear `channel`; NotAMember, with a suggestion, if it did not."""
        where = (names.key(team), names.key(channel), names.key(name))
        with self._db.transaction() as db:
            done = db.execute(_LEAVE, (self._db.now(), *where))
        if not done.rowcount:
            own = self.of(team, name)
            meant = names.suggest(channel, own)
            these = ", ".join(f"#{each}" for each in own) or "no channel"
            hint = f"Did you mean #{meant}?" if meant else f"It is in {these}."
            raise NotAMember(f"{name!a} is not in #{channel}. {hint}")

    def heard(self, team: str, name: str, channels: Iterable[str]) -> None:
        """`name`, of another home, is in these channels and in no other."""
        told = {names.key(channel): channel for channel in channels}
        before = {names.key(channel) for channel in self.of(team, name)}
        if before == set(told):
            return
        team_key, key, now = names.key(team), names.key(name), self._db.now()
        with self._db.transaction() as db:
            db.executemany(_LEAVE, [(now, team_key, gone, key) for gone in before - set(told)])
            db.executemany(_JOIN, [(team_key, new, key, told[new], name, now) for new in set(told) - before])

    def of(self, team: str, name: str) -> list[str]:
        """The channels that `name` hears, sorted."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT channel FROM members WHERE team = ? AND key = ? AND joined ORDER BY channel_key",
                (names.key(team), names.key(name)),
            ).fetchall()
        return [channel for (channel,) in rows]

    def audience(self, team: str, channel: str, sender: str) -> Channel:
        """`channel` without `sender`: who hears it there; UnknownRecipient, with advice, if nobody does."""
        channels = self.all(team)
        for each in channels:
            if names.same(each.name, channel):
                others = tuple(name for name in each.members if not names.same(name, sender))
                if others:
                    return replace(each, members=others)
                raise UnknownRecipient(
                    f"nobody else is in #{each.name}. `relay join -n NAME {each.name}` has another hear it."
                )
        meant = names.suggest(channel, [each.name for each in channels])
        if meant is not None:
            advice = f"Did you mean #{meant}?"
        elif channels:
            advice = f"There {'is' if len(channels) == 1 else 'are'} {_listed(channels)}."
        else:
            advice = "There is no channel yet."
        raise UnknownRecipient(
            f"nobody in team {team!a} is in #{channel}. {advice} `relay join {channel}` joins it.",
            None if meant is None else f"#{meant}",
        )

    def limit(self, team: str, away: Callable[[str], bool]) -> int:
        """Leave out the oldest messages beyond CATCH_UP that wait in a channel for a member that is `away`.

        Returns how many: they are expired, and say why.  Those behind them are published anew when the
        member appears, and wait for them no more.
        """
        # What waits for its receiver to appear has no time at which it is due.
        waits = "FROM outbox WHERE team = ? AND state IN ('queued', 'sent') AND due IS NULL"
        with self._db.reading() as db:
            crowded = db.execute(
                f"SELECT to_key, recipient, channel {waits} AND channel IS NOT NULL "
                "GROUP BY to_key, channel HAVING count(*) > ?",
                (names.key(team), CATCH_UP),
            ).fetchall()
        left_out = 0
        for key, name, channel in crowded:
            if not away(name):
                continue
            why = f"left out: {name} was away for more than {CATCH_UP} messages of #{channel}"
            with self._db.transaction() as db:
                ids = db.execute(
                    f"SELECT id {waits} AND to_key = ? AND channel = ? ORDER BY place DESC LIMIT -1 OFFSET ?",
                    (names.key(team), key, channel, CATCH_UP),
                ).fetchall()
                for id in ids:
                    advance(db, "id = ?", id, State.EXPIRED, why)
            left_out += len(ids)
        return left_out

    def all(self, team: str | None = None) -> list[Channel]:
        """The channels of `team`, or of all teams, by team and name."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT members.team, channel_key, channel, ifnull(registry.name, members.name) "
                "FROM members LEFT JOIN registry ON registry.team = members.team "
                "AND registry.key = members.key WHERE joined AND members.team = ifnull(?, members.team) "
                "ORDER BY members.team, channel_key, members.key",
                (None if team is None else names.key(team),),
            ).fetchall()
        found: dict[tuple[str, str], tuple[str, list[str]]] = {}
        for in_team, key, channel, name in rows:
            found.setdefault((in_team, key), (channel, []))[1].append(name)
        return [
            Channel(channel, in_team, tuple(members)) for (in_team, _), (channel, members) in found.items()
        ]


def _listed(channels: list[Channel]) -> str:
    """`#ops (Alice, Bob)`, the first ones."""
    shown = []
    for each in channels[:_SHOWN]:
        members = ", ".join(each.members[:_SHOWN]) + (", ..." if len(each.members) > _SHOWN else "")
        shown.append(f"#{each.name} ({members})")
    return ", ".join(shown) + (", ..." if len(channels) > _SHOWN else "")
