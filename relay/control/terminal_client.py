"""A terminal client's connection, from the session's side (relay.terminal.client has the other)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from relay.control.server import lines, send

_GOODBYE = 1.0  # seconds that a client gets to take our last line


class TerminalClient:
    """One connected client. `owner`: it started the agent, so losing its terminal ends the agent."""

    def __init__(self, channel: socket.socket, *, owner: bool) -> None:
        self.owner = owner
        self._channel = channel
        self._dismissed = False
        channel.setblocking(False)

    async def run(self, on_request: Callable[[dict[str, Any]], None], on_gone: Callable[[], None]) -> None:
        """Pass on the requests until the client disconnects; then call `on_gone`, unless it was dismissed."""
        try:
            with suppress(OSError, ValueError):
                async for fields, fds in lines(self._channel):
                    for fd in fds:  # nobody asked for them
                        os.close(fd)
                    on_request(fields)
        finally:
            self._channel.close()
        if not self._dismissed:
            on_gone()

    async def tell(self, event: str, **fields: Any) -> None:
        """Send one event; do not wait for a client that is gone or reads nothing."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await send(self._channel, {"event": event, **fields})

    async def dismiss(self, event: str, **fields: Any) -> None:
        """Send a last event and hang up; `run` ends."""
        self._dismissed = True
        await self.tell(event, **fields)
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
