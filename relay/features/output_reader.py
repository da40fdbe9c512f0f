"""Reads what the forward thread recorded, and publishes what happened and what the agent said.

    Forwarder.tee ─┬→ OutputRead, KeysTyped, TerminalResized, the ends, the losses
                   └→ OutputPipeline ─→ AgentSaid, DirectiveRead

It runs on the session's event loop, in slices, so that a flood of output delays nothing else for long. While
the agent's words come from its own record, the output is read for the screen only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from relay.directives.events import SourceChosen, said
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, Reading
from relay.eventbus import Event, EventBus, answers, handles
from relay.lifecycle import Describe, LastWords, SessionBegan, SessionClosed
from relay.place import TERMINAL
from relay.readers.auto import AutoReader
from relay.state.agent_terminal import AgentTerminal
from relay.terminal import forward
from relay.terminal.events import (
    DetachRequested,
    InputEnded,
    KeysHeldBack,
    KeysTyped,
    Notify,
    OutputHeld,
    OutputQuiet,
    OutputRead,
    OutputSettled,
    OutputSkipped,
    ReadingFailed,
    ScreenChanged,
    TerminalLost,
    TerminalResized,
)
from relay.terminal.forward import Forwarder

_log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of work after which the event loop gets its turn."""

TICK = 0.02
"""Seconds between two looks at a screen that has just changed: about a frame."""

PIECE = 1 << 18
"""The most bytes of accumulated output that the reader gets at once."""

FLOOD, BREATH = 1 << 14, 0.01
"""Bytes read at once that count as a flood, and the seconds in which the next piece may then accumulate.

Each small piece costs the forward thread a wait for the interpreter; large ones are read at a gigabyte
a second.
"""

WAITING_CHECKS = (0.03, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds after the last output at which to check if the program waits for input at an unfinished line."""

_SIGNALS: dict[int, type[Event]] = {
    forward.DETACH: DetachRequested,
    forward.HELD: OutputHeld,
    forward.SETTLED: OutputSettled,
    forward.RESERVED: KeysHeldBack,
    forward.INPUT_OVER: InputEnded,
}
"""The events for the tee's entries without a value."""


class OutputReader:
    """Feeds the entries of the tee to the reader.

    prefix: the character that begins a directive.
    source: the first source of the agent's words (relay.place); None for no source.
    """

    def __init__(
        self,
        bus: EventBus,
        forwarder: Forwarder,
        terminal: AgentTerminal,
        reader: AutoReader,
        grammar: Grammar,
        *,
        prefix: str,
        source: str | None,
    ) -> None:
        self._bus = bus
        self._forwarder = forwarder
        self._terminal = terminal
        self._reader = reader
        self._pipeline = OutputPipeline(reader, grammar)
        self._pipeline.muted = source != TERMINAL
        self._prefix = prefix
        self._ticking: asyncio.TimerHandle | None = None
        self._checks: list[asyncio.TimerHandle] = []
        self._scheduled = False
        self._failed = False
        self._ended = asyncio.Event()

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if self._reader.unavailable is not None:
            only = f"{self._reader.unavailable} Only what the agent prints as lines is read."
            self._bus.publish(Notify(only))
        self._bus.loop.add_reader(self._forwarder.tee.wake, self._woken)
        self._woken()

    @answers(LastWords)
    async def read_to_the_end(self, _: LastWords, __: object) -> None:
        await self._ended.wait()

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        self._bus.loop.remove_reader(self._forwarder.tee.wake)
        for timer in (self._ticking, *self._checks):
            if timer is not None:
                timer.cancel()

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"reader": self._reader.kind}

    @handles(SourceChosen)
    def choose(self, event: SourceChosen) -> None:
        """Change the source of the agent's words; what was drawn before the change does not count."""
        self._pipeline.muted = True
        self._read(self._pipeline.waiting)
        self._pipeline.muted = event.source != TERMINAL

    def _woken(self) -> None:
        if self._scheduled:
            self._forwarder.tee.disarm()
        else:
            self._empty()

    def _empty(self) -> None:
        self._scheduled = False
        self._forwarder.tee.rearm()
        tee, started, offset = self._forwarder.tee, time.monotonic(), self._terminal.output_offset()
        while tee:
            self._take(*tee.popleft())
            if tee and time.monotonic() - started > SLICE:
                self._empty_later(0)
                break
        else:
            if self._terminal.output_offset() - offset >= FLOOD and not self._ended.is_set():
                self._empty_later(BREATH)
        if self._terminal.output_offset() > offset and not self._ended.is_set():
            self._bus.publish(ScreenChanged())
            self._schedule()

    def _empty_later(self, delay: float) -> None:
        self._scheduled = True
        self._bus.loop.call_later(delay, self._empty)

    def _take(self, kind: int, value: object) -> None:
        now, publish = time.monotonic(), self._bus.publish
        match kind, value:
            case forward.OUTPUT, bytes(data):
                self._output(self._joined(data), now)
            case ((forward.TYPED | forward.WRITTEN), bytes(data)):
                tty = self._terminal.tty()
                self._pipeline.typed(data, now, echo=tty.echo or not tty.canonical)
                if kind == forward.TYPED:
                    publish(KeysTyped(data))
            case forward.RESIZED, (int(columns), int(rows)):
                reading = self._read(lambda now: self._pipeline.resized(columns, rows, now))
                publish(TerminalResized(columns, rows))
                self._publish(reading)
            case forward.GAP, int(size):
                self._terminal.note_loss(size)
                reading = self._read(lambda now: self._pipeline.gap(size, now))
                publish(OutputSkipped(size))
                self._publish(reading)
            case forward.LOST, str(what):
                publish(TerminalLost(what))
            case forward.ENDED, _:
                self._ended.set()
                self._publish(self._read(self._pipeline.close))
            case _ if signal := _SIGNALS.get(kind):
                publish(signal())

    def _output(self, data: bytes, now: float) -> None:
        self._forwarder.tee.consumed += len(data)
        place = self._terminal.note_output(len(data))
        reading = self._read(lambda now: self._pipeline.output(data, now))
        self._bus.publish(OutputRead(data, place))  # the screen shows it by now
        self._publish(reading)

    def _joined(self, data: bytes) -> bytes:
        """Return `data` and the output that follows it: large pieces are read faster."""
        tee, pieces, size = self._forwarder.tee, [data], len(data)
        while tee and tee[0][0] == forward.OUTPUT and size < PIECE:
            piece = tee.popleft()[1]
            assert isinstance(piece, bytes)
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _read(self, step: Callable[[float], Reading]) -> Reading:
        """Take one step of the reader; after a fault in it, the session goes on without reading."""
        if self._failed:
            return Reading()
        reading = Reading()
        try:
            reading = step(time.monotonic())
            failed = self._reader.failed
        except Exception as error:  # noqa: BLE001 (logged with its traceback, published once, contained)
            _log.exception("the reader failed")
            failed = f"{type(error).__name__}: {error}"
        if failed is not None:
            self._failed = True
            self._bus.publish(ReadingFailed(failed))
        return reading

    def _publish(self, reading: Reading) -> None:
        for event in said(reading.lines, reading.directives, self._prefix):
            self._bus.publish(event)

    def _schedule(self) -> None:
        self._tick_later()
        for timer in self._checks:
            timer.cancel()
        self._checks = [self._bus.loop.call_later(delay, self._check) for delay in WAITING_CHECKS]

    def _tick_later(self) -> None:
        if self._ticking is None and self._pipeline.settling and not self._ended.is_set():
            self._ticking = self._bus.loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        self._publish(self._read(self._pipeline.tick))
        self._tick_later()

    def _check(self) -> None:
        """Complete the line that the agent has written so far if the agent waits for input."""
        self._bus.publish(OutputQuiet())
        if self._ended.is_set() or self._forwarder.tee or not self._terminal.waits_for_input():
            return
        for timer in self._checks:
            timer.cancel()
        self._checks = []
        self._publish(self._read(self._pipeline.waiting))
