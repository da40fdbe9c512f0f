"""What the agent's terminal tells, and what is done about it: the pump's listener.

OutputPump ─┬→ lines ──────→ Turns, the event `output`
            ├→ directives ─→ Runner, one after another for each kind ─→ results
            ├→ output, typing, quiet ─→ Injector, AgentState
            ├→ output, sizes ─→ Recorder
            └→ terminals that come and go ─→ Terminals
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from relay.directives.directive import Directive
from relay.directives.grammar import unescape
from relay.hooks import events
from relay.hooks.context import MAX_OUTPUT, Context
from relay.hooks.runner import Runner
from relay.injection.queue import Injector
from relay.readers.line import Line
from relay.session.giving import Giving
from relay.session.mail import Mail
from relay.session.pump import OutputPump
from relay.session.recorder import Recorder
from relay.session.setup import Setup
from relay.session.terminals import Terminals
from relay.session.turns import Turns
from relay.session.work import Workers
from relay.state import process_wait
from relay.state.evidence import Evidence, reported
from relay.state.process_wait import Wait
from relay.state.readiness import SCREEN_QUIET, Readiness
from relay.state.states import AgentState
from relay.storage.journal import Journal, preview
from relay.terminal.forward import Forwarder
from relay.terminal.pty import Pty
from relay.terminal.status import StatusRecords

ORDERED_WITH = {"broadcast": "relay"}
"""Namespaces whose directives keep one order: both send messages to the same receivers."""

LONG_QUIET = 2.0
"""Seconds of quiet after which an agent waits for input, where the system does not tell for sure."""


class Subject(Protocol):
    """The session, as far as what is heard needs it."""

    setup: Setup
    pty: Pty
    forwarder: Forwarder
    pump: OutputPump
    runner: Runner
    context: Context
    injector: Injector
    state: AgentState
    turns: Turns
    terminals: Terminals
    mail: Mail
    workers: Workers
    journal: Journal
    giving: Giving
    recorder: Recorder
    started: asyncio.Event

    async def fired(self, event: events.Event) -> None: ...
    def tell_person(self, text: str) -> None: ...


class Hearing:
    """Listens to the pump of one session (relay.session.pump.Listener).

    lines: what the agent said last. over: its output has come to its end. records: its status reports.
    """

    def __init__(self, session: Subject) -> None:
        self.lines: deque[str] = deque(maxlen=MAX_OUTPUT)
        self.over = asyncio.Event()
        self.records = StatusRecords()
        self._session = session
        self._unheard: deque[str] = deque(maxlen=MAX_OUTPUT)

    def evidence(self) -> Evidence | None:
        """What the agent's status reports say of its state."""
        return reported(self.records.root(), time.monotonic())

    def on_lines(self, lines: list[Line]) -> None:
        session = self._session
        said = [unescape(line.text, session.setup.prefix) for line in lines]
        self.lines.extend(said)
        session.turns.said(said)
        if session.runner.registry.for_event(events.Output):
            # A handler that is slower than the agent gets more lines at once, not a longer queue.
            if not self._unheard:
                session.workers.queue(events.Output.name, self._tell_output())
            self._unheard.extend(said)

    async def _tell_output(self) -> None:
        said = "\n".join(self._unheard)
        self._unheard.clear()
        await self._session.fired(events.Output(said))

    def on_directives(self, directives: list[Directive]) -> None:
        for directive in directives:
            kind = ORDERED_WITH.get(directive.namespace, directive.namespace)
            self._session.workers.queue(f"@{kind}", self._act_on(directive))

    async def _act_on(self, directive: Directive) -> None:
        session = self._session
        await session.started.wait()
        session.journal.write(
            "directive",
            namespace=directive.namespace,
            target=directive.target,
            body=preview(directive.body),
        )
        outcome = await session.runner.dispatch(directive, session.context)
        for result in outcome.results:
            session.giving.apply(result, source=f"@{directive.namespace}:{directive.target}")
        for error in outcome.errors:
            session.journal.write("directive_failed", namespace=directive.namespace, error=error)
            session.giving.notice(error)

    def on_output(self, data: bytes) -> None:
        session = self._session
        session.state.suspended = False
        session.injector.output(data)
        session.recorder.output(data)
        if self.records.feed(data, time.monotonic()):
            session.state.look()

    def on_typed(self, data: bytes) -> None:
        session = self._session
        session.injector.person(data)
        # What answers a dialog, such as which session to resume, submits nothing.
        if (b"\r" in data or b"\n" in data) and session.state.name != Readiness.PROMPTING:
            session.turns.submitted(by_person=True)
            session.mail.person_spoke()

    def on_resized(self, columns: int, rows: int) -> None:
        self._session.recorder.resized(columns, rows)

    def on_gap(self, size: int) -> None:
        self._session.recorder.gap(size)

    def on_screen_changed(self) -> None:
        self._session.terminals.screen_changed()

    def on_end(self) -> None:
        self.over.set()

    def on_lost(self, what: str) -> None:
        self._session.journal.write("terminal_lost", what=what)
        self._session.terminals.lost(what)

    def on_reader_failed(self, why: str) -> None:
        self._session.tell_person(
            f"reading the agent's output failed ({why}); it runs on, its directives are not seen."
        )

    def on_quiet(self) -> None:
        self._session.state.look()

    def on_detach(self) -> None:
        self._session.terminals.detach()

    def on_held(self) -> None:
        self._session.terminals.held()

    def on_settled(self) -> None:
        self._session.terminals.settled()

    def on_input_over(self) -> None:
        session = self._session
        session.workers.spawn(session.terminals.end_input(self.waits_for_input), "the end of the input")

    def waits_for_input(self) -> bool:
        """Whether the agent waits for input, as far as that is known; quiet alone is weak evidence."""
        session = self._session
        if session.forwarder.output_pending():
            return False
        quiet = time.monotonic() - session.pump.last_output
        looked = process_wait.look(session.pty.foreground())
        match looked.wait:
            case Wait.READ:
                return looked.alone or quiet >= LONG_QUIET
            case Wait.POLL:
                return quiet >= SCREEN_QUIET
            case Wait.UNKNOWN:
                return quiet >= LONG_QUIET
            case _:
                return False
