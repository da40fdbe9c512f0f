"""The server of `relay web`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from relay.control.commands import Commands
from relay.errors import RelayError
from relay.home import Home
from relay.web.access import OPENED, PRINTED, Access
from relay.web.api import Api
from relay.web.connections import IDLE_SECONDS, Connections
from relay.web.events import Watch
from relay.web.gate import Gate
from relay.web.terminals import PageTerminals

PORT = 7349
"""The port unless --port names another."""

MAX_FRAME = 64 << 10
"""Bytes of one message that a page sends over a WebSocket."""

BACKLOG = 64
"""Connections that may wait to be accepted."""

HOST = "127.0.0.1"


def serve(
    home: Home, commands: Commands, port: int | None, show: Callable[[str], None], browser: str | None
) -> int:
    """Serve until a signal ends it; return the exit code.

    show: called with each new address to open. browser: the program to open one with, if any.
    """
    with listen(port) as listener:
        server = Server(home, commands, listener, show, browser)
        asyncio.run(server.serve([listener]))
    return server.code


def listen(port: int | None) -> socket.socket:
    """Return a socket that listens on the port (None: PORT, or any if that is in use)."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for each in (PORT, 0) if port is None else (port,):
        try:
            listener.bind((HOST, each))
            return listener
        except OSError as error:
            why = error.strerror
    listener.close()
    raise RelayError(f"cannot listen on port {port}: {why}. Choose another one with --port, or leave it out.")


class Server(uvicorn.Server):
    """The server of one run. code: the exit code, once it has ended."""

    def __init__(
        self,
        home: Home,
        commands: Commands,
        listener: socket.socket,
        show: Callable[[str], None],
        browser: str | None,
    ) -> None:
        self._browser = browser
        self.code = 0
        self._port: int = listener.getsockname()[1]
        self._show = show
        self._access = Access()
        self._watch = Watch(home)
        connections = Connections(home)
        self._terminals = PageTerminals(home)
        api = Api(home, self._access, commands, self._watch, self._terminals)
        app: ASGIApp = Gate(api.app(), home, self._port, self._access, connections)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # relay.web.gate logs defects
        super().__init__(
            uvicorn.Config(
                app,
                http=connections.http(),
                ws=connections.websocket(),
                ws_max_size=MAX_FRAME,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=1,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._pair()
        if self._browser is not None:
            self._open(self._browser)
        with contextlib.suppress(OSError):  # standard input is closed, or a file
            asyncio.get_running_loop().add_reader(0, self._on_key)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._terminals.close()
        self._watch.close()
        self._access.close_all()
        await super().shutdown(sockets)

    def _pair(self) -> None:
        self._show(self._address(PRINTED))

    def _open(self, browser: str) -> None:
        """Open the page in the user's browser, whose command line gets a token of its own."""
        opener = subprocess.Popen(
            [browser, self._address(OPENED)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=opener.wait, daemon=True).start()

    def _address(self, way: str) -> str:
        return f"http://{HOST}:{self._port}/#{self._access.new_token(way)}"

    def _on_key(self) -> None:
        """Show a new address when the user presses Enter."""
        try:
            data = os.read(0, 1 << 10)
        except OSError:  # it runs in the background
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(0)
        elif b"\n" in data:
            self._pair()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._on_signal, number)
        yield

    def _on_signal(self, number: int) -> None:
        self.code = 128 + number
        self.should_exit = True
