"""Agents' terminals in pages, over WebSockets: to view, and to control as `relay attach` does.

    session ─ view_stream ─→ server ─→ page
    shim ←─ the server's own terminal, attached ←─ page: keys

A page acknowledges what it has drawn. The server reads no more of the view while LIMIT is not acknowledged;
the session then drops output, and repaints. An agent waits for an attached terminal to take its output: the
server drops it there, so that no agent waits for a page.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import termios
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from relay.control.attaching import attach
from relay.control.sessions import SessionInfo, find_claim
from relay.control.viewing import view
from relay.errors import NotAllowed, RelayError
from relay.home import Home
from relay.names import key
from relay.shim.pty import raw, set_size
from relay.terminal.view_stream import OUTPUT, SCREEN, Unpacker
from relay.terminal.viewer import AgentEnded
from relay.web.access import BrowserSession
from relay.web.gate import PEER, SESSION
from relay.web.peers import Whose

LIMIT = 256 << 10
"""Bytes that a page may have got without having drawn them."""

PIECE = 32 << 10
"""Bytes of one message to a page."""

MOST = 32
"""PageTerminals that are open in pages at a time."""

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


class PageTerminals:
    """All terminals that pages show."""

    def __init__(self, home: Home) -> None:
        self._home = home
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
            try:
                with session.closes(task.cancel):
                    await self._serve(socket, session)
            except WebSocketDisconnect:
                return
            except _Over as over:
                code, reason = over.code, str(over)
            except RelayError as error:
                reason = str(error)
            except asyncio.CancelledError:
                task.uncancel()
                code, reason = (
                    (GOES, "relay web has ended.") if self._closing else (LOGGED_OUT, "logged out.")
                )
            finally:
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
        mode = socket.query_params.get("mode")
        if mode not in {"view", "control"}:
            raise NotAllowed("the mode is view or control.")
        if mode == "control" and socket.scope["state"][PEER].whose is not Whose.USER:
            raise NotAllowed("relay cannot tell whose process this connection is from: it may only look.")
        agent = await asyncio.to_thread(find_claim, self._home, name, team)
        page = _Page(socket)
        if mode == "view":
            await _first(page.listen(), _view(page, agent))
        else:
            takeover = session.take_click((key(agent.team), key(agent.name)))
            await self._control(page, agent, takeover=takeover)

    async def _control(self, page: _Page, agent: SessionInfo, *, takeover: bool) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                size = await _size(agent)
        except TimeoutError:
            raise RelayError(f"{agent.name} does not answer. Its session may be busy.") from None
        keyboard = _Keyboard(agent, size)
        try:
            attaching = asyncio.ensure_future(asyncio.to_thread(keyboard.attach, takeover=takeover))
            try:
                await asyncio.shield(attaching)
            finally:
                await asyncio.wait([attaching])  # the thread uses the descriptors
            await _first(page.listen(keyboard), _view(page, agent), keyboard.run(), keyboard.drain())
        finally:
            await keyboard.leave()


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

    async def listen(self, keyboard: _Keyboard | None = None) -> None:
        """Take acknowledgements, and keys for the `keyboard`. Raise WebSocketDisconnect."""
        drawn = 0
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect
            if (keys := message.get("bytes")) is not None:
                if keyboard is not None:
                    await keyboard.type(keys)
                continue
            with suppress(ValueError, RecursionError):
                match json.loads(message["text"]):
                    case {"ack": int(now)} if now > drawn:
                        self._ahead -= min(now - drawn, self._ahead)
                        drawn = now
            if self._ahead < LIMIT:
                self._room.set()


class _Keyboard:
    """A terminal that is attached to the agent, for its keys. size: that of the agent's terminal already."""

    def __init__(self, agent: SessionInfo, size: tuple[int, int]) -> None:
        self._agent = agent
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._terminal, self._shims = os.openpty()
        set_size(self._shims, *size)
        os.set_blocking(self._terminal, False)

    def attach(self, *, takeover: bool) -> None:
        """Attach it. Raise RelayError if the shim refuses. Blocks."""
        before = termios.tcgetattr(self._shims)
        termios.tcsetattr(self._shims, termios.TCSANOW, raw(before))
        attach(self._agent, self._channel, (self._shims, self._shims), before, takeover=takeover)

    async def run(self) -> None:
        """Serve the shim. Raise _Over once it is detached, or the agent has ended."""
        self._channel.setblocking(False)
        loop, unread = asyncio.get_running_loop(), b""
        while data := await loop.sock_recv(self._channel, 1 << 12):
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                match json.loads(line):
                    case {"event": "stopped"}:  # by Ctrl-Z
                        await loop.sock_sendall(self._channel, b'{"op": "resume", "foreground": true}\n')
                    case {"event": "detached", "taken": True}:
                        raise _Over(DETACHED, "another terminal has taken over.")
                    case {"event": "detached"}:
                        raise _Over(DETACHED, f"detached from {self._agent.name}.")
                    case {"event": "exit"}:
                        raise _ended(self._agent)
        raise _ended(self._agent)

    async def leave(self) -> None:
        """Detach, as the user's keys do, and close it: a terminal that is just closed counts as lost."""
        loop = asyncio.get_running_loop()
        self._channel.setblocking(False)
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_LAST):
                    await loop.sock_sendall(self._channel, b'{"op": "detach"}\n')
                    while await loop.sock_recv(self._channel, 1 << 12):
                        pass  # until the shim has let it go
        finally:
            self._channel.close()
            os.close(self._terminal)
            os.close(self._shims)

    async def type(self, keys: bytes) -> None:
        while keys:
            try:
                keys = keys[os.write(self._terminal, keys) :]
            except BlockingIOError:
                await _ready(self._terminal, write=True)

    async def drain(self) -> None:
        """Drop what the shim writes."""
        while True:
            await _ready(self._terminal, write=False)
            with suppress(BlockingIOError):
                os.read(self._terminal, 1 << 16)


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
        async with aclosing(_parts(agent, page)) as parts:
            async for fields, data in parts:
                if "exit" in fields and not fields.get("again"):
                    raise _ended(agent)
                if fields.get("show") == SCREEN:
                    await page.reset(fields["columns"], fields["rows"])
                if fields.get("show") in {SCREEN, OUTPUT}:
                    await page.show(data)
        await asyncio.sleep(_RETRY)


def _ended(agent: SessionInfo) -> _Over:
    return _Over(ENDED, f"{agent.name} has ended.")


async def _parts(
    agent: SessionInfo, page: _Page | None = None
) -> AsyncGenerator[tuple[dict[str, Any], bytes]]:
    """Yield the parts of a view's stream until the session ends it, reading as fast as the page draws.

    Raise _Over if the agent has ended.
    """
    loop, unpacker = asyncio.get_running_loop(), Unpacker()
    try:
        channel = view(agent)
    except AgentEnded:
        raise _ended(agent) from None
    if channel is None:
        return
    with channel, suppress(OSError):
        while data := await loop.sock_recv(channel, 1 << 16):
            for part in unpacker.feed(data):
                yield part
            if page is not None:
                await page.room()


async def _size(agent: SessionInfo) -> tuple[int, int]:
    """Return the columns and rows of the agent's terminal."""
    while True:
        async with aclosing(_parts(agent)) as parts:
            async for fields, _ in parts:
                if fields.get("show") == SCREEN:
                    return fields["columns"], fields["rows"]
        await asyncio.sleep(_RETRY)


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
