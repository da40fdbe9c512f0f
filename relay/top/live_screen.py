"""The screen of the chosen agent, as it draws it.

    session ─ view_stream ─→ Picture ─ rows with SGR sequences ─→ Strip

None of the agent's bytes reach the user's terminal (relay.terminal.render).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from textual.events import Resize
from textual.worker import Worker

from relay.control.commands import CommandEnd
from relay.control.sessions import SessionInfo
from relay.control.viewing import view
from relay.errors import RelayError
from relay.terminal import libghostty
from relay.terminal.view_stream import Unpacker
from relay.terminal.viewer import PIECE, AgentEnded, Picture
from relay.text import one_line
from relay.top.choice_list import Lines

SETTLES = 0.1
"""Seconds before an agent that was chosen is shown: the user may only pass by."""

FRAME = 0.1
"""Least seconds between two pictures. What the agent draws meanwhile waits at its session."""

PEEK_EVERY = 1.0
"""Seconds between two pictures of an agent on another host."""

RETRY = 0.5
"""Seconds between two attempts to reach a session."""


class LiveScreen(Lines):
    """Shows the last rows of an agent's screen that fit, or other rows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picture: Picture | None = None
        self._following: Worker[None] | None = None

    def say(self, lines: Sequence[str]) -> None:
        """Show `lines`, and follow no agent any longer."""
        self._leave()
        self.show(lines)

    def follow(self, session: SessionInfo) -> None:
        self._leave()
        self._following = self.run_worker(self._follow(session))

    def poll(self, command: Callable[[], Awaitable[CommandEnd]]) -> None:
        """Show what `command` prints, `relay peek --ansi` on another host, again and again."""
        self._leave()
        self._following = self.run_worker(self._poll(command))

    async def _poll(self, command: Callable[[], Awaitable[CommandEnd]]) -> None:
        await asyncio.sleep(SETTLES)
        while True:
            found = await command()
            self.show(found.out.split("\n") if found.code == 0 else [found.sentence])
            await asyncio.sleep(PEEK_EVERY)

    def on_resize(self, _: Resize) -> None:
        self._paint()

    def _leave(self) -> None:
        self._picture = None
        if self._following is not None:
            self._following.cancel()

    async def _follow(self, session: SessionInfo) -> None:
        try:
            await asyncio.sleep(SETTLES)
            libghostty.load()
            self._picture = picture = Picture(scrollback=False)
            while True:
                if (channel := view(session)) is not None:
                    with channel:
                        await self._read(channel, picture)
                await asyncio.sleep(RETRY)
        except AgentEnded:
            pass  # its last picture stays until the list shows that
        except RelayError as error:
            self.show([one_line(str(error), None)])

    async def _read(self, channel: socket.socket, picture: Picture) -> None:
        """Show the stream until it ends. Raise AgentEnded, or RelayError if the session refuses."""
        stream = Unpacker()
        with suppress(OSError):  # the session has ended; another may follow
            while data := await asyncio.get_running_loop().sock_recv(channel, PIECE):
                for fields, drawing in stream.feed(data):
                    if "error" in fields:
                        raise RelayError(str(fields["error"]))
                    picture.take(fields, drawing)
                self._paint()
                await asyncio.sleep(FRAME)

    def _paint(self) -> None:
        if self._picture is not None:
            self.show(self._picture.rows(self.size.width, self.size.height)[0])
