"""Who is in a team and who of them is there: retained presence, made honest by boot ids and time.

An agent announces itself (retained) when it connects, says so again every HEARTBEAT seconds, and leaves a
will.  A retained "online" survives an agent whose host died, so one that is older than STALE seconds counts
as offline; a will or goodbye of an earlier run, which may arrive late, has another boot id and is ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from relay import names
from relay.bus.topics import level
from relay.errors import InvalidName

HEARTBEAT = 30.0
STALE = 3 * HEARTBEAT
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Presence:
    """What is known of an agent. seen: seconds since the epoch, 0 if it was never heard of on this run."""

    name: str
    online: bool
    seen: float
    boot: str = ""


def encode(name: str, boot: str, now: float, *, online: bool) -> bytes:
    """The payload of an announcement; for a will, `now` is when the connection was made."""
    value = {"v": _VERSION, "name": name, "boot": boot, "time": now, "online": online}
    return json.dumps(value, separators=(",", ":")).encode()


def decode(payload: bytes, topic_level: str) -> Presence | None:
    """The announcement in `payload`, or None if it is foreign (another version, another name's topic)."""
    try:
        value = json.loads(payload)
        if value["v"] != _VERSION or level(value["name"]) != topic_level:
            return None
        return Presence(
            names.validate(value["name"]), value["online"] is True, float(value["time"]), str(value["boot"])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidName):
        return None


class Roster:
    """The presences of one team, as one agent hears them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._heard: dict[str, Presence] = {}

    def hear(self, presence: Presence, *, retained: bool) -> bool:
        """Take an announcement; whether its agent has just appeared (come online, or started anew).

        retained: the broker had kept it, so its own time says how old it is; otherwise it is of now, whatever
        the clock of its host says.
        """
        key = names.key(presence.name)
        before = self._heard.get(key)
        if not presence.online and before is not None and before.boot != presence.boot:
            return False
        if not retained:
            presence = Presence(presence.name, presence.online, self._clock(), presence.boot)
        was_online = before is not None and self._is_online(before) and before.boot == presence.boot
        self._heard[key] = presence
        return self._is_online(presence) and not was_online

    def online(self, name: str) -> bool:
        presence = self._heard.get(names.key(name))
        return presence is not None and self._is_online(presence)

    def list(self, known: Iterable[str]) -> list[Presence]:
        """Everybody, by name: those heard of and those who are only `known`."""
        everybody = {names.key(name): Presence(name, False, 0.0) for name in known} | {
            key: Presence(p.name, self._is_online(p), p.seen, p.boot) for key, p in self._heard.items()
        }
        return [everybody[key] for key in sorted(everybody)]

    def _is_online(self, presence: Presence) -> bool:
        return presence.online and self._clock() - presence.seen < STALE
