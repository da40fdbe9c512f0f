"""What an agent says of itself to its team: that it is there, that it leaves, that it claims its name.

Each connection has a boot id of its own; what was said on it holds until a later one of the same session says
otherwise, or the broker publishes its will.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import socket
import time
from collections.abc import Callable, Sequence

from relay.transport import presence, topics
from relay.transport.mqtt import ConnectionLost, Transport
from relay.transport.name_claims import Claim
from relay.transport.presence import Presence, Roster

CROWD_SECONDS = 3.0
"""Who appears within so many seconds of this agent's own appearance may have missed it."""

_GOODBYE_SECONDS = 1.0


class Announcer:
    """For one run of a courier.

    home: the origin of its ledger. roster: who else is there: the more, the rarer it says the same again.
    channels: those that it hears now.
    """

    def __init__(
        self, team: str, name: str, home: str, roster: Roster, channels: Callable[[], Sequence[str]]
    ) -> None:
        self.session = secrets.token_hex(8)
        self.held = False
        """Whether other homes have ever let this run have the name."""
        self._topic = topics.presence(team, name)
        self._name = name
        self._home = home
        self._roster = roster
        self._channels = channels
        self._connections = 0
        self._boot = ""  # of the present connection
        self._again = asyncio.Event()
        self._crowd_until = 0.0  # seconds of the loop's clock

    def connecting(self) -> None:
        """Another connection is about to be made: its boot id is greater than those before it."""
        self._connections += 1
        self._boot = f"{self._connections:06x}-{secrets.token_hex(8)}"

    def connected(self) -> None:
        self._crowd_until = asyncio.get_running_loop().time() + CROWD_SECONDS

    def announcement(self, *, online: bool) -> tuple[str, bytes]:
        """Topic and payload; `online` False: a goodbye, or the will of the present connection."""
        payload = presence.encode(
            self._name,
            self._boot,
            time.time(),
            online=online,
            session=self.session,
            home=self._home,
            host=_host(),
            every=presence.interval(self._roster.count()),
            channels=self._channels(),
        )
        return self._topic, payload

    def claim(self) -> Claim:
        return Claim(self._name, self.session, _host(), self.held)

    def is_present(self, heard: Presence) -> bool:
        """Whether `heard` is what this agent itself said on its present connection."""
        return heard.boot == self._boot and heard.online

    async def run(self, transport: Transport, announced: Callable[[], None]) -> None:
        """Announce for ever; `announced` is called after each time. Raises ConnectionLost."""
        while True:
            self._again.clear()
            await transport.publish(*self.announcement(online=True), retain=True)
            announced()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(presence.interval(self._roster.count())):
                    await self._again.wait()

    def again(self) -> None:
        """Say so once more, at once: something has changed, or was heard that is not so."""
        self._again.set()

    def note_crowd(self) -> None:
        """Somebody appeared. If we did so just now, too, say once more that we are here.

        A broker tells who subscribes what it has kept and then what comes; between the two something may slip
        through, and nobody would know of it before the next announcement.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._crowd_until:
            self._crowd_until = 0.0
            loop.call_later(CROWD_SECONDS * random.uniform(1.0, 2.0), self._again.set)

    async def goodbye(self, transport: Transport) -> None:
        """Say so, if the broker still listens; bounded."""
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await transport.publish(*self.announcement(online=False), retain=True)


def _host() -> str:
    return socket.gethostname()[: presence.MAX_SHORT]
