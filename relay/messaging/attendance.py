"""Attendance: the online agents of a team, recorded by one session of this home and read by all.

    an announcement ─→ presence_listener ─→ Attendance.hear ─→ a row in the ledger ─→ online, home, count

A team of the same name exists on each broker separately; `bus_of` distinguishes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from relay import names
from relay.messaging.ledger_database import LedgerDatabase, keys
from relay.transport.endpoint import endpoints
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

    def hear(self, heard: Presence, age: float = 0.0) -> bool:
        """Record an announcement; return True if its agent has just appeared (come online, or restarted).

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
                return False
            if was_online and heard.online:
                age = min(age, silence)  # its host's clock may be slow; it was heard since
        row = (self.bus, *keys(self.team, heard.name), *_shown(heard), self.db.now() - age)
        values = ", ".join("?" * len(row))
        self.db.write(f"INSERT OR REPLACE INTO presences VALUES ({values})", *row)
        return heard.online and age < MISSED * heard.every and not was_online

    def leave(self, home: str, present: Callable[[str], bool]) -> None:
        """Mark agents of `home` that are not `present` as offline: nobody may have heard them leave."""
        for (name,) in self._rows("name", "AND home = ? AND online", home):
            if not present(name):
                gone = "UPDATE presences SET online = 0 WHERE bus = ? AND team = ? AND key = ?"
                self.db.write(gone, self.bus, *keys(self.team, name))

    def online(self, name: str, owner: str | None = None) -> bool:
        """Return True if `name` is online, and has no owner other than `owner`, if that is given."""
        return self.home(name, owner) is not None

    def taken(self, name: str, owner: str | None) -> bool:
        """Return True if `name` is online and has an owner other than `owner`."""
        return self.online(name) and not self.online(name, owner)

    def boot(self, name: str) -> str:
        """Return the id of the connection on which `name` was last heard; "" if it never was."""
        return "".join(found.boot for found, _ in self._find(name))

    def there(self, name: str) -> bool:
        """Return True if `name` is online, or went offline a moment ago without having ended."""
        return any(
            not found.over and (found.online or silence < REPLACED) for found, silence in self._find(name)
        )

    def home(self, name: str, owner: str | None = None) -> str | None:
        """Return the ledger that `name` announced ("": none); None if `online` is False."""
        for found, _ in self._find(name):
            if found.online and owner in {None, found.owner or owner}:
                return found.home
        return None

    def count(self) -> int:
        """Return the number of online agents."""
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
