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
from collections.abc import Awaitable, Callable, Sequence

from relay.transport import presence, topics
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.name_claims import NameClaim, contend
from relay.transport.presence import Presence, Roster

CROWD_SECONDS = 3.0
"""Who appears within so many seconds of this agent's own appearance may have missed it."""

_GOODBYE_SECONDS = 1.0


class Announcer:
    """What one agent announces, in one run of its messaging client.

    session:  the id of the run.
    home:     the origin of its ledger. roster: who else is there: the more, the rarer it says the same again.
    channels: reads the channels that it is in now.
    """

    def __init__(
        self,
        team: str,
        name: str,
        home: str,
        roster: Roster,
        channels: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self.session = secrets.token_hex(8)
        self._team = team
        self._name = name
        self._home = home
        self._roster = roster
        self._read_channels = channels
        self._channels: Sequence[str] = ()  # as last announced
        self._held = False  # whether other homes have ever let this run have the name
        self._connections = 0
        self._boot = ""  # of the present connection
        self._again = asyncio.Event()
        self._crowd_until = 0.0  # seconds of the loop's clock

    async def connecting(self) -> None:
        """Begin another connection: its boot id is greater than those before it. Raise LedgerError."""
        self._connections += 1
        self._boot = f"{self._connections:06x}-{secrets.token_hex(8)}"
        self._channels = await self._read_channels()

    def connected(self) -> None:
        """The connection was made: others who come now may miss what is said on it at first."""
        self._crowd_until = asyncio.get_running_loop().time() + CROWD_SECONDS

    def announcement(self, *, online: bool) -> tuple[str, bytes]:
        """Return topic and payload; `online` False: a goodbye, or the will of the present connection."""
        payload = presence.encode(
            self._name,
            self._boot,
            time.time(),
            online=online,
            session=self.session,
            home=self._home,
            host=_host(),
            every=self._interval(),
            channels=self._channels,
        )
        return topics.presence(self._team, self._name), payload

    async def claim_name(self, transport: MqttTransport) -> None:
        """Win the name from other homes, on a connection for that alone. Raise NameInUse, ConnectionLost."""
        claim = NameClaim(self._name, self.session, _host(), self._held)
        await contend(transport, self._team, claim, self.announcement(online=True)[1])
        self._held = True

    def hear_own(self, heard: Presence, *, retained: bool) -> None:
        """Take what was announced under this agent's name. Raise ConnectionLost if another session has it."""
        if heard.boot == self._boot and heard.online:
            if not retained:  # what was kept is from before the subscription: not all presences are known yet
                self._roster.hear(heard, retained=False)
        elif self._held and heard.online and not retained and heard.session < self.session:
            raise ConnectionLost(f"another session calls itself {self._name}; claiming the name again.")
        else:
            self.again()  # the will of an earlier connection came late, or the other must give way

    async def run(self, transport: MqttTransport, announced: Callable[[], Awaitable[None]]) -> None:
        """Announce for ever; await `announced` after each time. Raise ConnectionLost and LedgerError."""
        while True:
            self._again.clear()
            self._channels = await self._read_channels()
            await transport.publish(*self.announcement(online=True), retain=True)
            await announced()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval()):
                    await self._again.wait()

    def _interval(self) -> float:
        return presence.interval(self._roster.now().count())

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

    async def goodbye(self, transport: MqttTransport) -> None:
        """Say so, if the broker still listens; bounded."""
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await transport.publish(*self.announcement(online=False), retain=True)


def _host() -> str:
    return socket.gethostname()[: presence.MAX_SHORT]
