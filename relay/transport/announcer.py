"""The announcements of an agent to its team: it is online, it leaves, it claims its name.

Each connection has a boot id of its own; its announcement holds until a later connection of the same session
announces something else, or the broker publishes its will.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from relay.transport import presence, topics
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.name_claims import NameClaim, contend
from relay.transport.presence import Presence, PresenceRoster

CROWD_SECONDS = 3.0
"""An agent that appears within so many seconds of this one's own appearance may have missed that."""

_GOODBYE_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Announcer:
    """Announces one agent, in one run of its messaging client.

    home:    the origin of its ledger.
    roster:  the other agents: the more of them, the rarer the announcements.
    session: the id of the run.
    read_channels: returns the channels that the agent is in now.
    """

    team: str
    name: str
    home: str
    roster: PresenceRoster
    read_channels: Callable[[], Awaitable[Sequence[str]]]
    session: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _host: str = field(default_factory=lambda: socket.gethostname()[: presence.MAX_SHORT], init=False)
    _channels: Sequence[str] = ()  # as last announced
    _held: bool = False  # True once other homes have let this run have the name
    _connections: int = 0
    _boot: str = ""  # of the present connection
    _again: asyncio.Event = field(default_factory=asyncio.Event)
    _crowd_until: float = 0.0  # seconds of the loop's clock

    async def connecting(self) -> None:
        """Begin another connection: its boot id is greater than those before it. Raise LedgerError."""
        self._connections += 1
        self._boot = f"{self._connections:06x}-{secrets.token_hex(8)}"
        self._channels = await self.read_channels()

    def connected(self) -> None:
        """Note that the connection was made: agents that appear now may miss its first announcement."""
        self._crowd_until = asyncio.get_running_loop().time() + CROWD_SECONDS

    def announcement(self, *, online: bool) -> tuple[str, bytes]:
        """Return topic and payload. online: False for a goodbye, or the will of the present connection."""
        whose = (self._boot, self.session, self.home, self._host)
        said = Presence(self.name, online, time.time(), *whose, self._interval(), tuple(self._channels))
        return topics.presence(self.team, self.name), presence.encode(said)

    async def claim_name(self, transport: MqttTransport) -> None:
        """Win the name from other homes, on a connection for that only. Raise NameInUse, ConnectionLost."""
        claim = NameClaim(self.name, self.session, self._host, self._held)
        await contend(transport, self.team, claim, self.announcement(online=True)[1])
        self._held = True

    def hear_own(self, heard: Presence, *, retained: bool) -> None:
        """Take an announcement under this agent's name. Raise ConnectionLost if another session has it."""
        if heard.boot == self._boot and heard.online:
            if not retained:  # what was kept is from before the subscription: not all presences are known yet
                self.roster.hear(heard, retained=False)
        elif self._held and heard.online and not retained and heard.session < self.session:
            raise ConnectionLost(f"another session calls itself {self.name}; claiming the name again.")
        else:
            self.again()  # an earlier connection's will came late, or the other must give way

    async def run(self, transport: MqttTransport, announced: Callable[[], Awaitable[None]]) -> None:
        """Announce until cancelled; await `announced` after each time. Raise ConnectionLost, LedgerError."""
        while True:
            self._again.clear()
            self._channels = await self.read_channels()
            await transport.publish(*self.announcement(online=True), retain=True)
            await announced()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval()):
                    await self._again.wait()

    def _interval(self) -> float:
        return presence.interval(self.roster.now().count())

    def again(self) -> None:
        """Announce once more, at once: something has changed, or something untrue was heard."""
        self._again.set()

    def note_crowd(self) -> None:
        """Note that another agent appeared; if this one did so just now, too, announce it once more.

        To a new subscriber a broker sends what it has kept and then what comes; an announcement may slip
        through between the two, and nobody would know of it before the next.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._crowd_until:
            self._crowd_until = 0.0
            loop.call_later(CROWD_SECONDS * random.uniform(1.0, 2.0), self._again.set)

    async def goodbye(self, transport: MqttTransport) -> None:
        """Announce that the agent leaves, if the broker still listens; takes a second at most."""
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await transport.publish(*self.announcement(online=False), retain=True)
