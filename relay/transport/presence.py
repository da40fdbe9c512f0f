"""Presence: the agents of a team, and which of them are online.

An agent announces itself (retained) when it connects, repeats that every `interval` seconds, and leaves a
will.  A retained "online" survives an agent whose host died, so an agent that was silent for MISSED of the
intervals that it announces counts as offline.  A will or goodbye of an earlier connection, which may arrive
late, has another boot id and is ignored.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from relay import names
from relay.errors import InvalidName
from relay.transport.topics import level

HEARTBEAT = 30.0
LONGEST_HEARTBEAT = 3600.0
"""Seconds between two announcements of one agent: at least, and at most."""

MISSED = 3
"""Announcements that an agent misses before it counts as offline."""

MAX_PAYLOAD = 16 * 1024
"""Bytes of an announcement: names are short, and there are few of them."""

MAX_SHORT = 128
"""Characters of an id or a host's name in an announcement."""

MAX_CHANNELS = 128
"""Channels that one agent may be in; 64 characters each fit into MAX_PAYLOAD."""

_PER_SECOND = 4.0  # announcements that each agent of a large team hears; one costs it some 0.1 ms
VERSION = 1
FOREIGN = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, InvalidName)
_FIELDS = ("name", "boot", "session", "home", "host", "time", "online", "every", "channels")


@dataclass(frozen=True, slots=True)
class Presence:
    """An announcement of an agent, or what is known of it.

    seen:     seconds since the epoch, 0 if it was not heard of in this run.
    boot:     the id of its connection; of one session, later ones are greater.
    session:  the id of the run of its messaging client, which may connect many times.
    home:     the origin of its home's ledger; host: the name of its machine.
    every:    seconds after which it announces itself again, at the latest.
    channels: the channels that it is in.
    """

    name: str
    online: bool
    seen: float
    boot: str = ""
    session: str = ""
    home: str = ""
    host: str = ""
    every: float = HEARTBEAT
    channels: tuple[str, ...] = ()


def interval(online: int) -> float:
    """Return the seconds between two announcements of an agent in a team of which `online` are there.

    Every agent hears all the others, so the pace of a large team falls with its size.
    """
    return min(LONGEST_HEARTBEAT, max(HEARTBEAT, online / _PER_SECOND))


def encode(announced: Presence) -> bytes:
    """Return the payload of an announcement."""
    said = asdict(announced) | {"time": announced.seen}
    value = {"v": VERSION} | {field: said[field] for field in _FIELDS}
    return json.dumps(value, separators=(",", ":")).encode()


def short(value: object) -> str:
    """Return `value` if it is a short printable text. Raise ValueError if not."""
    if isinstance(value, str) and len(value) <= MAX_SHORT and value.isprintable():
        return value
    raise ValueError(value)


def fields(payload: bytes, topic_level: str) -> Any:
    """Return the JSON object in `payload`. Raise one of FOREIGN for another version or name."""
    value = json.loads(payload if len(payload) <= MAX_PAYLOAD else b"")
    if value["v"] != VERSION or level(value["name"]) != topic_level:
        raise ValueError(value)
    return value


def decode(payload: bytes, topic_level: str) -> Presence | None:
    """Return the announcement in `payload`; None if it is foreign (another version or name)."""
    try:
        value = fields(payload, topic_level)
        seen, every = float(value["time"]), float(value["every"])
        if not (math.isfinite(seen) and 0 < every <= LONGEST_HEARTBEAT):
            return None
        return Presence(
            names.validate(value["name"]),
            value["online"] is True,
            seen,
            short(value["boot"]),
            short(value["session"]),
            short(value["home"]),
            short(value["host"]),
            every,
            tuple(names.validate(channel, "channel") for channel in value["channels"]),
        )
    except FOREIGN:
        return None


_Heard = tuple[Presence, float]
"""An announcement, and its time on the roster's steady clock."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """The presences at one moment, for any thread. at: that moment, on the roster's steady clock."""

    heard: Mapping[str, _Heard]
    at: float

    def online(self, name: str) -> bool:
        """Return True if `name` was online."""
        heard = self.heard.get(names.key(name))
        return heard is not None and self._is_online(heard)

    def home(self, name: str) -> str | None:
        """Return the ledger that `name` had; None if it was not online, or did not announce one."""
        return self.heard[names.key(name)][0].home or None if self.online(name) else None

    def count(self) -> int:
        """Return how many were online."""
        return sum(map(self._is_online, self.heard.values()))

    def list(self, known: Iterable[str]) -> list[Presence]:
        """Return everybody, by name: the agents that were heard, and those that are only `known`."""
        everybody = {names.key(name): Presence(name, False, 0.0) for name in known} | {
            key: replace(heard[0], online=self._is_online(heard)) for key, heard in self.heard.items()
        }
        return [everybody[key] for key in sorted(everybody)]

    def _is_online(self, heard: _Heard) -> bool:
        presence, at = heard
        return presence.online and self.at - at < MISSED * presence.every


class PresenceRoster:
    """The presences of one team, as one agent hears them.

    steady: a monotonic clock (seconds), which measures silence; wall: seconds since the epoch, which give the
    age of what the broker had kept.
    """

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._heard: Mapping[str, _Heard] = {}  # replaced, never changed

    def now(self) -> Attendance:
        """Return the presences now; later announcements do not change them."""
        return Attendance(self._heard, self._steady())

    def hear(self, presence: Presence, *, retained: bool) -> bool:
        """Take an announcement; return True if its agent has just appeared (come online, or started anew).

        retained: the broker had kept it, so its own time gives its age (0 if that lies ahead); else it counts
        as made now, whatever the clock of its host says.
        """
        key = names.key(presence.name)
        before, heard_at = self._heard.get(key, (None, 0.0))
        known = before is not None and before.boot == presence.boot
        if not presence.online and before is not None and not known:
            # Only a later connection of the same run, which never announced itself, may say goodbye.
            same_run = presence.session == before.session != ""
            if not (same_run and presence.boot > before.boot):
                return False
        was_online = known and self.online(presence.name)
        at = self._steady()
        if retained:
            at -= max(0.0, self._wall() - presence.seen)
            if known and presence.online:
                at = max(at, heard_at)  # its host's clock may be late; it was heard since
        else:
            presence = replace(presence, seen=self._wall())
        self._heard = {**self._heard, key: (presence, at)}
        return self.online(presence.name) and not was_online

    def forget(self, name: str) -> None:
        """Forget what was heard of `name`: its next announcement counts as its first."""
        self._heard = {key: heard for key, heard in self._heard.items() if key != names.key(name)}

    def online(self, name: str) -> bool:
        """Return True if `name` is online."""
        return self.now().online(name)
