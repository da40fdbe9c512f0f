"""The pump: takes what the forward thread recorded, and turns it into lines and directives.

    Forwarder.tee ──→ Reader ──→ lines ──→ Grammar ──→ directives
                └──→ the person's typing, the ends, the losses

It runs on the session's event loop, in slices, so that a flood of output delays nothing else for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.readers.auto import AutoReader
from relay.readers.line import Line
from relay.terminal import forward
from relay.terminal.forward import Forwarder
from relay.terminal.pty import Pty, flags

SLICE = 0.004
"""Seconds of work after which the event loop gets its turn."""

TICK = 0.02
"""Seconds between two looks at a screen that has just changed (design, section 3: 15 to 20 ms)."""

TICKS_UNTIL = 0.5
"""Seconds after the last output until which a reader may still settle lines by time."""

WAITING_CHECKS = (0.03, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds after the last output at which an unfinished line is asked for: does the program wait for input?"""


class Listener(Protocol):
    """Who is told, on the event loop's thread."""

    def on_lines(self, lines: list[Line]) -> None: ...
    def on_directives(self, directives: list[Directive]) -> None: ...
    def on_output(self, data: bytes) -> None: ...
    def on_typed(self, data: bytes) -> None: ...
    def on_screen_changed(self) -> None: ...
    def on_end(self) -> None: ...
    def on_lost(self, what: str) -> None: ...
    def on_detach(self) -> None: ...
    def waits_for_input(self) -> bool: ...


class OutputPump:
    """Empties the tee whenever there is something in it.

    last_output: monotonic seconds of the agent's last byte; offset: how many bytes it has written.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        pty: Pty,
        reader: AutoReader,
        grammar: Grammar,
        listener: Listener,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last_output = clock()
        self.offset = 0
        self._forwarder = forwarder
        self._pty = pty
        self._reader = reader
        self._grammar = grammar
        self._listener = listener
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ticking: asyncio.TimerHandle | None = None
        self._checks: list[asyncio.TimerHandle] = []
        self._scheduled = False
        self._ended = False

    def start(self) -> None:
        self._loop.add_reader(self._forwarder.wake, self._woken)
        self._woken()

    def stop(self) -> None:
        self._loop.remove_reader(self._forwarder.wake)
        for timer in (self._ticking, *self._checks):
            if timer is not None:
                timer.cancel()

    def _woken(self) -> None:
        self._forwarder.rearm()
        if not self._scheduled:
            self._pump()

    def _pump(self) -> None:
        self._scheduled = False
        tee = self._forwarder.tee
        started = self._clock()
        said_something = False
        while tee:
            kind, value = tee.popleft()
            now = self._clock()
            match kind, value:
                case forward.OUTPUT, bytes(data):
                    said_something = True
                    self._forwarder.consumed += len(data)
                    self.offset += len(data)
                    self.last_output = now
                    self._said(self._reader.feed(data, now))
                    self._listener.on_output(data)
                case ((forward.TYPED | forward.WRITTEN), bytes(data)):
                    canonical, echo, _ = flags(self._pty.attributes())
                    self._reader.typed(data, now, echo=echo or not canonical)
                    if kind == forward.TYPED:
                        self._listener.on_typed(data)
                case forward.RESIZED, (int(columns), int(rows)):
                    self._said(self._reader.resize(columns, rows, now))
                case forward.GAP, _:
                    self._said(self._reader.gap(now))
                case forward.LOST, str(what):
                    self._listener.on_lost(what)
                case forward.DETACH, _:
                    self._listener.on_detach()
                case forward.ENDED, _:
                    self._end(now)
                    return
            if now - started > SLICE and tee:
                self._scheduled = True
                self._loop.call_soon(self._pump)
                break
        if said_something:
            self._listener.on_screen_changed()
            self._schedule()

    def _schedule(self) -> None:
        if self._ticking is None:
            self._ticking = self._loop.call_later(TICK, self._tick)
        for timer in self._checks:
            timer.cancel()
        self._checks = [self._loop.call_later(delay, self._check) for delay in WAITING_CHECKS]

    def _tick(self) -> None:
        self._ticking = None
        now = self._clock()
        self._said(self._reader.tick(now))
        if now - self.last_output < TICKS_UNTIL and not self._ended:
            self._ticking = self._loop.call_later(TICK, self._tick)

    def _check(self) -> None:
        if self._ended or self._forwarder.tee or not self._listener.waits_for_input():
            return
        for timer in self._checks:
            timer.cancel()
        self._checks = []
        now = self._clock()
        self._said(self._reader.waiting(now))
        self._directives(self._grammar.turn_end(now))

    def _said(self, lines: list[Line]) -> None:
        if lines:
            self._listener.on_lines(lines)
            for line in lines:
                self._directives(self._grammar.line(line))

    def _directives(self, directives: list[Directive]) -> None:
        if directives:
            self._listener.on_directives(directives)

    def _end(self, now: float) -> None:
        self._ended = True
        self._said(self._reader.close(now))
        self._directives(self._grammar.turn_end(now))
        self._listener.on_end()
