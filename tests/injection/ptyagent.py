"""A real program under a real PTY, with the port through which an Injector sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from relay.agents.catalog import load
from relay.agents.profile import Profile
from relay.errors import RelayError
from relay.home import Home
from relay.injection.injection import Injection, Kind, Outcome
from relay.injection.queue import Injector
from relay.messaging.message import Priority
from relay.state.evidence import Evidence
from relay.state.port import TtyState
from relay.terminal.ghostty import open_screen

FAKES = Path(__file__).parent.parent / "fakes"
COLUMNS, ROWS = 120, 40
DEADLINE = 15.0  # seconds; only a broken program reaches it


def fake(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", str(FAKES / f"agent_{name}.py"), *arguments]


def shipped(name: str = "generic") -> Profile:
    nowhere = Path("/nonexistent")
    return load(name, Home(nowhere, nowhere, nowhere))


class PtyAgent:
    """The port (relay.state.port.Port), and what a test needs to see and to press keys."""

    def __init__(self, argv: Sequence[str], log: Path, profile: Profile, *, idle: float = 30.0) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(AGENT_LOG=str(log), TERM="xterm-256color", PS1="$ ")
            os.execvp(argv[0], argv)
        termios.tcsetwinsize(self.master, (ROWS, COLUMNS))
        os.set_blocking(self.master, False)
        self.log = log
        self.screen = open_screen(COLUMNS, ROWS)
        self.everything = b""
        self.outcomes: list[tuple[str, Outcome]] = []
        self.typing: list[str] = []
        self._queued = bytearray()
        self._writing = False
        self._reserved, self._kept = False, b""  # whether the person's keys are kept, and which were
        self._last = time.monotonic()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.master, self._read)
        self.refuse: RelayError | None = None  # what on_typing raises
        self.begin: Callable[[Injection], None] = lambda injection: None  # what on_typing does besides
        self.end_of: Callable[[Injection, Outcome], None] = lambda injection, outcome: None
        self.deferred: list[str] = []
        self.said: tuple[Evidence, ...] = ()
        self.injector = Injector(self, profile, on_outcome=self._outcome, on_typing=self._begin, idle=idle)
        self.injector.on_deferred = lambda injection: self.deferred.append(injection.id)

    def submit(
        self,
        text: str,
        *,
        source: str = "Alice",
        kind: Kind = "message",
        id: str = "",
        wakes: bool = True,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        self.injector.submit(
            Injection(id or f"i{len(self.typing)}", text, source, kind, wakes, priority=priority)
        )

    def press(self, keys: bytes) -> None:
        """The person types."""
        if self._reserved:
            self._kept += keys
            return
        self.write(keys)
        self.injector.person(keys)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await self._changed.wait()

    async def shows(self, text: str) -> None:
        await self.until(lambda: text.encode() in self.everything)

    async def verdict(self, state: str, reason: str = "") -> None:
        """Wait for the verdict `state` whose reason contains `reason`."""

        def judged() -> bool:
            verdict = self.injector.verdict
            return verdict.state == state and reason in verdict.reason

        try:
            await self.until(judged)
        except TimeoutError:
            raise AssertionError(f"the verdict stays {self.injector.verdict}") from None

    async def ended(self, count: int = 1) -> list[str]:
        """The results of `count` injections."""
        await self.until(lambda: len(self.outcomes) >= count)
        return [str(outcome.result) for _, outcome in self.outcomes]

    def rest(self) -> None:
        """The person has not touched the keyboard for long."""
        self.injector._draft.last_typed = float("-inf")
        self.injector.output(b"")

    def received(self) -> str:
        """What the program logged as read."""
        return self.log.read_bytes().decode() if self.log.exists() else ""

    # the port

    def write(self, data: bytes) -> None:
        self._queued += data
        self._flush()

    def reserve(self) -> None:
        self._reserved = True

    def reserved(self) -> bool:
        return self._reserved

    def release(self) -> None:
        self._reserved = False
        keys, self._kept = self._kept, b""
        if keys:
            self.press(keys)

    def unwritten(self) -> int:
        return len(self._queued)

    def tty(self) -> TtyState:
        modes = termios.tcgetattr(self.master)
        try:
            foreground = os.tcgetpgrp(self.master)
        except OSError:
            foreground = 0
        return TtyState(
            canonical=bool(modes[3] & termios.ICANON),
            echo=bool(modes[3] & termios.ECHO),
            icrnl=bool(modes[0] & termios.ICRNL),
            foreground=foreground,
            agent_group=self.pid,
        )

    def output_pending(self) -> bool:
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))

    def bracketed_paste(self) -> bool:
        return self.screen.bracketed_paste

    def alternate(self) -> bool:
        return self.screen.alternate

    def unfinished(self) -> str:
        return self.screen.rows()[self.screen.cursor[1]].text

    def screen_text(self) -> list[str]:
        return [row.text for row in self.screen.rows()]

    def title(self) -> str:
        return self.screen.title

    def evidence(self) -> tuple[Evidence, ...]:
        return self.said

    def last_output(self) -> float:
        return self._last

    def output_offset(self) -> int:
        return len(self.everything)

    # underneath

    def _begin(self, injection: Injection) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.begin(injection)
        self.typing.append(injection.id)

    def _outcome(self, injection: Injection, outcome: Outcome) -> None:
        self.end_of(injection, outcome)
        self.outcomes.append((injection.id, outcome))
        self._changed.set()

    def _read(self) -> None:
        try:
            data = os.read(self.master, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self.master)
            return
        self.everything += data
        self._last = time.monotonic()
        self.screen.feed(data)
        self.injector.output(data)
        self._changed.set()

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while self._queued:
                del self._queued[: os.write(self.master, self._queued)]
        if self._queued and not self._writing:
            self._loop.add_writer(self.master, self._flush)
        elif not self._queued and self._writing:
            self._loop.remove_writer(self.master)
        self._writing = bool(self._queued)

    def end(self) -> None:
        self._loop.remove_reader(self.master)
        self._loop.remove_writer(self.master)
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                end(self.pid, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.pid, 0)


@contextlib.asynccontextmanager
async def running(
    argv: Sequence[str], tmp_path: Path, profile: Profile | None = None, *, idle: float = 30.0
) -> AsyncIterator[PtyAgent]:
    """The program under a PTY with its injector running; afterwards neither is."""
    agent = PtyAgent(argv, tmp_path / "received", profile or shipped(), idle=idle)
    task = asyncio.create_task(agent.injector.run())
    try:
        yield agent
        if task.done():
            task.result()
    finally:
        agent.injector.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        agent.end()
