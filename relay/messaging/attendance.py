"""Attendance: the online agents of a team, recorded by one session of this home and read by all.

    an announcement ─→ presence_listener ─→ Attendance.hear ─→ a row in the ledger ─→ online, home, count

A team of the same name exists on each broker separately; `bus_of` distinguishes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
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
        now = self.db.now()
        before = self._rows("boot, session, heard, online, every", _ITS, names.key(heard.name))
        known = was_online = False
        at = now - age
        for boot, session, heard_at, online, every in before:
            known = boot == heard.boot
            was_online = known and _is_online(online, now - heard_at, every)
            # A goodbye from an unknown connection counts only if it is a later one of the same run, which
            # never announced itself.
            later = heard.session == session != "" and heard.boot > boot
            if not (heard.online or known or later):
                return False
            if known and online and heard.online:
                at = max(at, heard_at)  # its host's clock may be slow; it was heard since
        row = (self.bus, *keys(self.team, heard.name), *_shown(heard), at)
        values = ", ".join("?" * len(row))
        self.db.write(f"INSERT OR REPLACE INTO presences VALUES ({values})", *row)
        return _is_online(heard.online, now - at, heard.every) and not was_online

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
        return "".join(boot for (boot,) in self._rows("boot", _ITS, names.key(name)))

    def there(self, name: str) -> bool:
        """Return True if `name` is online, or went offline a moment ago without having ended."""
        now = self.db.now()
        return any(
            not over and (_is_online(online, now - at, every) or (not online and now - at < REPLACED))
            for online, at, every, over in self._rows("online, heard, every, over", _ITS, names.key(name))
        )

    def home(self, name: str, owner: str | None = None) -> str | None:
        """Return the ledger that `name` announced ("": none); None if `online` is False."""
        rows = self._rows("online, heard, every, home, owner", _ITS, names.key(name))
        for online, at, every, home, whose in rows:
            if _is_online(online, self.db.now() - at, every) and owner in {None, whose or owner}:
                return str(home)
        return None

    def count(self) -> int:
        """Return the number of online agents."""
        ((count,),) = self._rows("count(*)", f"AND online AND ? - heard < {MISSED} * every", self.db.now())
        return int(count)

    def roster(self, known: Iterable[str], name: str | None = None) -> list[Presence]:
        """Return all agents, sorted by name: those that announced themselves, and those only `known`.

        name: return only this agent.
        """
        now = self.db.now()
        everybody = {names.key(each): Presence(each, False, 0.0) for each in known}
        which = ("",) if name is None else (_ITS, names.key(name))
        for *shown, at in self._rows(", ".join((*_SHOWN, "heard")), *which):
            each = Presence(**dict(zip(_SHOWN, shown, strict=True)))
            there = _is_online(each.online, now - at, each.every)
            everybody[names.key(each.name)] = replace(each, online=there)
        return [everybody[key] for key in sorted(everybody)]

    def _rows(self, columns: str, condition: str, *values: object) -> list[Any]:
        return self.db.rows(_ROW.format(columns, condition), self.bus, *keys(self.team), *values)


def _is_online(online: bool, silence: float, every: float) -> bool:
    return bool(online) and silence < MISSED * every
