"""The session process: one agent, and everything that is done for it, wired together.

                               ┌→ lines ─→ events ──────┐
    tee → OutputPump → Hearing ┤                        ├→ Runner → results ─→ Giving → Injector → PTY
                       │       └→ directives ───────────┘                               ↑
                       └→ Recorder                                                      │
    the agent's hooks ─→ Turns ─→ Ruling, Runner ─→ replies ←───────────────────────────┤
    Courier ─→ Mail ────────────────────────────────────────────────────────────────────┘

`run` is the life of the session from the agent's first byte to its last process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from relay import desktop_notification, names
from relay.agents import hook_setup as bridge
from relay.control.server import ControlServer
from relay.directives.grammar import Grammar
from relay.errors import MessageRefused, RelayError
from relay.home import Home
from relay.hooks import config_file, events
from relay.hooks.context import MAX_MESSAGES, Context, MemoryService
from relay.hooks.result import Level
from relay.hooks.runner import Runner
from relay.injection.audit_log import AuditLog
from relay.injection.budget import Budget
from relay.injection.injection import Injection, Outcome
from relay.injection.queue import Injector
from relay.memory.store import MemoryStore
from relay.messaging.client import Courier
from relay.messaging.message import Message
from relay.readers.auto import AutoReader
from relay.redaction import Redactor, known_in
from relay.rules.rule_book import RuleBook
from relay.session import lesson
from relay.session.absent import NoBus, NoMemory
from relay.session.answers import Answers
from relay.session.attention import Alert, Attention, NoAlert
from relay.session.auditing import Audit
from relay.session.bus import Bus
from relay.session.escalation import Escalation
from relay.session.giving import Giving
from relay.session.hearing import Hearing
from relay.session.limits import limits_of
from relay.session.mail import Mail
from relay.session.native import Bridge, NativeHooks
from relay.session.port import SessionPort
from relay.session.pump import OutputPump
from relay.session.recorder import Recorded, Recorder, recorder
from relay.session.requests import Requests
from relay.session.ruling import Ruling
from relay.session.services import SessionServices
from relay.session.setup import Setup
from relay.session.started import Started
from relay.session.stopping import FAREWELL, Stopping
from relay.session.terminals import TerminalClient, Terminals
from relay.session.turns import Turns
from relay.session.work import Workers
from relay.state.evidence import Evidence
from relay.state.readiness import Verdict
from relay.state.states import AgentState, Change
from relay.storage.journal import Journal
from relay.text import count

_log = logging.getLogger(__name__)

SWITCH_INTERVAL = 0.00002
"""Seconds after which the interpreter lets the forward thread in; the default, 5 ms, would be felt as lag."""

LATE = 0.02
"""Seconds after the moment at which a verdict may change until it is looked at again."""

AFTERTHOUGHT = 10.0
"""Seconds after the person's next prompt in which what the agent said last is still read and acted on."""

CONFIG_LOOK = 2.0
"""Seconds between two looks at whether relay.config.py has changed."""


def main(started: Started, channel: socket.socket) -> int:
    """Run the session until its agent has ended; the agent's exit code. `channel` leads to the client."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    started.forwarder.hurry()

    async def run() -> int:
        client = TerminalClient(channel, owner=not started.options.detached)
        return await Session(started).run(client)

    return asyncio.run(run())


class Session:
    """One wrapped agent. All of it happens on one event loop's thread."""

    def __init__(self, started: Started) -> None:
        self.loop = asyncio.get_running_loop()
        self.claim = claim = started.claim
        self.id = started.id
        self._bridge_dir = started.bridge_dir
        self.pty = pty = started.pty
        self._detached = started.options.detached
        self.forwarder = forwarder = started.forwarder
        self._tasks = asyncio.TaskGroup()
        self.exited: asyncio.Future[int] = self.loop.create_future()
        self.started = asyncio.Event()
        self._idle_since = 0.0
        self._begun = False
        self._look_again: asyncio.TimerHandle | None = None

        self._redactor = Redactor(known_in(started.env))
        self.journal = Journal(
            started.home.journal, self.id, claim.name, self._journal_failed, redactor=self._redactor
        )
        self.setup = setup = Setup.load(started.options, started.home, Path.cwd())
        self.settings = setup.settings
        self._notices = [
            *setup.notices,
            *([started.bridge_note] if started.bridge_note else []),
        ]  # told as soon as there is a terminal to tell them on
        self.workers = Workers(self._tasks, self.tell_person)
        self.services = SessionServices(self)
        self.runner = Runner(
            setup.registry,
            report=self.services.report,
            note=self.services.printed,
            timeout=setup.settings.handler_seconds,
        )
        self.reader = AutoReader(
            *started.size,
            kind=setup.profile.reader,
            marker=setup.prefix.encode(),
            echo_style=setup.profile.echo,
            code_style=setup.profile.code,
        )
        if self.reader.unavailable is not None:
            self._notices.append(f"{self.reader.unavailable} Only what the agent prints as lines is read.")
        self.recorder = self._recorder(started)
        self.journal.listener = self.recorder.entry
        grammar = Grammar(setup.registry.knows, prefix=setup.prefix, decoration=setup.decoration)
        self.hearing = Hearing(self)
        self.pump = OutputPump(forwarder, pty, self.reader, grammar, self.hearing)
        self.terminals = Terminals(forwarder, pty, self.reader, self.workers, claim.name)
        port = SessionPort(forwarder, pty, self.reader, self.pump, self._evidence)
        self.budget = Budget(self.settings.injection_budget, partial(self.tell_person, level="warning"))
        self._audit = Audit(
            self.journal,
            AuditLog(
                started.home.audit,
                self.id,
                claim.name,
                claim.team,
                full=self.settings.hook_output == "full",
                trouble=self._journal_failed,
                redactor=self._redactor,
            ),
            self.budget,
            self.tell_person,
        )
        self.injector = Injector(
            port,
            setup.profile,
            on_outcome=self._on_typed,
            on_typing=self._on_typing,
            prefix=setup.prefix,
            idle=setup.settings.idle_seconds,
        )
        self.giving = Giving(self.injector, self.tell_person)
        if started.piped:
            self.injector.hold("its input is not a terminal of its own, so nothing is typed into it")
        self.state = AgentState(
            lambda: self.injector.verdict,
            lambda: time.monotonic() - self.pump.last_output,
            on_look=self._on_look,
            on_change=self._on_state,
        )
        self.answers = Answers(port, self.state.look, self.journal)
        self._attention = Attention(
            look=self.state.look,
            fire=self.fire,
            alert=self._alert(),
            drawn=self.answers.drawn,
            # Only of an agent: a plain program's terminal gets no byte but its own.
            report=forwarder.report if setup.profile.states else lambda report: None,
            speaks=lambda: self.hearing.records.root() is not None,
            journal=self.journal,
        )
        self._stopping = Stopping(self, forwarder)
        self.ruling = Ruling(
            self,
            setup.rules,
            directory=setup.directory,
            env=started.env,
            load=partial(
                RuleBook.load, started.home, setup.directory, [Path(path) for path in started.options.rules]
            ),
            full=setup.settings.hook_output == "full",
        )
        self.turns = Turns(self, Bridge(started.bridge, started.bridge_note))
        self.injector.on_prompt = self.turns.on_prompt
        self._home = started.home
        self._broker_url = started.options.broker or setup.settings.broker or None
        self._bus = Bus(
            self._courier,
            on_change=self._use,
            tell_person=self.tell_person,
            show=self.terminals.tell,
            journal=self.journal,
        )
        if self._bus.problem is not None:
            self._notices.append(f"{self._bus.problem} The agent runs on without messages.")
        self._memory = self._open_memory(started.home)
        self._messages: deque[Message] = deque(maxlen=MAX_MESSAGES)
        self.context = Context(
            agent_id=f"{claim.team}/{claim.name}",
            agent_name=claim.name,
            session_id=self.id,
            working_dir=setup.directory,
            env=dict(started.env),
            task=started.options.task or None,
            services=self.services,
            memory=MemoryService(self._memory, setup.memory),
            output=self.hearing.lines,
            messages=self._messages,
        )
        self.mail = Mail(
            self.courier,
            self.injector,
            self._messages,
            self.journal,
            fire=self.fire,
            tell_agent=self.giving.notice,
            tell_person=self.tell_person,
            tell_held=self._on_held,
        )

    def _recorder(self, started: Started) -> Recorder:
        """For `relay replay`: it sees what the terminal shows, and never what the person types."""

        def repaint() -> bytes | None:
            screen = self.reader.screen
            if screen is None:
                return b""
            return screen.repaint() if screen.ground else None

        return recorder(
            started.home.recordings,
            self.settings,
            Recorded(
                self.claim.team,
                self.claim.name,
                self.id,
                started.options.command,
                started.env,
                started.size,
            ),
            redactor=self._redactor,
            repaint=repaint,
            tell=lambda text: self.tell_person(text) if self._begun else self._notices.append(text),
        )

    def _alert(self) -> Alert:
        """Who hears of it when the agent asks; what a shell asks is asked by the person who uses it."""
        if self.setup.profile.inject == "never":
            return NoAlert()
        screen = self.reader.screen
        return Escalation(
            self.claim.name,
            action=self.settings.on_prompt,
            to=self.settings.escalate_to,
            drawn=self.answers.drawn,
            show=self.forwarder.aside if self.setup.profile.states else lambda data, undo=None: None,
            title=lambda: "" if screen is None else screen.title,
            notify=lambda title, text: self.workers.spawn(self._notify(title, text), "a notification"),
            send=self._escalate,
            journal=self.journal,
            clock=time.monotonic,
            later=self.loop.call_later,
        )

    async def _notify(self, title: str, text: str) -> None:
        if why := await desktop_notification.notify(title, text):
            self.journal.write("notification", shown=False, reason=why)

    def _escalate(self, to: str, text: str) -> None:
        if names.same(to, self.claim.name):
            return  # it is the one that asks
        try:
            self.mail.send(to, text)
        except RelayError as error:
            self.tell_person(f"{to} was not told that {self.claim.name} asks: {error}")

    @property
    def courier(self) -> Courier | NoBus:
        return self._bus.courier

    @property
    def bus_status(self) -> str:
        return self._bus.status

    def _use(self, courier: Courier | NoBus) -> None:
        self.mail.use(courier)

    def _courier(self, on_status: Callable[[str], None]) -> Courier:
        courier = Courier(
            self._home,
            self.claim.team,
            self.claim.name,
            broker_url=self._broker_url,
            limits=limits_of(self.settings),
            on_message=lambda message: self.mail.arrived(message),
            on_outcome=lambda message: self.mail.settled(message),
            on_status=on_status,
            on_fault=self.tell_person,
        )
        for channel in self.setup.channels:
            try:
                courier.join(channel)
            except MessageRefused as error:  # too many; the session needs the bus all the same
                tell = self.tell_person if self._begun else self._notices.append
                tell(f"{self.claim.name} is not in #{channel}, as the settings say: {error}")
        return courier

    def _open_memory(self, home: Home) -> MemoryStore | NoMemory:
        try:
            return MemoryStore(home.memory, self.claim.team, self.claim.name)
        except RelayError as error:
            self._notices.append(f"{error} The agent runs on without memory.")
            return NoMemory(error)

    @property
    def native(self) -> NativeHooks:
        """The agent's own hooks."""
        return self.turns.native

    def lesson(self) -> str:
        """What the agent is told of relay when it joins."""
        others = [member.name for member in self.services.roster() if member.online is not False]
        return lesson.compose(
            self.setup.lesson,
            name=self.claim.name,
            team=self.claim.team,
            others=others,
            channels=self.courier.channels(),
            prefix=self.setup.prefix,
        )

    def _evidence(self) -> tuple[Evidence, ...]:
        """What the agent's hooks and its status reports say of its state."""
        found = (self.turns.evidence(), self.hearing.evidence())
        return tuple(one for one in found if one is not None)

    def _on_look(self, verdict: Verdict) -> None:
        self.turns.looked(verdict)
        if self._look_again is not None:
            self._look_again.cancel()
        if verdict.wait is not None:  # time alone may change it, and nobody would tell
            self._look_again = self.loop.call_later(verdict.wait + LATE, self._look)

    def _look(self) -> None:
        if not self.state.ended:
            self.state.look()

    def _on_state(self, change: Change) -> None:
        self._attention.changed(change)
        self.turns.changed(change)

    # Its life.

    async def run(self, client: TerminalClient) -> int:
        """From the agent's first output to its end; the exit code for a shell."""
        control = ControlServer(self.claim.socket, Requests(self).answer)
        control.listen()
        threading.Thread(target=self._wait_for_agent, name="wait", daemon=True).start()
        self.loop.add_signal_handler(signal.SIGTERM, self.stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # launch blocked it until now
        async with self._tasks:
            self.workers.spawn(control.run(), "the control socket")
            self.workers.spawn(self._bus.run(), "the bus")
            self.workers.spawn(self.mail.run(), "the mail")
            self.workers.spawn(self.injector.run(), "the injection queue")
            self.workers.spawn(self.native.run(), "the agent's transcript")
            self._begin(client)
            code = await self.exited
            await self._end(code)
            await self.ruling.close()
            self.workers.cancel()
        self.runner.close()
        self._memory.close()
        if self._bridge_dir:
            bridge.remove(self._bridge_dir)
        self.claim.release()
        return code

    def _begin(self, client: TerminalClient) -> None:
        self.journal.write(
            "session_start",
            agent=self.setup.profile.name,
            pid=self.pty.pid,
            cwd=str(self.setup.directory),
        )
        if self._detached:
            self.workers.spawn(
                client.dismiss("detached", notices=[f"{self.claim.name} runs detached (pid {os.getpid()})."]),
                "the terminal",
            )
        else:
            self.terminals.adopt(client)
        self.terminals.answer_queries()
        self.pump.start()
        self._begun = True
        for notice in self._notices:  # not before it is known what the agent has drawn so far
            self.tell_person(notice)
        self.workers.queue(events.SessionStart.name, self._start())
        self.loop.call_later(self.settings.idle_seconds, self._watch_idle)
        if self.setup.config is not None:
            self.loop.call_later(CONFIG_LOOK, self._watch_config, self.setup.config)

    def _wait_for_agent(self) -> None:
        """On a thread of its own: every stop, and the end, of the agent."""
        while True:
            _, status = os.waitpid(self.pty.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                self.loop.call_soon_threadsafe(self._on_suspended)
                continue
            code = os.waitstatus_to_exitcode(status)
            self.loop.call_soon_threadsafe(self.exited.set_result, 128 - code if code < 0 else code)
            return

    def _on_suspended(self) -> None:
        self.state.suspended = self.terminals.agent_stopped()

    async def _end(self, code: int) -> None:
        """The agent has ended: forward its last words, act on them, and leave no process behind."""
        self.state.ended = True
        self.state.look()
        self._attention.close()
        self.pty.hang_up(signal.SIGHUP)
        self.forwarder.finish()
        # A slow terminal is waited for, as the agent itself would have, but not by `relay stop`.
        await asyncio.to_thread(self.forwarder.join, FAREWELL if self._stopping.asked else None)
        heard = self.workers.spawn(self._hear_out(), "acting on the agent's last words")
        await asyncio.wait({heard}, timeout=FAREWELL)
        self.injector.close()
        self.journal.write("session_end", code=code)
        await self.terminals.goodbye(code)
        await self._stopping.sweep()
        await asyncio.wait({heard}, timeout=AFTERTHOUGHT)
        if left := self.workers.waiting:
            self.tell_person(f"{count(left, 'directive')} of {self.claim.name}'s last words came to nothing.")
        self.pump.stop()
        self.recorder.close()

    async def _hear_out(self) -> None:
        """Read what is left of the agent's output, and act on it."""
        await self.hearing.over.wait()
        self.native.close()
        self.turns.end()
        await self.workers.idle()
        if not self._stopping.asked:
            self.fire(events.SessionEnd(reason="exit"))
            await self.workers.idle()

    def stop(self) -> None:
        """End the agent; asked a second time, at once."""
        self._stopping.stop()

    @property
    def patience(self) -> float:
        """Seconds in which a session that was asked to stop has ended, unless something is wrong with it."""
        return self._stopping.patience

    async def _start(self) -> None:
        """Let session_start's handlers have their say before the agent gets answers and mail."""
        try:
            self.turns.begin()
            # What it is told at first is context; hooks carry it with the first prompt.
            await self.fired(events.SessionStart(), wake=not self.native.bridge.kind)
        finally:
            self.started.set()
            self.mail.collect()

    # Events and results.

    def fire(self, event: events.Event) -> None:
        """Have the handlers of `event` called, after those of earlier events of its kind."""
        if self.runner.registry.for_event(event):
            self.workers.queue(event.name, self.fired(event))

    async def fired(self, event: events.Event, *, wake: bool = True) -> None:
        for result in await self.runner.fire(event, self.context):
            self.giving.apply(result if wake else replace(result, wake=False), event=event.name)

    def _watch_idle(self) -> None:
        """Fire `idle` once for each quiet period."""
        seconds, last = self.settings.idle_seconds, self.pump.last_output
        quiet = time.monotonic() - last
        if quiet >= seconds and self._idle_since != last:
            self._idle_since = last
            self.fire(events.Idle(seconds=quiet))
        self.loop.call_later(max(seconds - quiet, 1.0), self._watch_idle)

    def _watch_config(self, config: config_file.ConfigFile) -> None:
        """Tell, once, that relay.config.py is no longer what runs here."""
        if not config_file.changed(config.path, config.digest):
            self.loop.call_later(CONFIG_LOOK, self._watch_config, config)
            return
        self.tell_person(
            f"{config.path} has changed; this session keeps the version it started with. "
            "Read it, `relay trust` it, and start again to use it."
        )

    # What is typed into the agent.

    def _on_typing(self, injection: Injection) -> None:
        self.mail.typing(injection)
        self.turns.submitted(by_person=False)

    def _on_typed(self, injection: Injection, outcome: Outcome) -> None:
        self._audit.ended(injection, outcome)
        self._stopping.typed(injection)
        self.mail.typed(injection, outcome)

    # What the person is told.

    def tell_person(self, text: str, *, level: Level = "info", source: str = "") -> None:
        """Show one line to the person, now if that spoils no screen, and keep it in the journal.

        source: the handler or rule whose words they are, with their `level`; relay's own have none.
        """
        said = f"{source}: {text}" if source else text
        self.journal.write("notice", text=said, level=level, source=source or None)
        self.terminals.tell(said if level == "info" else f"{level}: {said}")

    def _on_held(self, text: str) -> None:
        """Messages are held: nobody but the person lets them go on."""
        self.turns.held()
        self.tell_person(text)
        title = f"{self.claim.name}'s messages are held"
        self.workers.spawn(self._notify(title, text), "a notification")

    def _journal_failed(self, text: str) -> None:
        """Not with `tell_person`, which writes into the journal."""
        _log.error(text)
        self.terminals.tell(text)
