"""The session: one agent's life, from its first byte to its last process.

launch ─→ Session.run ─┬→ EventBus ←→ features (relay.session.features)
                       └→ begin ... the agent has ended: last words, goodbye, sweep, close
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from relay.agents import hook_setup
from relay.control.operations import operations
from relay.control.terminal_client import TerminalClient
from relay.eventbus import EventBus, handles
from relay.features.requests import Requests
from relay.hooks import events
from relay.lifecycle import (
    Goodbye,
    Identity,
    LastWords,
    SessionBegan,
    SessionClosed,
    SessionEnding,
    SessionSettling,
)
from relay.memory.store import MemoryStore
from relay.readers.auto import AutoReader
from relay.redaction import Redactor, known_in
from relay.session.core import Agent, Core
from relay.session.features import FEATURES, Feature
from relay.session.setup import Setup
from relay.session.shutdown import FAREWELL, Shutdown
from relay.session.started import Started
from relay.state.agent_terminal import AgentTerminal
from relay.state.continuations import Continuations
from relay.state.states import AgentState
from relay.state.turn import Turn
from relay.state.view import AgentView, KnownEvidence
from relay.storage.journal import Journal
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, AgentStopped, Notify
from relay.terminal.status import StatusRecords
from relay.text import count

SWITCH_INTERVAL = 0.00002
"""Seconds until the interpreter lets the forward thread run; the default, 5 ms, would be felt as lag."""

AFTERTHOUGHT = 10.0
"""Seconds after the user gets their shell back in which the agent's last words are still acted on."""


def main(started: Started, channel: socket.socket) -> int:
    """Run the session until its agent has ended; return the agent's exit code. channel: to the client."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    started.forwarder.hurry()

    async def run() -> int:
        client = TerminalClient(channel, owner=not started.options.detached)
        async with asyncio.TaskGroup() as group:
            code = await Session(started, client, group).run()
        started.claim.release()
        return code

    return asyncio.run(run())


class Session:
    """The session of one wrapped agent. Everything runs on the thread of one event loop."""

    def __init__(self, started: Started, client: TerminalClient, group: asyncio.TaskGroup) -> None:
        self._started = started
        self._bus = bus = EventBus()
        self._core = core = make_core(started, client, bus, Tasks(group, bus))
        self._exited: asyncio.Future[int] = bus.loop.create_future()
        self._shutdown = Shutdown(
            bus, core.tasks, started.pty, started.forwarder, core.agent.terminal, core.setup.settings
        )
        self._requests = Requests(
            bus,
            core.journal,
            core.session,
            started.home,
            started.claim.socket,
            agent=core.setup.profile.name,
            pid=started.pty.pid,
        )
        made = {name: make(core) for name, make in FEATURES.items()}
        self._features: list[Feature] = [self, self._shutdown, *filter(None, made.values()), self._requests]
        for feature in self._features:
            bus.add(feature)
        self._requests.offer(operations(self._features))

    @handles(SessionBegan)
    def began(self, _: SessionBegan) -> None:
        """Write the journal's first entry, before any feature does; the recording contains it, too."""
        setup = self._core.setup
        fields = {"agent": setup.profile.name, "pid": self._started.pty.pid, "cwd": str(setup.directory)}
        self._core.journal.write("session_start", **fields)

    async def run(self) -> int:
        """Run until the agent has ended; return its exit code, 128+N for signal N."""
        threading.Thread(target=self._wait_for_agent, name="wait", daemon=True).start()
        self._bus.loop.add_signal_handler(signal.SIGTERM, self._shutdown.stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # launch blocked it until now
        tasks = self._core.tasks
        for feature in self._features[1:]:
            if (run := getattr(feature, "run", None)) is not None:
                tasks.spawn(run(), type(feature).__name__)
        self._bus.publish(SessionBegan())
        code = await self._exited
        await self._end(code)
        await self._bus.ask_all(SessionSettling())
        await self._bus.ask_all(SessionClosed())
        tasks.cancel()
        if self._started.bridge_dir:
            hook_setup.remove(self._started.bridge_dir)
        return code

    def _wait_for_agent(self) -> None:
        """Publish every stop of the agent, and set `_exited` at its end. Runs on a thread of its own."""
        while True:
            _, status = os.waitpid(self._started.pty.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                self._bus.post(AgentStopped())
                continue
            code = os.waitstatus_to_exitcode(status)
            self._bus.loop.call_soon_threadsafe(self._exited.set_result, 128 - code if code < 0 else code)
            return

    async def _end(self, code: int) -> None:
        """Forward the ended agent's last words, act on them, and leave no process behind."""
        tasks, forwarder = self._core.tasks, self._started.forwarder
        self._bus.publish(AgentExited())
        self._started.pty.hang_up(signal.SIGHUP)
        forwarder.finish()
        # Wait for a slow terminal, as the agent itself would have; but `relay stop` does not wait.
        await asyncio.to_thread(forwarder.join, FAREWELL if self._shutdown.asked else None)
        acted = tasks.spawn(self._act_on_last_words(), "acting on the agent's last words")
        await asyncio.wait({acted}, timeout=FAREWELL)
        self._bus.publish(SessionEnding())
        self._core.journal.write("session_end", code=code)
        await self._bus.ask_all(Goodbye(code))
        await self._shutdown.sweep()
        await asyncio.wait({acted}, timeout=AFTERTHOUGHT)
        if left := tasks.waiting("@"):
            text = f"{count(left, 'directive')} of {self._core.session.name}'s last words came to nothing."
            self._bus.publish(Notify(text))

    async def _act_on_last_words(self) -> None:
        await self._bus.ask_all(LastWords())
        await self._core.tasks.idle()
        if not self._shutdown.asked:
            self._bus.publish(events.SessionEnd(reason="exit"))
            await self._core.tasks.idle()


def make_core(started: Started, client: TerminalClient, bus: EventBus, tasks: Tasks) -> Core:
    """Return the parts that the features share."""
    setup = Setup.load(started.options, started.home, Path.cwd())
    claim = started.claim
    session = Identity(started.id, claim.name, claim.team, setup.directory)
    redactor = Redactor(known_in(started.env))
    journal = Journal(started.home.journal, session.id, session.name, bus, publishes=True, redactor=redactor)
    reader = AutoReader(
        *started.size,
        kind=setup.profile.reader,
        marker=setup.prefix.encode(),
        echo_style=setup.profile.echo,
        code_style=setup.profile.code,
    )
    terminal = AgentTerminal(started.forwarder, started.pty, reader)
    turn, status = Turn(time.monotonic), StatusRecords()
    never = "its input is not a terminal of its own, so nothing is typed into it" if started.piped else ""
    evidence = KnownEvidence(turn.hooks, status, time.monotonic)
    view = AgentView(terminal, setup.profile, evidence, never=never)
    state = AgentState(view, bus)
    continuations = Continuations(bus, journal, turn, state, setup.settings.continuations)
    agent = Agent(reader, terminal, status, turn, view, state, continuations)
    memory = MemoryStore(started.home.memory, session.team, session.name)
    return Core(bus, tasks, started, setup, session, journal, redactor, client, agent, memory)
