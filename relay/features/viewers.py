"""Serves what the agent's terminal shows to viewers and to `relay peek`.

Viewers are read-only.  Each has its own place in the output, and waits for no other.  One that is too slow
loses the output that it could not take, and gets the screen of that moment instead.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, Identity, SessionClosed
from relay.state.agent_terminal import AgentTerminal
from relay.terminal.events import AgentExited, OutputEnded, OutputRead, OutputSkipped, TerminalResized
from relay.terminal.libghostty import ScreenUnavailable
from relay.terminal.render import render
from relay.terminal.shim_link import ShimLink
from relay.terminal.view_stream import OUTPUT, SCREEN, pack

LIMIT = 1 << 18
"""Bytes of output buffered for one viewer; a single piece may be larger."""

DRAW_CHECK_EVERY = 0.02
"""Seconds between two checks of whether the screen can be drawn."""

UNFINISHED = 50
"""Checks after which the screen is drawn even in the middle of a long control string."""

LAST = 1.0
"""Seconds that viewers have to take the agent's last output."""


class Viewers:
    """The viewers of one agent's terminal, each a connection to the control socket."""

    def __init__(self, bus: EventBus, terminal: AgentTerminal, session: Identity, shim: ShimLink) -> None:
        self._bus = bus
        self._terminal = terminal
        self._session = session
        self._shim = shim
        self._viewers: dict[_Viewer, asyncio.Task[Any] | None] = {}
        self._code: int | None = None
        self._shown = False

    @operation("view")
    async def view(self, request: Request) -> Answer:
        """Send the stream of relay.terminal.view_stream until the agent has ended or the viewer has gone."""
        about = {"session": self._session.id, "shim": self._shim.pty.leader}
        viewer = _Viewer(request.channel, self._terminal, about)
        self._viewers[viewer] = asyncio.current_task()
        viewer.over = self._over
        self._bus.loop.add_reader(request.channel, viewer.leave)
        try:
            await viewer.serve()
        except OSError:
            pass  # the viewer has gone
        finally:
            self._bus.loop.remove_reader(request.channel)
            del self._viewers[viewer]
        return {"exit": self._code, "again": self._shim.kept}

    @operation("peek")
    async def peek(self, _: Request) -> Answer:
        """Return the current screen: its rows as plain text, and with SGR sequences only."""
        screen = self._terminal.screen
        if screen is None:
            raise ScreenUnavailable("there is no virtual screen here. `relay doctor` says why.")
        columns, rows = self._terminal.size
        return {
            "columns": columns,
            "rows": rows,
            "lines": self._terminal.screen_text(),
            "ansi": render(screen, columns, rows)[0],
        }

    @handles(OutputRead)
    def output(self, event: OutputRead) -> None:
        for viewer in self._viewers:
            viewer.output(event.data)
            self._terminal.hurry()

    @handles(OutputSkipped)
    def skipped(self, _: OutputSkipped) -> None:
        for viewer in self._viewers:
            viewer.skip()

    @handles(TerminalResized)
    def resized(self, _: TerminalResized) -> None:
        for viewer in self._viewers:
            viewer.draw()

    @handles(AgentExited)
    def exited(self, event: AgentExited) -> None:
        self._code = event.code
        self._end()

    @handles(OutputEnded)
    def ended(self, _: OutputEnded) -> None:
        self._shown = True
        self._end()

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        """Give the viewers a moment for the last output; those of a replaced session join the next one."""
        if self._over and (tasks := {*filter(None, self._viewers.values())}):
            await asyncio.wait(tasks, timeout=LAST)

    @answers(Describe)
    async def describe(self, _: Describe, __: object) -> dict[str, Any]:
        return {"viewers": len(self._viewers)}

    @property
    def _over(self) -> bool:
        return self._shown and self._code is not None

    def _end(self) -> None:
        if self._over:
            for viewer in self._viewers:
                viewer.end()


class _Viewer:
    """One viewer. over: only buffered data is left to send. about: fields that come with each screen."""

    def __init__(self, channel: socket.socket, terminal: AgentTerminal, about: dict[str, Any]) -> None:
        self.over = False
        self._channel = channel
        self._terminal = terminal
        self._about = about
        self._waiting = bytearray()
        self._first = self._behind = True  # the screen is sent next
        self._gone = False
        self._news = asyncio.Event()
        self._news.set()

    def output(self, data: bytes) -> None:
        self._put(pack(OUTPUT, data))

    def draw(self) -> None:
        """Send the current screen, behind the buffered data."""
        if not self._behind:
            self._put(self._screen())

    def skip(self) -> None:
        """Drop the buffered data, and send the screen instead once it can be drawn."""
        self._waiting.clear()
        self._behind = True
        self._news.set()

    def _put(self, part: bytes) -> None:
        if not self._behind:
            if self._waiting and len(self._waiting) + len(part) > LIMIT:
                self.skip()
            else:
                self._waiting += part
        self._news.set()

    def end(self) -> None:
        self.over = True
        self._news.set()

    def leave(self) -> None:
        """Stop: the viewer has closed the connection, or sent something."""
        self._gone = True
        asyncio.get_running_loop().remove_reader(self._channel)
        self._news.set()

    async def serve(self) -> None:
        """Send until all is sent, or the viewer leaves. Raise OSError if it has gone."""
        looks = 0
        while not self._gone:
            await self._news.wait()
            if self._behind and not self._drawable(looks):
                looks += 1
                await asyncio.sleep(DRAW_CHECK_EVERY)
                continue
            self._news.clear()
            looks = 0
            if self._behind:
                part = self._screen()
            elif self._waiting:
                part = bytes(self._waiting)
                self._waiting.clear()
            else:
                if self.over:
                    return
                continue
            self._news.set()
            await asyncio.get_running_loop().sock_sendall(self._channel, part)

    def _drawable(self, looks: int) -> bool:
        """Return True if the screen is at a place in the output from which a viewer can continue."""
        screen = self._terminal.screen
        return screen is None or screen.ground or looks >= UNFINISHED

    def _screen(self) -> bytes:
        columns, rows = self._terminal.size
        drawn = self._terminal.drawn(history=self._first)
        self._first = self._behind = False
        place = {"columns": columns, "rows": rows, "offset": self._terminal.output_offset()}
        return pack(SCREEN, drawn, **self._about, **place)
