"""The session: one agent's life, from its first byte to its last process.

launch ─→ Session.run ─┬→ EventBus ←→ features (relay.session.features)
                       └→ begin ... the agent has ended: last words, goodbye, sweep, close
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from relay.agents import hook_setup
from relay.control.operations import operations
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.features.requests import Requests
from relay.home import Home
from relay.hooks import events
from relay.lifecycle import (
    Describe,
    Follower,
    Goodbye,
    Identity,
    LastWords,
    SessionBegan,
    SessionClosed,
    SessionEnding,
    SessionSettling,
    WhatFollows,
)
from relay.memory.opening import open_backend
from relay.memory.store import MemoryStore
from relay.project import enter_again
from relay.readers.auto import AutoReader
from relay.redaction import Redactor, known_in
from relay.session.active_config import ActiveConfig
from relay.session.core import Agent, Core
from relay.session.features import FEATURES, RESTORED, Feature
from relay.session.restoration import Restoration
from relay.session.setup import Setup
from relay.session.shutdown import Shutdown
from relay.session.started import Started
from relay.shim.shim import FAREWELL
from relay.state.agent_terminal import AgentTerminal
from relay.state.continuations import Continuations
from relay.state.states import AgentState
from relay.state.turn import Turn
from relay.state.view import AgentView, KnownEvidence
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, KeyChosen, Notify, OutputEnded
from relay.terminal.status import StatusRecords
from relay.text import count

T = TypeVar("T")

AFTERTHOUGHT = 10.0
"""Seconds after the user gets their shell back in which relay still acts on the agent's last words."""


RETIREMENT = 2.0
"""Seconds in which a replaced session finishes its work."""


def main(started: Started) -> int:
    """Run a session for its agent; return its process's exit code."""

    async def run() -> int:
        async with asyncio.TaskGroup() as group:
            return await Session(started, group).run()

    try:
        return asyncio.run(run())
    finally:
        started.shim.close()


class Session:
    """The session of one wrapped agent. Everything runs on the thread of one event loop."""

    def __init__(self, started: Started, group: asyncio.TaskGroup) -> None:
        self._started = started
        self._bus = bus = EventBus(restoring=started.resumed)
        self._core = core = make_core(started, bus, Tasks(group, bus))
        self._exited: asyncio.Future[int] = bus.loop.create_future()
        self._retiring = asyncio.Event()
        self._shown = asyncio.Event()
        settings, terminal = core.setup.settings, core.agent.terminal
        self._shutdown = Shutdown(bus, core.tasks, started.shim, terminal, settings, piped=started.piped)
        self._requests = Requests(
            bus,
            core.journal,
            core.session,
            started.home,
            started.shim.hello.listener,
            agent=core.setup.profile.name,
            pid=started.pty.pid,
            terminal_pid=started.pty.leader,
            restarts=started.restarts,
            shown_to=core.session.team if settings.look == "team" else None,
        )
        self._restoration = Restoration(bus)
        made = {name: feature for name, make in FEATURES.items() if (feature := make(core)) is not None}
        self._features: list[Feature] = [self, self._shutdown, *made.values(), self._requests]
        restored = [made[name] for name in RESTORED if name in made]
        for feature in self._features:
            bus.add(feature, restored=feature in restored)
        bus.add(self._restoration, restored=True)
        self._requests.offer(operations(self._features))

    @handles(SessionBegan)
    def began(self, _: SessionBegan) -> None:
        """Write the journal's first entry, before any feature does; it also goes into the recording."""
        setup = self._core.setup
        fields = {"agent": setup.profile.name, "pid": self._started.pty.pid, "cwd": str(setup.directory)}
        self._core.journal.write("session_resumed" if self._started.resumed else "session_start", **fields)

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"mcp": self._started.mcp}

    @handles(AgentExited)
    def exited(self, event: AgentExited) -> None:
        if not self._exited.done():
            self._exited.set_result(event.code)

    @handles(OutputEnded)
    def shown(self, _: OutputEnded) -> None:
        self._shown.set()

    async def run(self) -> int:
        """Run until the agent has ended or another session must take over; return an exit code."""
        tasks = self._core.tasks
        tasks.spawn(self._requests.run(), type(self._requests).__name__)  # `relay ps` waits for nothing
        self._bus.publish(SessionBegan())
        self._started.shim.ready()
        gc.enable()
        await self._restoration.over.wait()
        self._bus.loop.add_signal_handler(signal.SIGTERM, self._shutdown.stop)
        self._started.shim.listen(
            self._bus.loop, self._retiring.set, self._orphaned, lambda key: self._bus.publish(KeyChosen(key))
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # launch blocked it until now
        for feature in self._features[1:-1]:
            if (run := getattr(feature, "run", None)) is not None:
                tasks.spawn(run(), type(feature).__name__)
        if self._started.kept == "stop":  # an earlier session had this order
            self._shutdown.stop()
        elif self._started.kept:
            self._shutdown.restart(self._started.kept)
        if (code := await self._until_retired(self._exited)) is None:
            return await self._make_way()
        acted = await self._hear_out(code)
        asked = asyncio.ensure_future(self._bus.ask_all(WhatFollows(code, self._shutdown.again)))
        if (answers := await self._until_retired(asked)) is None:
            return await self._make_way()
        follower = next(iter(answers), Follower() if self._shutdown.again else None)
        await self._part(code, follower, acted)
        await self._bus.ask_all(SessionSettling())
        over = follower is None or not self._started.shim.kept  # the agent was stopped after all
        await self._bus.ask_all(SessionClosed(ended=over))
        tasks.cancel()
        if (self._started.bridge or self._started.record) and over:
            hook_setup.remove(self._started.bridge_dir)
        self._started.shim.done()  # no session follows; report this before removing the progress
        self._core.progress.close(remove=True)
        return 0

    async def _until_retired(self, waited: asyncio.Future[T]) -> T | None:
        """Return the result of `waited`; cancel it and return None if this session must make way first."""
        retiring: asyncio.Future[Any] = asyncio.ensure_future(self._retiring.wait())
        either: set[asyncio.Future[Any]] = {waited, retiring}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        retiring.cancel()
        if waited.done():
            return waited.result()
        waited.cancel()
        return None

    def _orphaned(self) -> None:
        """End the agent after its shim was killed: its terminal is gone."""
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            self._started.pty.hang_up(number)
        os._exit(70)

    async def _make_way(self) -> int:
        """Finish the work begun, and leave the agent and everything waiting to the next session."""
        await self._bus.ask_all(SessionSettling())
        with suppress(TimeoutError):
            async with asyncio.timeout(RETIREMENT):
                await self._core.tasks.idle()
        await self._bus.ask_all(SessionClosed())
        self._core.tasks.cancel()
        self._core.progress.close(remove=False)
        return 0

    async def _hear_out(self, code: int) -> asyncio.Task[None]:
        """Act on the ended agent's last words for a moment; return the task that continues doing so."""
        # Wait for a slow terminal, as the agent itself would have; `relay stop` does not (ShimLink.finish).
        await self._shown.wait()
        work = self._act_on_last_words(asked=self._shutdown.asked)
        acted = self._core.tasks.spawn(work, "acting on the agent's last words")
        await asyncio.wait({acted}, timeout=FAREWELL)
        self._bus.publish(SessionEnding())
        if not any(note["note"] == "ended" for note in self._core.progress.notes):
            self._core.journal.write("session_end", code=code)
            self._core.progress.note("ended")
        return acted

    async def _part(self, code: int, follower: Follower | None, acted: asyncio.Task[None]) -> None:
        """Leave the terminal to the next agent, if there is one, or to the user's shell."""
        if follower is not None:
            directory = self._core.session.directory
            again = self._started.again(directory, follower.command, resumes=follower.resumes)
            home = self._started.home
            ActiveConfig.load(home, self._started.id).save(home, again["hello"]["id"])
            self._started.shim.start(again)
        await self._bus.ask_all(Goodbye(code))
        await asyncio.wait({acted}, timeout=AFTERTHOUGHT)
        if left := self._core.tasks.unfinished("@"):
            text = f"{count(left, 'directive')} in {self._core.session.name}'s last words had no effect."
            self._bus.publish(Notify(text))

    async def _act_on_last_words(self, *, asked: bool) -> None:
        """Act on the agent's last words, and tell its handlers. asked: the agent was asked to end."""
        await self._bus.ask_all(LastWords())
        await self._core.tasks.idle()
        if not asked:
            self._bus.publish(events.SessionEnd(reason="exit"))
            await self._core.tasks.idle()


def make_core(started: Started, bus: EventBus, tasks: Tasks) -> Core:
    """Create the parts that the features share."""
    before = ActiveConfig.load(started.home, started.id)
    setup = Setup.load(started.options, started.home, Path(enter_again(started.env)), before)
    configs = {file.path: file for file in setup.configs}
    notices = (*setup.notices, *filter(None, [started.bridge_note]))
    active = ActiveConfig(configs, setup.rules.sources, notices, setup.mistakes)
    active.save(started.home, started.id)
    session = Identity(started.id, started.name, started.team, setup.directory)
    redactor = Redactor(known_in(started.env))
    journal = Journal(started.home.journal, session.id, session.name, bus, publishes=True, redactor=redactor)
    reader = AutoReader(
        *started.size,
        kind=setup.profile.reader,
        marker=setup.prefix.encode(),
        echo_style=setup.profile.echo,
        block_end=setup.profile.block_end,
        settle=setup.profile.settle,
        code_style=setup.profile.code,
    )
    terminal = AgentTerminal(started.shim, reader)
    turn, status = Turn(time.monotonic), StatusRecords()
    never = "its input is not its own terminal, so relay does not type into it" if started.piped else ""
    evidence = KnownEvidence(turn.hooks, status, time.monotonic)
    view = AgentView(terminal, setup.profile, evidence, never=never)
    state = AgentState(view, bus)
    continuations = Continuations(bus, journal, turn, state, setup.settings.continuations)
    progress = Progress(started.home.state / "sessions" / f"{started.id}.jsonl", resumed=started.resumed)
    agent = Agent(reader, terminal, status, turn, view, state, continuations)
    memory = _memory(setup, started.home, session)
    noticed = frozenset(before.notices if started.resumed else ())
    return Core(
        bus, tasks, started, setup, active, noticed, session, journal, redactor, progress, agent, memory
    )


def _memory(setup: Setup, home: Home, session: Identity) -> MemoryStore | RelayError:
    """Return the store of the agent's memories, or the error that prevents it."""
    if isinstance(setup.memory, RelayError):
        return setup.memory
    try:
        return MemoryStore(open_backend(setup.memory, home), session.team, session.name)
    except RelayError as error:
        return error
