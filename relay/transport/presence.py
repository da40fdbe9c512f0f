"""Who is in a team and who of them is there: retained presence, made honest by boot ids and time.

An agent announces itself (retained) when it connects, says so again every `interval` seconds, and leaves a
will.  A retained "online" survives an agent whose host died, so one that has been silent for three times
what it calls its interval counts as offline; a will or goodbye of an earlier connection, which may arrive
late, has another boot id and is ignored.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relay import names
from relay.errors import InvalidName
from relay.transport.topics import level

HEARTBEAT = 30.0
LONGEST_HEARTBEAT = 3600.0
"""Seconds between two announcements of one agent: at least, and at most."""

MISSED = 3
"""Announcements that must be missing until an agent counts as offline."""

MAX_PAYLOAD = 16 * 1024
"""Bytes of an announcement: names are short, and there are few of them."""

MAX_SHORT = 128
"""Characters of an id or a host's name in an announcement."""

MAX_CHANNELS = 128
"""Channels that one agent may hear; 64 characters each fit into MAX_PAYLOAD."""

_PER_SECOND = 4.0  # announcements that each agent of a large team hears; one costs it some 0.1 ms
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Presence:
    """What is known of an agent.

    seen:     seconds since the epoch, 0 if it was never heard of on this run.
    boot:     the connection that it is of; later ones of one session are greater.
    session:  the run of its courier, which may connect many times.
    home:     the origin of the ledger of its home; host: what its machine calls itself.
    every:    seconds after which it says so again, at the latest.
    channels: those it has joined.
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
    """Seconds between two announcements of an agent in a team of which `online` are there.

    Each hears all the others, so that the pace of a large team falls with its size.
    """
    return min(LONGEST_HEARTBEAT, max(HEARTBEAT, online / _PER_SECOND))


def encode(
    name: str,
    boot: str,
    now: float,
    *,
    online: bool,
    session: str = "",
    home: str = "",
    host: str = "",
    every: float = HEARTBEAT,
    channels: Sequence[str] = (),
) -> bytes:
    """The payload of an announcement, of fields as in Presence; a will's `now` is that of the connection."""
    value = {
        "v": _VERSION,
        "name": name,
        "boot": boot,
        "session": session,
        "home": home,
        "host": host,
        "time": now,
        "online": online,
        "every": every,
        "channels": list(channels),
    }
    return json.dumps(value, separators=(",", ":")).encode()


def short(value: object) -> str:
    """`value`, if it is a short printable text; ValueError if not."""
    if isinstance(value, str) and len(value) <= MAX_SHORT and value.isprintable():
        return value
    raise ValueError(value)


def decode(payload: bytes, topic_level: str) -> Presence | None:
    """The announcement in `payload`, or None if it is foreign (another version, another name's topic)."""
    if len(payload) > MAX_PAYLOAD:
        return None
    try:
        value = json.loads(payload)
        if value["v"] != _VERSION or level(value["name"]) != topic_level:
            return None
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
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, InvalidName):
        return None


@dataclass(frozen=True, slots=True)
class _Heard:
    """An announcement, and when it was said, on the roster's steady clock."""

    presence: Presence
    at: float


def _follows(presence: Presence, before: Presence) -> bool:
    """Whether `presence` is of a later connection of the same run, whose own announcement was never made."""
    return presence.session == before.session != "" and presence.boot > before.boot


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who was there at one moment, for any thread. at: that moment, on the roster's steady clock."""

    heard: Mapping[str, _Heard]
    at: float

    def online(self, name: str) -> bool:
        """Return True if `name` was there."""
        heard = self.heard.get(names.key(name))
        return heard is not None and self._is_online(heard)

    def home(self, name: str) -> str | None:
        """Return the ledger that `name` had; None if it was not online, or did not say."""
        heard = self.heard.get(names.key(name))
        return heard.presence.home or None if heard is not None and self._is_online(heard) else None

    def count(self) -> int:
        """Return how many were online."""
        return sum(map(self._is_online, self.heard.values()))

    def list(self, known: Iterable[str]) -> list[Presence]:
        """Return everybody, by name: those heard of and those who are only `known`."""
        everybody = {names.key(name): Presence(name, False, 0.0) for name in known} | {
            key: replace(heard.presence, online=self._is_online(heard)) for key, heard in self.heard.items()
        }
        return [everybody[key] for key in sorted(everybody)]

    def _is_online(self, heard: _Heard) -> bool:
        return heard.presence.online and self.at - heard.at < MISSED * heard.presence.every


class Roster:
    """The presences of one team, as one agent hears them.

    steady: a clock (seconds) that nobody sets, by which silence is measured; wall: seconds since the epoch,
    by which only the age of what the broker had kept is told.
    """

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._steady = steady
        self._wall = wall
        self._heard: Mapping[str, _Heard] = {}  # replaced, never changed

    def now(self) -> Attendance:
        """Return who is there now; later announcements do not change it."""
        return Attendance(self._heard, self._steady())

    def hear(self, presence: Presence, *, retained: bool) -> bool:
        """Take an announcement; True if its agent has just appeared (come online, or started anew).

        retained: the broker had kept it, so its own time says how old it is (none, if that lies ahead);
        otherwise it is of now, whatever the clock of its host says.
        """
        key = names.key(presence.name)
        before = self._heard.get(key)
        known = before is not None and before.presence.boot == presence.boot
        if not presence.online and before is not None and not (known or _follows(presence, before.presence)):
            return False
        was_online = known and self.online(presence.name)
        at = self._steady()
        if retained:
            at -= max(0.0, self._wall() - presence.seen)
            if before is not None and known and presence.online:
                at = max(at, before.at)  # its host's clock may be late; it was heard since
        else:
            presence = replace(presence, seen=self._wall())
        self._heard = {**self._heard, key: _Heard(presence, at)}
        return self.online(presence.name) and not was_online

    def forget(self, name: str) -> None:
        """Take back what was heard of `name`: its next announcement is its first."""
        self._heard = {key: heard for key, heard in self._heard.items() if key != names.key(name)}

    def online(self, name: str) -> bool:
        """Return True if `name` is there."""
        return self.now().online(name)
