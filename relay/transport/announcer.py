"""An agent's announcements to its team: online, leaving, claiming its name.

Each connection has its own boot id; its announcement is valid until a later connection of the same session
announces something else, or the broker publishes its will.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence

from relay.dataclass import dataclass, field
from relay.transport import presence, topics
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.name_claims import contend
from relay.transport.presence import NameClaim, Presence

_GOODBYE_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Announcer:
    """Announces one agent, in one run of its messaging client.

    home:    the origin of its ledger.
    session: the id of the run. boot: that of the current connection.
    owner:   the owner of its name; "": nobody in particular.
    read:    returns the agent's current channels, and the number of online agents: the more of them, the
             rarer the announcements.
    """

    team: str
    name: str
    home: str
    read: Callable[[], Awaitable[tuple[Sequence[str], int]]]
    owner: str = ""
    session: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _host: str = field(default_factory=lambda: socket.gethostname()[: presence.MAX_SHORT], init=False)
    _channels: Sequence[str] = ()  # as last announced
    _crowd: int = 0  # agents that were online at that time
    _over: bool = False  # the agent has ended
    _held: bool = False  # True once this run has won the name from other homes
    _connections: int = 0
    boot: str = field(default="", init=False)
    _again: asyncio.Event = field(default_factory=asyncio.Event)

    async def connecting(self) -> None:
        """Begin another connection, with a greater boot id than earlier ones. Raise LedgerError."""
        self._connections += 1
        self.boot = f"{self._connections:06x}-{secrets.token_hex(8)}"
        self._channels, self._crowd = await self.read()

    def announcement(self, *, online: bool) -> tuple[str, bytes]:
        """Return topic and payload. online: False for a goodbye, or the will of the current connection."""
        whose = (self.boot, self.session, self.home, self._host)
        rest = (presence.interval(self._crowd), tuple(self._channels), self.owner, self._over)
        said = Presence(self.name, online, time.time(), *whose, *rest)
        return topics.presence(self.team, self.name), presence.encode(said)

    async def claim_name(self, transport: MqttTransport) -> None:
        """Win the name from other homes, on a separate connection. Raise NameInUse, ConnectionLost."""
        claim = NameClaim(self.name, self.session, self._host, self._held)
        await contend(transport, self.team, claim, self.announcement(online=True)[1])
        self._held = True

    def hear_own(self, heard: Presence, *, retained: bool) -> None:
        """Handle an announcement under this agent's name. Raise ConnectionLost if another session has it."""
        if heard.boot == self.boot and heard.online:
            return
        if self._held and heard.online and not retained and heard.session < self.session:
            raise ConnectionLost(f"another session uses the name {self.name}; claiming it again.")
        self.again()  # an earlier connection's will came late, or the other session must give way

    async def run(self, transport: MqttTransport, announced: Callable[[], Awaitable[None]]) -> None:
        """Announce until cancelled; await `announced` after each time. Raise ConnectionLost, LedgerError."""
        while True:
            self._again.clear()
            self._channels, self._crowd = await self.read()
            await transport.publish(*self.announcement(online=True), retain=True)
            await announced()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(presence.interval(self._crowd)):
                    await self._again.wait()

    def again(self) -> None:
        """Announce again at once: something has changed, or a false announcement was heard."""
        self._again.set()

    async def end(self) -> None:
        """Make the goodbye say that the agent has ended, and list its channels. Raise LedgerError."""
        self._over = True
        self._channels, self._crowd = await self.read()

    async def goodbye(self, transport: MqttTransport) -> None:
        """Announce that the agent leaves, if the broker still answers; takes at most a second."""
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await transport.publish(*self.announcement(online=False), retain=True)
