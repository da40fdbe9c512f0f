"""Claims to a name: only one messaging client has it, in this home or, with an external broker, in any home.

In a home, the claim is a lock, RUN/couriers/TEAM/NAME.lock, which ends with its holder.  Between homes, it is
an exchange of messages on the name's presence topic (`contend`):

    newcomer ── claim ──→ broker ──→ holder, if it lives          connected elsewhere: it objects
        ╰─── NameInUse ←── broker ←── announcement ──╯
        ╰─── nobody objects in time: it announces itself, and has the name

Two newcomers hear each other's claims, and one of them gives way.  Two holders (after a cut link) hear each
other's announcements; the one with the greater session id claims the name again, and is refused.  A claim has
its own connection: one with the mailbox would end the connection of the agent's other home.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from relay.errors import NameInUse
from relay.home import Home, private_directory
from relay.storage.locks import is_held, open_lock, wait_lock
from relay.transport import presence, topics
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.presence import NameClaim, Presence
from relay.transport.topics import level
from relay.transport.wire import ForeignPayload

ECHO_SECONDS = 10.0
"""Seconds within which the broker must return a newcomer's claim; otherwise the connection is useless."""

QUIET_SECONDS = 0.3
"""Seconds for which a newcomer listens if the broker knows of no holder, in addition to the round trip of its
claim: enough for another newcomer's answer over a link like its own.  Over a slower link, the other hears the
announcement instead."""

OBJECTION_SECONDS = 10.0
"""Seconds for which a newcomer listens if the broker knows of a holder.  A live holder's answer takes two
trips: a second on a link with 200 ms of latency on which TCP must retransmit a packet.  The broker notices a
dead host only after one and a half times the keepalive (MQTT 3.1.1 section 3.1.2.10)."""

_LOCK_SECONDS = 0.2  # another process's `is_present` takes the lock for a moment


@contextlib.contextmanager
def claim_name(home: Home, team: str, name: str) -> Iterator[None]:
    """Hold `name` of `team` for a block. Raise NameInUse if another process (or task) of this home has it."""
    path = Path(home.courier(team, name, "lock"))
    private_directory(path.parent)
    descriptor = open_lock(path)
    try:
        if not wait_lock(descriptor, _LOCK_SECONDS):
            raise NameInUse(f"{name!r} is already on the bus, in team {team!r}. Choose another name.")
        yield
    finally:
        os.close(descriptor)


def is_present(home: Home, team: str, name: str) -> bool:
    """Return True if `name` publishes for itself, from this home."""
    return is_held(home.courier(team, name, "lock"))


async def contend(transport: MqttTransport, team: str, claim: NameClaim, announcement: bytes) -> None:
    """Win `claim.name` of `team` from any other session, and publish `announcement` (retained).

    transport: a connection for this purpose alone, which is closed afterwards.
    Raise NameInUse if another session has the name or a better claim, and ConnectionLost.
    """
    topic, payload = topics.presence(team, claim.name), presence.encode(claim)
    now = asyncio.get_running_loop().time
    await transport.subscribe(topic, 0)
    began, echoed, quiet = now(), None, 0.0
    holder: str | None = None  # the session that the broker believes to be online
    answered: set[str] = set()
    try:
        async with asyncio.timeout(ECHO_SECONDS) as listening:
            await transport.publish(topic, payload)
            async for inbound in transport.arriving():
                try:
                    heard = presence.decode(inbound.payload, level(claim.name))
                except ForeignPayload:
                    continue
                match heard:
                    case NameClaim(session=claim.session):
                        if echoed is None:
                            echoed = now()
                            quiet = QUIET_SECONDS + echoed - began
                    case NameClaim() as rival:
                        if claim.yields_to(rival):
                            raise _in_use(team, claim.name, rival.host)
                        if rival.session not in answered:  # the rival may have come too late to hear ours
                            answered.add(rival.session)
                            await transport.publish(topic, payload)
                    case Presence(online=True, session=session, host=host) if session != claim.session:
                        if not inbound.retained:
                            raise _in_use(team, claim.name, host)
                        holder = session
                    case Presence(online=False, session=session) if session == holder:
                        holder = None
                if echoed is not None:
                    listening.reschedule(echoed + (quiet if holder is None else OBJECTION_SECONDS))
    except TimeoutError:
        if echoed is None:
            raise ConnectionLost("the broker does not deliver messages; reconnecting.") from None
    await transport.publish(topic, announcement, retain=True)


def _in_use(team: str, name: str, host: str) -> NameInUse:
    where = f"on host {host!r}" if host else "on another host"
    return NameInUse(
        f"{name!r} is already on the bus, {where}, in team {team!r}. "
        "Choose another name with -n, or stop the session there."
    )
