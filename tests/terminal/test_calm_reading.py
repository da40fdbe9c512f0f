"""When the session reads the agent's output: at once, or, from a program that keeps drawing, when needed."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pty
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.directives.checkpoint import Checkpoints
from relay.directives.grammar import Grammar
from relay.directives.screen_words import ScreenWords
from relay.eventbus import EventBus, handles
from relay.lifecycle import SessionBegan
from relay.place import TERMINAL
from relay.readers.auto import AutoReader
from relay.session import output_reader
from relay.session.output_reader import OutputReader
from relay.shim import ring
from relay.shim.ring import RingWriter
from relay.state.agent_terminal import AgentTerminal
from relay.storage.progress import Progress
from relay.terminal.events import OutputRead
from relay.terminal.shim_link import ShimLink
from support import eventually

FRAME = "\x1b[2;5Hframe %d\x1b[K\x1b[9;1H"


class Session:
    """The reading half of a session beside a ring. wakes: how often the writer of the ring has woken it."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        memory, (master, self._slave) = ring.make(), pty.openpty()
        self.wakes = 0
        read, self._wake = os.pipe()
        os.set_blocking(read, False)
        self.ring = RingWriter(memory, self._up)
        fds = {"ring": memory, "wake": read, "listener": -1, "master": master}
        hello = {"generation": 1, "resumed": False, "skip": 0, "shim": os.getpid(), "agent": os.getpid()}
        ours.sendall(json.dumps(hello | {"line_feeds_return": True, "fds": fds}).encode() + b"\n")
        self._ours = ours
        self.link = ShimLink(theirs.detach())
        self.bus = EventBus()
        self.reader = AutoReader(80, 24)
        self.terminal = AgentTerminal(self.link, self.reader)
        self.pieces: list[bytes] = []
        self.bus.add(
            OutputReader(
                self.bus,
                self.link,
                self.terminal,
                self.reader,
                Grammar(lambda namespace: namespace == "relay"),
                words=ScreenWords("@"),
                source=TERMINAL,
                checkpoints=Checkpoints(folder / "checkpoint", Progress(folder / "progress", resumed=False)),
            )
        )
        self.bus.add(self)
        self.bus.publish(SessionBegan())

    def _up(self) -> None:
        self.wakes += 1
        os.write(self._wake, b"x")

    @handles(OutputRead)
    def output(self, event: OutputRead) -> None:
        self.pieces.append(event.data)

    def draw(self, number: int, text: str = "") -> None:
        self.ring.output((FRAME % number + text).encode())

    async def drawn(self, number: int) -> None:
        """Wait until this frame has been read, without looking at the terminal."""
        await eventually(lambda: self.pieces and b"frame %d\x1b" % number in self.pieces[-1])

    def close(self) -> None:
        self.bus.loop.remove_reader(self.link.wake)
        self.link.close()
        self._ours.close()
        os.close(self._wake)
        os.close(self._slave)


@contextmanager
def drawing(folder: Path) -> Iterator[Session]:
    session = Session(folder)
    try:
        yield session
    finally:
        session.close()


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, frames follow one another closely, and no wait is over."""
    monkeypatch.setattr(output_reader, "STREAM", math.inf)
    monkeypatch.setattr(output_reader, "LULL", 3600.0)


async def first_frame(session: Session) -> None:
    session.draw(1)
    await session.drawn(1)


def test_frames_of_a_program_that_keeps_drawing_wait_until_somebody_looks(tmp_path: Path) -> None:
    async def run() -> None:
        with drawing(tmp_path) as session:
            await first_frame(session)
            before = session.wakes
            for number in (2, 3, 4, 5):
                session.draw(number)
            assert session.wakes == before and b"frame 5" not in session.pieces[-1]
            assert session.terminal.screen_text()[1] == "    frame 5"
            session.draw(6)
            assert session.wakes == before and not session.terminal.output_pending()
            assert session.terminal.screen_text()[1] == "    frame 6"

    asyncio.run(run())


def test_whatever_else_happens_ends_the_wait(tmp_path: Path) -> None:
    async def run() -> None:
        for kind, data in ((ring.RESIZED, b"100 30"), (ring.DETACH, b""), (ring.EXITED, b"0")):
            with drawing(tmp_path) as session:
                await first_frame(session)
                session.draw(3)
                session.ring.append(kind, data)
                await session.drawn(3)

    asyncio.run(run())


def test_the_echo_of_a_key_is_read_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        with drawing(tmp_path) as session:
            await first_frame(session)
            session.ring.append(ring.TYPED, b"x", wake=False)
            for number in (3, 4):
                session.draw(number)
                await session.drawn(number)

    asyncio.run(run())


def test_what_may_become_a_directive_is_read_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        with drawing(tmp_path) as session:
            for number, text in enumerate(("@relay:Bob", "@relay:Bob hello", "")):
                session.draw(number, text)
                await session.drawn(number)

    asyncio.run(run())
