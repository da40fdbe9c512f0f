"""A real program under a real PTY, with the interface through which an Injector sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from relay.agents.catalog import load
from relay.agents.door import NoDoor, Site
from relay.agents.profile import Profile
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.features.injector import Injector
from relay.home import Home
from relay.injection import layout
from relay.injection.events import (
    Compose,
    Inject,
    InjectionDeferred,
    InjectionEnded,
    MayBegin,
    Recognize,
    Withdraw,
)
from relay.injection.injection import Injection, Kind, Outcome
from relay.lifecycle import SessionEnding
from relay.message import Priority
from relay.place import Place
from relay.shim import process_wait
from relay.shim.process_wait import Waiting
from relay.shim.pty import Pty
from relay.state.agent_terminal import AgentTerminal
from relay.state.evidence import Evidence
from relay.state.view import AgentView
from relay.storage.progress import Progress
from relay.terminal.events import KeysHeldBack, KeysTyped, OutputRead
from relay.terminal.screen import VirtualScreen
from relay.terminal.tty_state import TtyState

FAKES = Path(__file__).parent.parent / "fakes"
COLUMNS, ROWS = 120, 40
OnPrompt = Callable[[Sequence[Injection]], Awaitable[Sequence[Injection]]]
DEADLINE = 60.0  # seconds; only a broken program takes that long


def fake(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", str(FAKES / f"agent_{name}.py"), *arguments]


@functools.cache
def shipped(name: str = "generic") -> Profile:
    nowhere = Path("/nonexistent")
    return load(name, Home(nowhere, nowhere, nowhere))


class PtyAgent(AgentTerminal):
    """The terminal of a program under test, with what a test needs to observe it and to press keys."""

    def __init__(self, argv: Sequence[str], log: Path, profile: Profile, *, idle: float = 30.0) -> None:
        self.replaying = False
        self.position = self.read_from = 0
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(AGENT_LOG=str(log), TERM="xterm-256color", PS1="$ ")
            os.execvp(argv[0], argv)
        termios.tcsetwinsize(self.master, (ROWS, COLUMNS))
        os.set_blocking(self.master, False)
        self.log = log
        self._screen = VirtualScreen(COLUMNS, ROWS)
        self._screen.answer_queries(self.write)
        self.everything = b""
        self.outcomes: list[tuple[str, Outcome]] = []
        self.typing: list[str] = []
        self._queued = bytearray()
        self._writing = False
        self._reserved, self._kept = False, b""  # whether the user's keys are held back, and which
        self._last_output = time.monotonic()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.master, self._read)
        self.refuse: RelayError | None = None  # the answer to MayBegin
        self.begin: Callable[[Injection], None] = lambda injection: None  # also called for MayBegin
        self.end_of: Callable[[Injection, Outcome], None] = lambda injection, outcome: None
        self.on_prompt: OnPrompt | None = None  # the answer to Compose
        self.deferred: list[str] = []
        self.writes: list[tuple[bytes, float]] = []  # what was written to the agent, and when
        self.evidence: tuple[Evidence, ...] = ()
        self._later = 0.0
        self.bus = EventBus()
        directive = layout.directive_pattern(profile.prefix, profile.decoration)
        self.view = AgentView(self, profile, self)
        self.progress = Progress(log.with_name("progress"), resumed=False)
        self.injector = Injector(
            self.bus,
            self,
            self.view,
            directive=directive,
            progress=self.progress,
            door=NoDoor(Site({}, "", "", lambda _: False)),
            idle=idle,
            clock=lambda: time.monotonic() + self._later,
        )
        self.bus.add(self.injector)
        self.bus.add(self)

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
        self.inject(Injection(id or f"i{len(self.typing)}", text, source, kind, wakes, priority=priority))

    def inject(self, injection: Injection) -> None:
        self.bus.publish(Inject(injection))

    def withdraw(self, id: str) -> None:
        self.bus.publish(Withdraw(id))

    async def report_prompt(self, prompt: str) -> bool:
        """Report from the agent's hook that `prompt` was submitted; return whether it is relay's."""
        return any(known.ours for known in await self.bus.ask(Recognize(prompt)))

    def looks(self, group: int) -> Waiting:
        return process_wait.look(group)

    def close(self) -> None:
        """End the session."""
        self.bus.publish(SessionEnding())

    def wait_for_retries(self) -> None:
        """Let the full wait of a refused text pass."""
        self._later = 3_600.0

    def press(self, keys: bytes) -> None:
        """Type as the user."""
        if self._reserved:
            self._kept += keys
            return
        self.write(keys)
        self.bus.publish(KeysTyped(keys, self.position))

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
            verdict = self.view.verdict
            return verdict.state == state and reason in verdict.reason

        try:
            await self.until(judged)
        except TimeoutError:
            raise AssertionError(f"the verdict stays {self.view.verdict}") from None

    async def ended(self, count: int = 1) -> list[str]:
        """Return the results of `count` injections."""
        await self.until(lambda: len(self.outcomes) >= count)
        return [str(outcome.result) for _, outcome in self.outcomes]

    def rest(self) -> None:
        """Make the user's last key press long ago."""
        self.injector._typed._user.rest()
        self._publish_output(b"")

    def received(self) -> str:
        """Return what the program logged as read."""
        return self.log.read_bytes().decode() if self.log.exists() else ""

    # the interface

    def write(self, data: bytes) -> None:
        self.writes.append((data, time.monotonic()))
        self._queued += data
        self._flush()

    def reserve(self) -> None:
        self._reserved = True
        self.bus.loop.call_soon(self.bus.publish, KeysHeldBack())

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
            stops=bool(modes[0] & termios.IXON),
        )

    def unread_keys(self) -> int:
        return Pty(self.pid, self.master).unread_keys()

    def output_pending(self) -> bool:
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))

    @property
    def screen(self) -> VirtualScreen:
        return self._screen

    def unfinished(self) -> str:
        return self.screen.rows()[self.screen.cursor[1]].text

    def current(self) -> tuple[Evidence, ...]:
        """Answer KnownEvidence."""
        return self.evidence

    def output_offset(self) -> int:
        return len(self.everything)

    # internals

    @answers(MayBegin)
    async def _begin(self, question: MayBegin, _: object) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.begin(question.injection)
        self.typing.append(question.injection.id)

    @answers(Compose)
    async def _compose(self, question: Compose, _: object) -> tuple[Injection, ...] | None:
        return None if self.on_prompt is None else tuple(await self.on_prompt(question.injections))

    @handles(InjectionEnded)
    def _outcome(self, event: InjectionEnded) -> None:
        self.end_of(event.injection, event.outcome)
        self.outcomes.append((event.injection.id, event.outcome))
        self._changed.set()

    @handles(InjectionDeferred)
    def _deferred(self, event: InjectionDeferred) -> None:
        self.deferred.append(event.injection.id)

    def _publish_output(self, data: bytes) -> None:
        self.bus.publish(OutputRead(data, Place("terminal", len(self.everything)), self.position))

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
        self._last_output = time.monotonic()
        self.screen.feed(data)
        self._publish_output(data)
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
    """Run the program under a PTY with its injector for the block."""
    agent = PtyAgent(argv, tmp_path / "received", profile or shipped(), idle=idle)
    task = asyncio.create_task(agent.injector.run())
    try:
        yield agent
        if task.done() and not task.cancelled():
            task.result()
    finally:
        agent.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        agent.end()
