"""The presences of a team: one session of this home writes them to the ledger, and all read them there.

    an announcement ─→ presence_listener ─→ PresenceTracker.hear ─→ Attendance, owners, channels, transit
                                                                 ─→ the bells of senders with mail for it

A team of the same name exists on each broker separately; `bus_of` distinguishes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from relay import names
from relay.dataclass import dataclass, replace
from relay.home import Home
from relay.messaging.doorbell import ring
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import LedgerDatabase, keys
from relay.messaging.name_owners import Owner
from relay.storage.locks import is_held
from relay.storage.writer import Writer
from relay.transport.endpoint import endpoints
from relay.transport.name_claims import is_present
from relay.transport.presence import MISSED, REPLACED, Presence

_SHOWN = ("name", "online", "seen", "boot", "session", "home", "host", "every", "owner", "over")
"""The columns that hold the fields of Presence."""

_shown = attrgetter(*_SHOWN)
_ROW = "SELECT {} FROM presences WHERE bus = ? AND team = ? {}"
_ITS = "AND key = ?"


def bus_of(urls: str | None) -> str:
    """Return an id for the broker at `urls`, the same for all its users; "" for the embedded one.

    urls: as for `endpoints`; the order of the nodes does not matter. Raise BrokerError.
    """
    if urls is None:
        return ""
    nodes = ",".join(sorted({node.url for node in endpoints(urls)}))
    return hashlib.sha256(nodes.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Attendance:
    """The presences of `team` on the broker `bus`, within a job of the ledger."""

    db: LedgerDatabase
    bus: str
    team: str

    def hear(self, heard: Presence, age: float = 0.0) -> bool | None:
        """Record an announcement; return True if its agent has just appeared (come online, or restarted).

        Return None, and record nothing, if it is a late one from an earlier connection.

        age: the seconds for which the broker had retained it; 0 for a live announcement.
        """
        was_online = False
        for before, silence in self._find(heard.name):
            known = before.boot == heard.boot
            was_online = known and before.online
            # A goodbye from an unknown connection counts only if it is a later one of the same run, which
            # never announced itself.
            later = heard.session == before.session != "" and heard.boot > before.boot
            if not (heard.online or known or later):
                return None
            if was_online and heard.online:
                age = min(age, silence)  # its host's clock may be slow; it was heard since
        row = (self.bus, *keys(self.team, heard.name), *_shown(heard), self.db.now() - age)
        values = ", ".join("?" * len(row))
        self.db.write(f"INSERT OR REPLACE INTO presences VALUES ({values})", *row)
        return heard.online and age < MISSED * heard.every and not was_online

    def online(self, name: str, owner: str | None = None) -> bool:
        """Return True if `name` is online, and has no owner other than `owner`, if that is given."""
        return self.home(name, owner) is not None

    def taken(self, name: str, owner: str | None) -> bool:
        """Return True if `name` is online and has an owner other than `owner`."""
        return self.online(name) and not self.online(name, owner)

    def there(self, name: str) -> bool:
        """Return True if `name` is online in another home, or was a moment ago and has not ended."""
        return any(
            found.home != self.db.origin and not found.over and (found.online or silence < REPLACED)
            for found, silence in self._find(name)
        )

    def home(self, name: str, owner: str | None = None) -> str | None:
        """Return the ledger that `name` announced ("": none); None if `online` is False."""
        for found, _ in self._find(name):
            if found.online and owner in {None, found.owner or owner}:
                return found.home
        return None

    def count(self) -> int:
        ((count,),) = self._rows("count(*)", f"AND online AND ? - heard < {MISSED} * every", self.db.now())
        return int(count)

    def roster(self, known: Iterable[str], name: str | None = None) -> list[Presence]:
        """Return all agents, sorted by name: those that announced themselves, and those only `known`.

        name: return only this agent.
        """
        everybody = {names.key(each): Presence(each, False, 0.0) for each in known}
        everybody |= {names.key(found.name): found for found, _ in self._find(name)}
        return [everybody[key] for key in sorted(everybody)]

    def _find(self, name: str | None) -> Iterator[tuple[Presence, float]]:
        """Yield all presences, or that of `name`, as of now, and the seconds since each was heard."""
        now = self.db.now()
        which = ("",) if name is None else (_ITS, names.key(name))
        for *shown, heard in self._rows(", ".join((*_SHOWN, "heard")), *which):
            found = Presence(**dict(zip(_SHOWN, shown, strict=True)))
            silence = now - heard
            online = bool(found.online) and silence < MISSED * found.every
            yield replace(found, online=online, over=bool(found.over)), silence

    def _rows(self, columns: str, condition: str, *values: object) -> list[Any]:
        return self.db.rows(_ROW.format(columns, condition), self.bus, *keys(self.team), *values)


def is_alive(home: Home, team: str, name: str) -> bool:
    """Return True if an agent of `home` has the name, even while its session is being replaced."""
    return is_present(home, team, name) or is_held(home.agent_lock(team, name))


@dataclass(frozen=True, slots=True)
class Heard:
    """An announcement as it arrived. retained: the broker had kept it; age: seconds, by its timestamp."""

    presence: Presence
    retained: bool
    age: float


@dataclass(eq=False, slots=True)
class PresenceTracker:
    """The presences of `team` on the broker `bus`, for `name` of this home.

    origin: the id of this home's ledger.
    """

    home: Home
    ledger: Writer[Ledger]
    bus: str
    team: str
    name: str
    origin: str

    async def leave(self) -> None:
        """Send the messages for this client's agent to the home in which its name is. Raise LedgerError."""

        def leave(ledger: Ledger) -> set[str]:
            where = self.attendance(ledger).home(self.name) or None
            return {*ledger.move_away(self.team, self.name, where)}

        for sender in await self.ledger.run(leave):
            ring(self.home, self.team, sender)

    async def hear(self, *batch: Heard) -> bool:
        """Record announcements, and ring the bells of senders whose messages can proceed, or are settled.

        Return False if one of these senders has no session. Raise LedgerError if nothing was recorded.
        """
        # In one job: an agent appears together with its mail.
        concerned = await self.ledger.run(lambda ledger: self._note(ledger, batch))
        rung = [ring(self.home, self.team, sender) for sender in concerned]
        return all(rung)

    def _note(self, ledger: Ledger, batch: tuple[Heard, ...]) -> set[str]:
        concerned: set[str] = set()
        left = False
        for each in batch:
            heard = each.presence
            there = self.attendance(ledger)
            elsewhere = heard.home != self.origin
            ledger.registry.register(self.team, heard.name)
            # A will has the channels that its agent was in when it connected; listeners know better.
            if elsewhere and (heard.online or each.retained):
                ledger.channels.heard(self.team, heard.name, heard.channels)
            appeared = there.hear(heard, each.age if each.retained else 0.0)
            if elsewhere and appeared is not None:
                self._note_owner(ledger, heard)
            seen = (heard.home or None, heard.owner or None)
            if (
                elsewhere
                and heard.home
                and there.home(heard.name) == heard.home
                and (appeared or ledger.registry.is_here(self.team, heard.name))
                and not self.is_alive(self.team, heard.name)  # or it was ending when the other one appeared
            ):
                concerned.update(ledger.move_away(self.team, heard.name, *seen))
            elif appeared:
                concerned.update(ledger.transit.appeared(self.team, heard.name, *seen))
            left = left or not heard.online
        if left:
            self.recover_dead(ledger)
            ledger.owners.end_gone(self.is_alive)
            concerned.update(ledger.outbox.untold(self.team))
        return concerned

    def _note_owner(self, ledger: Ledger, heard: Presence) -> None:
        """Record the owner of a name in another home, unless an agent of this home has it."""
        if not heard.owner or self.is_alive(self.team, heard.name):
            return
        known, _ = ledger.owners.of(self.team, heard.name)
        if known is None or heard.online or (heard.over and known != heard.owner):
            ledger.owners.take(self.team, heard.name, Owner(heard.owner), here=False)
        if heard.over:
            ledger.owners.end(self.team, heard.name, heard.owner)

    def attendance(self, ledger: Ledger) -> Attendance:
        """Return the attendance; call it within a ledger job."""
        return Attendance(ledger, self.bus, self.team)

    def there(self, ledger: Ledger, name: str) -> bool:
        """Return True if `name` is online (heard recently, or of this home); call it within a ledger job."""
        return self.attendance(ledger).there(name) or self.is_alive(self.team, name)

    def recover_dead(self, ledger: Ledger) -> None:
        """Settle the messages that sessions of this home were typing when they died; a ledger job.

        Skip agents whose shim lives: their next session sees the outcome.
        """
        for name in ledger.inbox.begun(self.team):
            if not self.is_alive(self.team, name):
                ledger.inbox.recover(self.team, name)

    async def everybody(self, name: str | None = None) -> list[Presence]:
        """Return all known agents of the team, by name, except finished runs.

        For agents of this home the result is always up to date.  name: return only this agent, which is much
        less work in a large team.
        """

        def known(ledger: Ledger) -> list[Presence]:
            registered = ledger.registry.known(self.team, name)
            everybody = self.attendance(ledger).roster(registered, name)
            ended = ledger.owners.ended(self.team)
            # No session may have heard the last agent of this home leave.
            return [
                replace(each, online=(each.online and each.home != self.origin) or self._is_here(each.name))
                for each in everybody
                if names.key(each.name) not in ended or self._is_here(each.name)
            ]

        return await self.ledger.run(known)

    def is_alive(self, team: str, name: str) -> bool:
        """Return True if an agent of this home has the name, even while its session is being replaced."""
        return is_alive(self.home, team, name)

    def _is_here(self, name: str) -> bool:
        return is_present(self.home, self.team, name)
