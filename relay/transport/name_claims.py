"""Who may call itself by a name: one courier at a time, on this home and, with an external broker, on any.

On a home it is a lock, RUN/couriers/TEAM/NAME.lock, which ends with its holder.  Between homes there are only
words, said on the name's presence topic (`contend`):

    newcomer ── claim ──→ broker ──→ holder, if it lives          connected elsewhere: it objects
        ╰─── NameInUse ←── broker ←── announcement ──╯
        ╰─── nobody objects in time: it announces itself, and has the name

Two newcomers hear each other's claims, and one of them gives way.  Two holders (a cut link can make them)
hear each other's announcements; the one whose session id is greater claims the name anew, and is refused.  A
claim is made over a connection of its own: the mailbox's would end that of the agent's other home.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from relay import names
from relay.errors import InvalidName, NameInUse
from relay.home import Home, private_directory
from relay.storage.locks import is_held, open_lock, wait_lock
from relay.transport import presence, topics
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.topics import level

ECHO_SECONDS = 10.0
"""Until the broker has brought a newcomer its own claim; otherwise the connection is of no use."""

QUIET_SECONDS = 0.3
"""How long a newcomer listens where the broker knows of no holder, beside what its claim took to come back:
long enough for another newcomer's answer over a link like its own.  Should that be slower, it hears the
announcement instead."""

OBJECTION_SECONDS = 10.0
"""How long it listens where the broker believes in a holder.  One that lives needs two passages: a second on
a link with 200 ms of latency on which TCP must repeat a packet.  That the host of one is gone, the broker
notices only after one and a half times its keepalive (MQTT 3.1.1 section 3.1.2.10)."""

_LOCK_SECONDS = 0.2  # somebody may be looking (`is_present`), which takes the lock for a moment
_VERSION = 1


@dataclass(frozen=True, slots=True)
class NameClaim:
    """What a newcomer says of itself.

    session: the run of its courier, the same over all its connections. host: what its machine calls itself.
    held: it had the name on its last connection, and lost that.
    """

    name: str
    session: str
    host: str
    held: bool

    def yields_to(self, other: NameClaim) -> bool:
        """Whether of two that claim at once this one gives way: the one that had the name keeps it."""
        return (not other.held, other.session) < (not self.held, self.session)


@contextlib.contextmanager
def claim_name(home: Home, team: str, name: str) -> Iterator[None]:
    """Be `name` of `team` for a block; NameInUse if another process (or task) of this home is."""
    path = _path(home, team, name)
    private_directory(path.parent)
    descriptor = open_lock(path)
    try:
        if not wait_lock(descriptor, _LOCK_SECONDS):
            raise NameInUse(f"{name!a} is on the bus already, in team {team!a}. Choose another name.")
        yield
    finally:
        os.close(descriptor)


def is_present(home: Home, team: str, name: str) -> bool:
    """Whether `name` publishes for itself."""
    return is_held(_path(home, team, name))


async def contend(transport: MqttTransport, team: str, claim: NameClaim, announcement: bytes) -> None:
    """Win `claim.name` of `team` from whoever else may have it, and publish `announcement` (retained).

    transport: a connection that nobody else uses, and that is closed afterwards.
    Raises NameInUse if another session has the name or claims it with more right, and ConnectionLost.
    """
    topic, payload = topics.presence(team, claim.name), encode(claim)
    now = asyncio.get_running_loop().time
    await transport.subscribe(topic, 1)
    began, echoed, quiet = now(), None, 0.0
    holder: str | None = None  # the session that the broker believes to be there
    answered: set[str] = set()
    try:
        async with asyncio.timeout(ECHO_SECONDS) as listening:
            await transport.publish(topic, payload)
            async for inbound in transport.arriving():
                heard = presence.decode(inbound.payload, level(claim.name)) or decode(
                    inbound.payload, level(claim.name)
                )
                match heard:
                    case NameClaim(session=claim.session):
                        if echoed is None:
                            echoed = now()
                            quiet = QUIET_SECONDS + echoed - began
                    case NameClaim() as rival:
                        if claim.yields_to(rival):
                            raise _in_use(team, claim.name, rival.host)
                        if rival.session not in answered:  # it may have come too late to hear ours
                            answered.add(rival.session)
                            await transport.publish(topic, payload)
                    case presence.Presence(online=True, session=session) if session != claim.session:
                        if not inbound.retained:
                            raise _in_use(team, claim.name, heard.host)
                        holder = session
                    case presence.Presence(online=False, session=session) if session == holder:
                        holder = None
                if echoed is not None:
                    listening.reschedule(echoed + (quiet if holder is None else OBJECTION_SECONDS))
    except TimeoutError:
        if echoed is None:
            raise ConnectionLost("the broker does not bring what it was given; connecting again.") from None
    await transport.publish(topic, announcement, retain=True)


def encode(claim: NameClaim) -> bytes:
    value = {"v": _VERSION, "claim": True} | asdict(claim)
    return json.dumps(value, separators=(",", ":")).encode()


def decode(payload: bytes, topic_level: str) -> NameClaim | None:
    """The claim in `payload`, or None if it is foreign (another version, another name's topic)."""
    if len(payload) > presence.MAX_PAYLOAD:
        return None
    try:
        value = json.loads(payload)
        if value["v"] != _VERSION or value["claim"] is not True or level(value["name"]) != topic_level:
            return None
        return NameClaim(
            names.validate(value["name"]),
            presence.short(value["session"]),
            presence.short(value["host"]),
            value["held"] is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidName):
        return None


def _in_use(team: str, name: str, host: str) -> NameInUse:
    where = f"on host {host!a}" if host else "on another host"
    return NameInUse(
        f"{name!a} is on the bus already, {where}, in team {team!a}. "
        "Choose another name with -n, or end the session there."
    )


def _path(home: Home, team: str, name: str) -> Path:
    return home.run / "couriers" / level(team) / f"{level(name)}.lock"
