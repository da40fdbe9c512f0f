"""Presence: the agents of a team, and which of them are online.

An agent announces itself (retained) when it connects, repeats that every `interval` seconds, and leaves a
will.  A retained "online" survives an agent whose host died, so an agent that is silent for MISSED of its
announced intervals counts as offline.  A will or goodbye of an earlier connection may arrive late: it has
another boot id and is ignored.
"""

from __future__ import annotations

import json
import math
from typing import Any

from relay import names
from relay.dataclass import asdict, dataclass
from relay.errors import InvalidName
from relay.transport.topics import level

HEARTBEAT = 30.0
LONGEST_HEARTBEAT = 3600.0
"""Minimum and maximum seconds between two announcements of one agent."""

MISSED = 3
"""Announcements that an agent misses before it counts as offline."""

REPLACED = 30.0
"""Seconds within which an offline agent that has not ended may get another session."""

MAX_PAYLOAD = 16 * 1024
"""Maximum bytes of an announcement: names are short, and there are few of them."""

MAX_SHORT = 128
"""Maximum characters of an id or a host name in an announcement."""

MAX_CHANNELS = 128
"""Maximum channels of one agent; 64 characters each fit into MAX_PAYLOAD."""

_PER_SECOND = 4.0  # announcements that a home's listener hears in a large team
VERSION = 1
FOREIGN = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, InvalidName)


@dataclass(frozen=True, slots=True)
class Presence:
    """An announcement of an agent, or what is known about it.

    seen:     seconds since the epoch, 0 if it was not heard in this run.
    boot:     the id of its connection; in one session, later ids are greater.
    session:  the id of the run of its messaging client, which may connect many times.
    home:     the origin of its home's ledger; host: the name of its machine.
    every:    seconds after which it announces itself again, at the latest.
    channels: the channels that it is in.
    owner:    the owner of its name (relay.messaging.name_owners); "": not known.
    over:     the agent has ended; otherwise an offline agent may be back in a moment.
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
    owner: str = ""
    over: bool = False


def interval(online: int) -> float:
    """Return the seconds between two announcements of an agent in a team with `online` agents.

    A listener hears all agents, so the larger a team is, the less often each one announces itself.
    """
    return min(LONGEST_HEARTBEAT, max(HEARTBEAT, online / _PER_SECOND))


def encode(announced: Presence) -> bytes:
    value = {"v": VERSION} | asdict(announced)
    value["time"] = value.pop("seen")
    return json.dumps(value, separators=(",", ":")).encode()


def short(value: object) -> str:
    """Return `value` if it is short printable text. Raise ValueError if not."""
    if isinstance(value, str) and len(value) <= MAX_SHORT and value.isprintable():
        return value
    raise ValueError(value)


def _channels(value: list[str]) -> tuple[str, ...]:
    if len(value) > MAX_CHANNELS:
        raise ValueError(value)
    return tuple(names.validate(channel, "channel") for channel in value)


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
            _channels(value["channels"]),
            short(value.get("owner", "")),
            value.get("over") is True,
        )
    except FOREIGN:
        return None
