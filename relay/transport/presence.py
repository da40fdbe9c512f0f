"""Presence: the agents of a team, and which of them are online.

An agent announces itself (retained) when it connects, repeats that every `interval` seconds, and leaves a
will.  A retained "online" survives an agent whose host died, so an agent that is silent for MISSED of its
announced intervals counts as offline.  A will or goodbye of an earlier connection may arrive late: it has
another boot id and is ignored.
"""

from __future__ import annotations

from typing import Any

from relay.dataclass import asdict, dataclass
from relay.transport import wire
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


@dataclass(frozen=True, slots=True)
class Presence:
    """An announcement of an agent, or what is known about it.

    seen:     when it was announced, by its host's clock (seconds since the epoch); 0: never.
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


@dataclass(frozen=True, slots=True)
class NameClaim:
    """A newcomer's claim to its name.

    session: the id of the run of its messaging client, the same for all its connections.
    host:    the name of its machine.
    held:    it had the name on its last connection, which it lost.
    """

    name: str
    session: str
    host: str
    held: bool

    def yields_to(self, other: NameClaim) -> bool:
        """Return True if this one of two simultaneous claims gives way: a previous holder keeps the name."""
        return (not other.held, other.session) < (not self.held, self.session)


def interval(online: int) -> float:
    """Return the seconds between two announcements of an agent in a team with `online` agents.

    A listener hears all agents, so the larger a team is, the less often each one announces itself.
    """
    return min(LONGEST_HEARTBEAT, max(HEARTBEAT, online / _PER_SECOND))


def _short(value: Any) -> str:
    if isinstance(value, str) and len(value) <= MAX_SHORT and value.isprintable():
        return value
    raise ValueError(value)


def _every(value: Any) -> float:
    if 0 < wire.seconds(value) <= LONGEST_HEARTBEAT:
        return float(value)
    raise ValueError(value)


def _channels(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and len(value) <= MAX_CHANNELS:
        return tuple(map(wire.channel, value))
    raise ValueError(value)


_KINDS: dict[str, wire.Checks] = {
    "presence": {
        "name": wire.name,
        "online": wire.flag,
        "seen": wire.seconds,
        **dict.fromkeys(("boot", "session", "home", "host"), _short),
        "every": _every,
        "channels": _channels,
        "owner": _short,
        "over": wire.flag,
    },
    "claim": {"name": wire.name, "session": _short, "host": _short, "held": wire.flag},
}


def encode(said: Presence | NameClaim) -> bytes:
    return wire.encode("claim" if isinstance(said, NameClaim) else "presence", asdict(said))


def decode(payload: bytes, topic_level: str) -> Presence | NameClaim:
    """Return the announcement or claim in `payload`. Raise ForeignPayload, also for another name."""
    kind, fields = wire.decode(payload, MAX_PAYLOAD, _KINDS)
    if level(fields["name"]) != topic_level:
        raise wire.ForeignPayload("its name is not its topic's")
    return NameClaim(**fields) if kind == "claim" else Presence(**fields)
