"""Agents' terminals in pages, over WebSockets: to view, or to control as `relay attach` does.

    view:     session ─ view_stream ─→ server ─→ page
    control:  shim ←─ a terminal of the server's, with `relay attach` in it ─→ server ←─→ page

A page acknowledges what it has drawn. The server reads no more while LIMIT is not acknowledged, so nothing
piles up here: a session repaints a slow view, and a shim waits for no terminal.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from relay.control.sessions import SessionInfo, find_claim
from relay.errors import NotAllowed, RelayError
from relay.home import Home
from relay.names import key
from relay.peer import connect
from relay.shim.pty import set_size
from relay.storage.locks import is_held
from relay.terminal.view_stream import OUTPUT, SCREEN, Unpacker
from relay.web.access import BrowserSession
from relay.web.commands import Commands
from relay.web.gate import PEER, SESSION
from relay.web.peers import Whose

LIMIT = 256 << 10
"""Bytes that a page may have got without having drawn them."""

PIECE = 32 << 10
"""Bytes of one message to a page."""

MOST = 32
"""Terminals that are open in pages at a time."""

GOES, ENDED, REFUSED, DETACHED, LOGGED_OUT = 1001, 4001, 4003, 4004, 4008
"""Close codes (RFC 6455, 7.4)."""

_MAX_REASON = 123  # bytes of a close frame's reason
_LAST = 1.0  # seconds that a page has to take a close frame
_RETRY = 0.2  # seconds until the next try to reach a session
_PATIENCE = 5.0  # seconds for a session to tell its terminal's size


class _Over(Exception):
    """The terminal is closed with `code`."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code


class Terminals:
    """All terminals that pages show."""

    def __init__(self, home: Home, commands: Commands) -> None:
        self._home = home
        self._commands = commands
        self._open: set[asyncio.Task[None]] = set()
        self._closing = False

    async def serve(self, socket: WebSocket) -> None:
        """Serve the page at the other end until it leaves, or the agent ends."""
        task = asyncio.current_task()
        assert task is not None
        session: BrowserSession = socket.scope["state"][SESSION]
        await socket.accept()
        code, reason = REFUSED, "too many terminals are open."
        if len(self._open) < MOST:
            self._open.add(task)
            revoke = session.on_close(task.cancel)
            try:
                await self._serve(socket, session)
                return
            except WebSocketDisconnect:
                return
            except _Over as over:
                code, reason = over.code, str(over)
            except RelayError as error:
                code, reason = REFUSED, str(error)
            except asyncio.CancelledError:
                task.uncancel()
                code, reason = (
                    (GOES, "relay web has ended.") if self._closing else (LOGGED_OUT, "logged out.")
                )
            finally:
                revoke()
                self._open.discard(task)
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(_LAST):
                await socket.close(code, reason.encode()[:_MAX_REASON].decode(errors="ignore"))

    async def close(self) -> None:
        """Close all, as the server ends."""
        self._closing = True
        tasks = [*self._open]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2 * _LAST)

    async def _serve(self, socket: WebSocket, session: BrowserSession) -> None:
        name, team = socket.path_params["name"], socket.query_params.get("team") or None
        agent = await asyncio.to_thread(find_claim, self._home, name, team)
        page = _Page(socket)
        match socket.query_params.get("mode"):
            case "view":
                await _first(page.listen(), _view(page, agent))
            case "control":
                if socket.scope["state"][PEER].whose is not Whose.USER:
                    raise NotAllowed(
                        "relay cannot tell whose process this connection is from: it may only look."
                    )
                takeover = session.take_click((key(agent.team), key(agent.name)))
                await self._control(page, agent, takeover=takeover)
            case _:
                raise NotAllowed("the mode is view or control.")

    async def _control(self, page: _Page, agent: SessionInfo, *, takeover: bool) -> None:
        async with asyncio.timeout(_PATIENCE):
            columns, rows = await _size(agent)
        master, slave = os.openpty()
        try:
            set_size(slave, columns, rows)
            os.set_blocking(master, False)
            options = ["--takeover"] if takeover else []
            argv = ("attach", f"--team={agent.team}", *options, "--", agent.name)
            command = asyncio.ensure_future(self._commands.run(*argv, terminal=slave))
            await asyncio.sleep(0)  # it passes the descriptor on
        finally:
            os.close(slave)
        try:
            await page.reset(columns, rows)
            await _first(page.listen(master), _copy(master, page))
        finally:
            os.close(master)  # it hangs up: `relay attach` detaches
            command.add_done_callback(lambda done: done.cancelled() or done.exception())
        await command  # says why, if it was refused
        _say_end(agent)


class _Page:
    """The page's terminal."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._ahead = 0  # bytes that it has not drawn
        self._room = asyncio.Event()
        self._room.set()

    async def reset(self, columns: int, rows: int) -> None:
        await self._socket.send_text(json.dumps({"screen": {"columns": columns, "rows": rows}}))

    async def show(self, data: bytes) -> None:
        """Send `data` as fast as the page draws it."""
        for start in range(0, len(data), PIECE):
            await self.room()
            piece = data[start : start + PIECE]
            self._ahead += len(piece)
            if self._ahead >= LIMIT:
                self._room.clear()
            await self._socket.send_bytes(piece)

    async def room(self) -> None:
        """Wait until the page is not behind."""
        await self._room.wait()

    async def listen(self, keyboard: int | None = None) -> None:
        """Take acknowledgements; write keys to the terminal `keyboard`. Raise WebSocketDisconnect."""
        drawn = 0
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect
            if (keys := message.get("bytes")) is not None:
                if keyboard is not None:
                    await _write(keyboard, keys)
                continue
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                now = int(json.loads(message["text"])["ack"])
                self._ahead -= min(max(now - drawn, 0), self._ahead)
                drawn = max(drawn, now)
                if self._ahead < LIMIT:
                    self._room.set()


async def _first(*works: Any) -> None:
    """Run all at once until one has ended; cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _view(page: _Page, agent: SessionInfo) -> None:
    """Show the agent's terminal, and that of the next agent of its name. Raise _Over at the end."""
    while True:
        async for fields, data in _parts(agent, page):
            if "exit" in fields and not fields.get("again"):
                raise _Over(ENDED, f"{agent.name} has ended.")
            if fields.get("show") == SCREEN:
                await page.reset(fields["columns"], fields["rows"])
            if fields.get("show") in {SCREEN, OUTPUT}:
                await page.show(data)
        _say_end(agent, running=False)
        await asyncio.sleep(_RETRY)


def _say_end(agent: SessionInfo, *, running: bool = True) -> None:
    """Raise _Over if the agent has ended, or if it runs and `running` is True."""
    if not is_held(agent.socket.with_suffix(".lock")):
        raise _Over(ENDED, f"{agent.name} has ended.")
    if running:
        raise _Over(DETACHED, f"detached from {agent.name}.")


async def _parts(
    agent: SessionInfo, page: _Page | None = None
) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
    """Yield the parts of a view's stream until the session ends it, reading as fast as the page draws."""
    loop, unpacker = asyncio.get_running_loop(), Unpacker()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.setblocking(False)
        with suppress(OSError):
            connect(channel, agent.socket)
            await loop.sock_sendall(channel, b'{"op": "view"}\n')
            while data := await loop.sock_recv(channel, 1 << 16):
                for part in unpacker.feed(data):
                    yield part
                if page is not None:
                    await page.room()


async def _size(agent: SessionInfo) -> tuple[int, int]:
    """Return the columns and rows of the agent's terminal."""
    while True:
        async for fields, _ in _parts(agent):
            if fields.get("show") == SCREEN:
                return fields["columns"], fields["rows"]
        _say_end(agent, running=False)
        await asyncio.sleep(_RETRY)


async def _copy(master: int, page: _Page) -> None:
    """Show what is written in a terminal, until nothing has it open."""
    while True:
        await page.room()
        await _ready(master, write=False)
        try:
            data = os.read(master, 1 << 16)
        except BlockingIOError:
            continue
        except OSError:  # EIO
            return
        await page.show(data)


async def _write(master: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(master, data) :]
        except BlockingIOError:
            await _ready(master, write=True)
        except OSError:
            return  # `_copy` ends


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _ready(fd: int, *, write: bool) -> None:
    """Wait until `fd` can be read or written."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(fd, _settle, ready)
    try:
        await ready
    finally:
        remove(fd)
