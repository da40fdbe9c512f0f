"""The pump: takes what the forward thread recorded, and turns it into lines and directives.

    Forwarder.tee ──→ Reader ──→ lines ──→ Grammar ──→ directives
                └──→ the person's typing, the ends, the losses

It runs on the session's event loop, in slices, so that a flood of output delays nothing else for long.
"""

from __future__ import annotations

import asyncio
import logging
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

_log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of work after which the event loop gets its turn."""

TICK = 0.02
"""Seconds between two looks at a screen that has just changed (design, section 3: 15 to 20 ms)."""

PIECE = 1 << 18
"""Bytes after which output that has piled up is handed to the reader."""

FLOOD, BREATH = 1 << 14, 0.01
"""Bytes taken at once from which on it is a flood, and seconds in which the next piece may pile up.

Each small piece costs the forward thread a wait for the interpreter; large ones are read at a gigabyte
a second.
"""

WAITING_CHECKS = (0.03, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds after the last output at which an unfinished line is asked for: does the program wait for input?"""


class Listener(Protocol):
    """Who is told, on the event loop's thread."""

    def on_lines(self, lines: list[Line]) -> None: ...
    def on_directives(self, directives: list[Directive]) -> None: ...
    def on_output(self, data: bytes) -> None: ...
    def on_typed(self, data: bytes) -> None: ...
    def on_resized(self, columns: int, rows: int) -> None: ...
    def on_gap(self, size: int) -> None: ...
    def on_screen_changed(self) -> None: ...
    def on_end(self) -> None: ...
    def on_lost(self, what: str) -> None: ...
    def on_detach(self) -> None: ...
    def on_held(self) -> None: ...
    def on_settled(self) -> None: ...
    def on_input_over(self) -> None: ...
    def on_quiet(self) -> None: ...
    def on_reader_failed(self, why: str) -> None: ...
    def waits_for_input(self) -> bool: ...


class OutputPump:
    """Empties the tee whenever there is something in it.

    last_output: monotonic seconds of the agent's last byte; offset: how many bytes it has written.
    deaf: what it says is heard elsewhere, so lines and directives that its screen shows are not told.
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
        self.deaf = False
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
        self._said_something = False
        self._ended = False
        self._failed = False

    def start(self) -> None:
        self._loop.add_reader(self._forwarder.wake, self._woken)
        self._woken()

    def stop(self) -> None:
        self._loop.remove_reader(self._forwarder.wake)
        for timer in (self._ticking, *self._checks):
            if timer is not None:
                timer.cancel()

    def settle(self) -> None:
        """Take what is drawn by now for said."""
        now = self._clock()
        self._read(lambda: self._reader.waiting(now))
        self._directives(self._grammar.turn_end(now))

    def _woken(self) -> None:
        if self._scheduled:
            self._forwarder.disarm()
        else:
            self._pump()

    def _pump(self) -> None:
        self._scheduled = False
        self._forwarder.rearm()
        tee = self._forwarder.tee
        started, offset = self._clock(), self.offset
        self._said_something = False
        while tee:
            self._take(*tee.popleft())
            if tee and self._clock() - started > SLICE:
                self._pump_later(0)
                break
        else:
            if self.offset - offset >= FLOOD and not self._ended:
                self._pump_later(BREATH)
        if self._said_something and not self._ended:
            self._listener.on_screen_changed()
            self._schedule()

    def _pump_later(self, delay: float) -> None:
        self._scheduled = True
        self._loop.call_later(delay, self._pump)

    def _take(self, kind: int, value: object) -> None:
        now = self._clock()
        match kind, value:
            case forward.OUTPUT, bytes(data):
                data = self._joined(data)
                self._said_something = True
                self._forwarder.consumed += len(data)
                self.offset += len(data)
                self.last_output = now
                self._read(lambda: self._reader.feed(data, now))
                self._listener.on_output(data)
            case ((forward.TYPED | forward.WRITTEN), bytes(data)):
                canonical, echo, _ = flags(self._pty.attributes())
                self._reader.typed(data, now, echo=echo or not canonical)
                if kind == forward.TYPED:
                    self._listener.on_typed(data)
            case forward.RESIZED, (int(columns), int(rows)):
                self._read(lambda: self._reader.resize(columns, rows, now))
                self._listener.on_resized(columns, rows)
            case forward.GAP, int(size):
                self._read(lambda: self._reader.gap(now))
                self._listener.on_gap(size)
            case forward.LOST, str(what):
                self._listener.on_lost(what)
            case forward.DETACH, _:
                self._listener.on_detach()
            case forward.HELD, _:
                self._listener.on_held()
            case forward.SETTLED, _:
                self._listener.on_settled()
            case forward.INPUT_OVER, _:
                self._listener.on_input_over()
            case forward.ENDED, _:
                self._ended = True
                self._read(lambda: self._reader.close(now))
                self._directives(self._grammar.turn_end(now))
                self._listener.on_end()

    def _read(self, step: Callable[[], list[Line]]) -> None:
        """Take one step of the reader; a fault in it must not keep the session from its other work."""
        if self._failed:
            return
        try:
            lines = step()
        except Exception as error:  # noqa: BLE001 (logged with its traceback, said once, contained)
            _log.exception("the reader failed")
            self._failed = True
            self._listener.on_reader_failed(f"{type(error).__name__}: {error}")
        else:
            self._said(lines)
            if self._reader.failed is not None:
                self._failed = True
                self._listener.on_reader_failed(self._reader.failed)

    def _joined(self, data: bytes) -> bytes:
        """`data` and the output that follows it at once: a reader that is behind takes large pieces fast."""
        tee = self._forwarder.tee
        if not tee or tee[0][0] != forward.OUTPUT:
            return data
        pieces, size = [data], len(data)
        while tee and tee[0][0] == forward.OUTPUT and size < PIECE:
            piece = tee.popleft()[1]
            assert isinstance(piece, bytes)
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _schedule(self) -> None:
        if self._ticking is None and self._reader.settling:
            self._ticking = self._loop.call_later(TICK, self._tick)
        for timer in self._checks:
            timer.cancel()
        self._checks = [self._loop.call_later(delay, self._check) for delay in WAITING_CHECKS]

    def _tick(self) -> None:
        self._ticking = None
        now = self._clock()
        self._read(lambda: self._reader.tick(now))
        if self._reader.settling and not self._ended:
            self._ticking = self._loop.call_later(TICK, self._tick)

    def _check(self) -> None:
        self._listener.on_quiet()
        if self._ended or self._forwarder.tee or not self._listener.waits_for_input():
            return
        for timer in self._checks:
            timer.cancel()
        self._checks = []
        self.settle()

    def _said(self, lines: list[Line]) -> None:
        if lines and not self.deaf:
            self._listener.on_lines(lines)
            for line in lines:
                self._directives(self._grammar.line(line))

    def _directives(self, directives: list[Directive]) -> None:
        if directives and not self.deaf:
            self._listener.on_directives(directives)
