"""The server's connections: how many, for how long, and whose."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from relay.home import Home
from relay.web.peers import UNKNOWN, TcpPeer, peer_of

MOST = 128
"""Connections at a time. For one more, the oldest that shows no session gives way."""

SHARE = 48
"""Connections of one process: a browser has six, one for each terminal, and one for events in each page."""

HEAD_SECONDS = 10.0
"""Seconds that a connection has to send the head of its first request."""

IDLE_SECONDS = 60
"""Seconds between two requests."""

STATE = "connection"
"""The key of the TcpConnection in an ASGI scope's state."""


class TcpConnection:
    """One connection. trusted: a request over it has shown an open session."""

    def __init__(self, home: Home, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.trusted = False
        self._home = home
        self._looking: asyncio.Task[TcpPeer] | None = None

    async def peer(self) -> TcpPeer:
        """Return whose process is at the other end, looked up once."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    @property
    def looked_up(self) -> bool:
        """True once `peer` has been called."""
        return self._looking is not None

    @property
    def known_peer(self) -> TcpPeer:
        done = self._looking is not None and self._looking.done() and not self._looking.cancelled()
        return self._looking.result() if done and self._looking is not None else UNKNOWN

    async def _look(self) -> TcpPeer:
        ends = self.transport.get_extra_info("peername"), self.transport.get_extra_info("sockname")
        if None in ends:
            return UNKNOWN
        return await asyncio.to_thread(peer_of, self._home, *ends)


class Connections:
    """All connections of a server."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: dict[asyncio.BaseTransport, TcpConnection] = {}

    def add(self, transport: asyncio.Transport) -> TcpConnection:
        if len(self._open) >= MOST:
            spare = [each for each in self._open.values() if not each.trusted]
            (spare[0].transport if spare else transport).abort()
        found = self._open[transport] = TcpConnection(self._home, transport)
        return found

    def remove(self, transport: asyncio.BaseTransport) -> None:
        self._open.pop(transport, None)

    def exceeds(self, peer: TcpPeer) -> bool:
        """Return True if the process has more than its share."""
        own = [each for each in self._open.values() if each.known_peer == peer]
        return len(own) > SHARE

    def http(self) -> type[H11Protocol]:
        connections = self

        class BoundedProtocol(H11Protocol):
            """Bounds how long a request's head may take."""

            _late: asyncio.TimerHandle | None = None

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                self.app_state = {**self.app_state, STATE: connections.add(transport)}
                self._watch()

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self._watch()

            def handle_websocket_upgrade(self, event: h11.Request) -> None:
                super().handle_websocket_upgrade(event)
                self._unwatch()

            def connection_lost(self, exc: Exception | None) -> None:
                connections.remove(self.transport)
                self._unwatch()
                super().connection_lost(exc)

            def _watch(self) -> None:
                if self.cycle is not None and not self.cycle.response_complete:
                    self._unwatch()
                elif self._late is None and self.transport.get_protocol() is self:
                    self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

            def _unwatch(self) -> None:
                if self._late is not None:
                    self._late.cancel()
                    self._late = None

        return BoundedProtocol

    def websocket(self) -> type[WebSocketsSansIOProtocol]:
        connections = self

        class BoundedWebSocket(WebSocketsSansIOProtocol):
            def connection_lost(self, exc: Exception | None) -> None:
                connections.remove(self.transport)
                super().connection_lost(exc)

        return BoundedWebSocket
