"""Channels: the members of a team that receive the messages to `#name`.

    relay join, relay.toml ─→ members ─→ the member's announcement ─→ members in the ledgers of other homes
                                 └─→ a message to `#name` is one message to each of them

A member's home keeps the membership in its ledger, whether the member runs or not; its presence announces it.
Other homes record these announcements, so a sender also reaches absent members.  A channel exists as long as
it has a member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from relay import names
from relay.dataclass import dataclass, replace
from relay.errors import MessageRefused, NotAMember, UnknownRecipient
from relay.message import State
from relay.messaging.ledger_database import LedgerDatabase, advance, keys
from relay.transport.presence import MAX_CHANNELS

CATCH_UP = 100
"""Maximum messages of one channel, sent from one home, that wait for an absent member."""

_SHOWN = 5  # channels, and members of each, that an error names

_JOIN = (
    "INSERT OR IGNORE INTO members VALUES (?1, ?2, ?3, "
    "ifnull((SELECT min(channel) FROM members WHERE team = ?1 AND channel_key = ?2), ?4), ?5)"
)
_LEAVE = "DELETE FROM members WHERE team = ? AND channel_key = ? AND key = ?"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of `team` (in lower case) and its members, each in its own spelling."""

    name: str
    team: str
    members: tuple[str, ...]


class ChannelRegistry:
    """The channels of a ledger. Their names are passed and returned without `#`, and have one spelling."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def join(self, team: str, channel: str, name: str) -> bool:
        """Make `name` a member; return False if it already was. Raise MessageRefused beyond MAX_CHANNELS."""
        own = self.of(team, name)
        if len(own) >= MAX_CHANNELS and not any(names.same(channel, each) for each in own):
            raise MessageRefused(f"{name!r} is in {MAX_CHANNELS} channels. `relay leave` one of them first.")
        return self._db.write(_JOIN, *keys(team, channel, name), channel, name) == 1

    def leave(self, team: str, channel: str, name: str) -> None:
        """End the membership of `name`. Raise NotAMember, with a suggestion, if it has none."""
        if not self._db.write(_LEAVE, *keys(team, channel, name)):
            own = self.of(team, name)
            meant = names.suggest(channel, own)
            these = ", ".join(f"#{each}" for each in own) or "no channel"
            hint = f"Did you mean #{meant}?" if meant else f"It is in {these}."
            raise NotAMember(f"{name!r} is not in #{channel}. {hint}")

    def heard(self, team: str, name: str, channels: Iterable[str]) -> None:
        """Record that `name`, of another home, is in these channels and no others."""
        told = {names.key(channel): channel for channel in channels}
        before = {names.key(channel) for channel in self.of(team, name)}
        if before == set(told):
            return
        team_key, key = keys(team, name)
        with self._db.transaction() as db:
            db.executemany(_LEAVE, [(team_key, gone, key) for gone in before - set(told)])
            db.executemany(_JOIN, [(team_key, new, key, told[new], name) for new in set(told) - before])

    def of(self, team: str, name: str) -> list[str]:
        query = "SELECT channel FROM members WHERE team = ? AND key = ? ORDER BY channel_key"
        return [channel for (channel,) in self._db.rows(query, *keys(team, name))]

    def audience(self, team: str, channel: str, sender: str) -> Channel:
        """Return `channel` without `sender`. Raise UnknownRecipient, with advice, if no member is left."""
        channels = self.all(team)
        for each in channels:
            if names.same(each.name, channel):
                others = tuple(name for name in each.members if not names.same(name, sender))
                if others:
                    return replace(each, members=others)
                raise UnknownRecipient(
                    f"nobody else is in #{each.name}. Add an agent with `relay join -n NAME {each.name}`."
                )
        if (meant := names.suggest(channel, [each.name for each in channels])) is not None:
            advice = f"Did you mean #{meant}?"
        elif channels:
            advice = f"There {'is' if len(channels) == 1 else 'are'} {_listed(channels)}."
        else:
            advice = "There are no channels yet."
        raise UnknownRecipient(
            f"nobody in team {team!r} is in #{channel}. {advice} Join it with `relay join {channel}`.",
            None if meant is None else f"#{meant}",
        )

    def limit(self, team: str, away: Callable[[str], bool]) -> int:
        """Expire all but the latest CATCH_UP messages of each channel that wait for a member that is `away`.

        Return the number of expired messages.  The messages behind them no longer wait for them: they are
        published when the member appears.
        """
        # A message in transit that waits for its receiver to appear has no due time.
        waits = (
            "FROM messages WHERE team = ? AND ((state IN ('queued', 'sent') AND due IS NULL) "
            "OR (state = 'stored' AND here AND NOT injecting)) AND told IS NOT NULL"
        )
        crowded = self._db.rows(
            f"SELECT to_key, recipient, channel {waits} AND channel IS NOT NULL "
            "GROUP BY to_key, channel HAVING count(*) > ?",
            *keys(team),
            CATCH_UP,
        )
        oldest = f"SELECT id {waits} AND to_key = ? AND channel = ? ORDER BY place DESC LIMIT -1 OFFSET ?"
        left_out = 0
        for key, name, channel in crowded:
            if away(name):
                why = f"left out: {name} was away for more than {CATCH_UP} messages of #{channel}"
                its = (*keys(team), key, channel, CATCH_UP)
                with self._db.transaction() as db:
                    left_out += advance(db, f"id IN ({oldest})", its, State.EXPIRED, why)
        return left_out

    def all(self, team: str | None = None) -> list[Channel]:
        rows = self._db.rows(
            "SELECT members.team, channel_key, channel, ifnull(registry.name, members.name) "
            "FROM members LEFT JOIN registry ON registry.team = members.team "
            "AND registry.key = members.key WHERE members.team = ifnull(?, members.team) "
            "ORDER BY members.team, channel_key, members.key",
            None if team is None else names.key(team),
        )
        found: dict[tuple[str, str], Channel] = {}
        for in_team, key, channel, name in rows:
            known = found.get((in_team, key), Channel(channel, in_team, ()))
            found[in_team, key] = replace(known, members=(*known.members, name))
        return list(found.values())


def _listed(channels: list[Channel]) -> str:
    """Return a list of the first channels, such as `#ops (Alice, Bob)`."""
    shown = []
    for each in channels[:_SHOWN]:
        members = ", ".join(each.members[:_SHOWN]) + (", ..." if len(each.members) > _SHOWN else "")
        shown.append(f"#{each.name} ({members})")
    return ", ".join(shown) + (", ..." if len(channels) > _SHOWN else "")
