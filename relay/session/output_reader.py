"""Reads the shim's ring, and publishes what happened and what the agent said.

    ring ─┬→ OutputRead, KeysTyped, TerminalResized, the ends, the losses
          └→ OutputPipeline ─→ AgentSaid, DirectiveRead; EarlierWords

It runs on the session's event loop, in slices: a flood of output must not delay anything else for long. While
the agent's words come from its own record, the output only feeds the screen, or is kept until the record is
known to have them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from relay.agents.events import RecordLost, TurnRead, TurnShown
from relay.directives.checkpoint import Checkpoint, Checkpoints
from relay.directives.events import AgentSaid, DirectiveRead, EarlierWords, SourceChosen
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, Reading
from relay.directives.screen_words import ScreenWords
from relay.eventbus import Event, EventBus, answers, handles
from relay.lifecycle import Describe, LastWords, SessionBegan, SessionClosed
from relay.place import TERMINAL
from relay.readers.auto import AutoReader
from relay.shim import ring
from relay.shim.ring_reader import Record
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import FirstTurnBegan, PromptSubmitted, TurnDrawn
from relay.terminal.events import (
    AgentExited,
    AgentResumed,
    AgentSuspended,
    AttachmentChanged,
    DetachRequested,
    KeysHeldBack,
    KeysTyped,
    KeysWritten,
    OutputEnded,
    OutputHeld,
    OutputQuiet,
    OutputRead,
    OutputRestored,
    OutputSkipped,
    ReadingFailed,
    ScreenChanged,
    TerminalLost,
    TerminalResized,
)
from relay.terminal.shim_link import ShimLink

_log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of work after which the event loop gets its turn."""

TICK = 0.02
"""Seconds between two looks at a screen that has just changed: about a frame."""

PIECE = 1 << 18
"""Maximum bytes of accumulated output that the reader gets at once."""

FLOOD, BREATH = 1 << 14, 0.01
"""Bytes read at once that count as a flood, and the seconds for which the next piece may then accumulate.

Large pieces are read at a gigabyte a second, small ones more slowly.
"""

STREAM, LULL = 0.04, 0.25
"""Seconds between two frames of a program that keeps drawing, and for which its next frames then accumulate.

Nobody waits for them: who looks at the terminal has them read first (`AgentTerminal.catch_up`).
"""

WAITING_CHECKS = (0.03, 0.07, 0.15, 0.25, 0.5, 1.0)
"""Seconds from the last output to the first check if the program waits for input at an unfinished line, and
from each check to the next."""

_SIGNALS: dict[int, type[Event]] = {
    ring.DETACH: DetachRequested,
    ring.SETTLED: AgentSuspended,
    ring.RESERVED: KeysHeldBack,
    ring.RESUMED: AgentResumed,
}
"""The events for records without data."""

_KEPT = frozenset({AgentSuspended, AgentResumed})
"""Signals that describe the current state; the others were requests to the session of that time."""


class _Later:
    """The next reading of the ring, if it is scheduled.

    lull:  only because the program keeps drawing.
    gap:   seconds between the last two pieces of output.
    shown: bytes of output at the last ScreenChanged.
    """

    def __init__(self) -> None:
        self.timer: asyncio.TimerHandle | None = None
        self.lull = False
        self.gap = math.inf
        self.shown = 0

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer, self.lull = None, False


class OutputReader:
    """Feeds the records of the ring to the reader.

    source: the first source of the agent's words (relay.place); None for no source.

    checkpoints: save the screen for the next session once the ring no longer holds all of the output.
    """

    def __init__(
        self,
        bus: EventBus,
        shim: ShimLink,
        terminal: AgentTerminal,
        reader: AutoReader,
        grammar: Grammar,
        *,
        words: ScreenWords,
        source: str | None,
        checkpoints: Checkpoints,
    ) -> None:
        self._bus = bus
        self._shim = shim
        self._terminal = terminal
        self._reader = reader
        self._pipeline = OutputPipeline(reader, grammar)
        self._pipeline.muted = source != TERMINAL
        self._words = words
        self._ticking: asyncio.TimerHandle | None = None
        self._checking: asyncio.TimerHandle | None = None
        self._later = _Later()
        self._failed = False
        self._checkpoints = checkpoints
        self._ended = asyncio.Event()
        terminal.catch_up = self._catch_up

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if self._bus.restoring:
            self._restore()
        self._bus.loop.add_reader(self._shim.wake, self._woken)
        self._bus.loop.call_soon(self._woken)  # within this delivery, others would get its events too late

    def _restore(self) -> None:
        """Continue from a checkpoint if the ring no longer holds all of the output."""
        records = self._shim.ring
        self._checkpoints.expect(records.last_wait)
        if skip := self._shim.hello.skip:
            records.skip_to(skip, records.joined.offset)
        elif records.tail and (saved := self._checkpoints.load(records.tail)):
            self._pipeline.restore((saved.columns, saved.rows), saved.screen.encode("latin-1"), saved.state)
            records.skip_to(saved.position, saved.offset)
            self._terminal.note_output(saved.offset, time.monotonic())

    def _save(self) -> None:
        """Write a checkpoint, at intervals, once the ring is about to lose the beginning of the output."""
        records, screen = self._shim.ring, self._reader.screen
        at = records.done_up_to
        if screen is None or not screen.ground or self._reader.held:
            return
        if at < records.size // 2 or not self._checkpoints.due(at):
            return
        offset, drawn = self._terminal.output_offset(), screen.repaint().decode("latin-1")
        size = (screen.columns, screen.height)
        self._checkpoints.save(Checkpoint(at, offset, *size, drawn, self._pipeline.state()))

    @answers(LastWords)
    async def read_to_the_end(self, _: LastWords, __: object) -> None:
        await self._ended.wait()

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        self._bus.loop.remove_reader(self._shim.wake)
        if self._ended.is_set():
            self._checkpoints.remove()
        for timer in (self._ticking, self._checking, self._later):
            if timer is not None:
                timer.cancel()

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"reader": self._reader.kind}

    @handles(SourceChosen)
    def choose(self, event: SourceChosen) -> None:
        """Change the source of the agent's words; earlier output does not count, unless it was kept."""
        if self._words.keeps and event.source == TERMINAL:
            for kept in self._words.release():
                self._bus.publish(kept)
            return
        self._pipeline.muted = True
        self._read(lambda: self._pipeline.waiting(time.monotonic()))
        self._pipeline.muted = event.source != TERMINAL and not event.kept
        if event.kept:
            self._words.keep()

    @handles(FirstTurnBegan)
    def first_turn(self, _: FirstTurnBegan) -> None:
        if not self._bus.restoring:
            self._checkpoints.first_turn(self._shim.ring.done_up_to)

    @handles(TurnShown)
    def turn_shown(self, event: TurnShown) -> None:
        if event.worked:
            if not self._bus.restoring:
                self._complete()  # what it has drawn belongs to this turn
            self._words.turn()

    @handles(TurnRead)
    def confirm(self, event: TurnRead) -> None:
        self._words.confirm(event.up_to, silent=event.silent, cut=event.cut)

    @handles(TurnDrawn)
    def turn_drawn(self, _: TurnDrawn) -> None:
        if not self._bus.restoring:
            self._checkpoints.turn_drawn(self._shim.ring.done_up_to)
        self._pipeline.turn_drawn()
        if not self._words.keeps:
            self._words.turn()

    @handles(PromptSubmitted)
    def submitted(self, _: PromptSubmitted) -> None:
        self._pipeline.submitted()

    @handles(AgentSaid, DirectiveRead, EarlierWords)
    def recorded(self, event: Event) -> None:
        self._words.note(event)

    @handles(RecordLost)
    def lost(self, event: RecordLost) -> None:
        if event.resumes is not None:
            self._words.resume(event.resumes)
        else:
            self._words.lose(event.why, self._terminal.output_offset())

    def _woken(self) -> None:
        if self._later.timer is not None and not self._later.lull:
            self._shim.disarm()
        else:
            self._empty()

    def _empty(self) -> None:
        self._later.cancel()
        self._shim.arm()
        reader, started, offset = self._shim.ring, time.monotonic(), self._terminal.output_offset()
        while (record := reader.read()) is not None:
            self._repeat(record.position)
            if self._bus.restoring and record.position >= reader.joined.resumes:
                self._restored()
            self._take(record)
            if time.monotonic() - started > SLICE and reader.pending:
                self._empty_later(0)
                break
        else:
            self._repeat(reader.head)
            if self._bus.restoring:
                self._restored()
            read = self._terminal.output_offset() - offset
            if read >= FLOOD and not self._ended.is_set():
                self._empty_later(BREATH)
            elif read and self._may_wait():
                self._empty_later(LULL, lull=True)
                reader.arm(output=False)
        self._save()
        if self._terminal.output_offset() > self._later.shown and not self._ended.is_set():
            self._later.shown = self._terminal.output_offset()
            self._bus.publish(ScreenChanged())
            self._check_later()
        self._tick_later()

    def _may_wait(self) -> bool:
        """Return True if nobody needs the next output at once: frames of a program that keeps drawing."""
        draws = self._later.gap < STREAM and self._reader.draws_no_directive and not self._ended.is_set()
        return draws and not self._bus.restoring and time.monotonic() >= self._terminal.hurried_until

    def _catch_up(self) -> None:
        """Read the output that waits, up to the next record of another kind."""
        if self._later.lull:
            self._later.lull = False  # those who hear of a record look at the screen after it
            while (record := self._shim.ring.read_if(ring.OUTPUT)) is not None:
                self._take(record)
            self._later.lull = True

    def _restored(self) -> None:
        """End restoring: an earlier session has read everything so far."""
        self._terminal.restored()
        self._bus.publish(OutputRestored())
        self._bus.publish(ScreenChanged())
        self._check_later()

    def _repeat(self, position: int) -> None:
        """Repeat what an earlier session saw up to `position` of the ring: waits, and turns."""
        for sure in self._checkpoints.waits_until(position):
            self._publish(self._read(partial(self._pipeline.waiting, self._pipeline.now, sure=sure)))
        if self._checkpoints.begins_by(position):
            self._bus.publish(FirstTurnBegan())
        if self._checkpoints.turn_ends_by(position):
            self._bus.publish(TurnDrawn())

    def _empty_later(self, delay: float, *, lull: bool = False) -> None:
        self._later.timer, self._later.lull = self._bus.loop.call_later(delay, self._empty), lull

    def _take(self, record: Record) -> None:
        """Process one record. Until that is done, the shim does not count the record as read."""
        self._shim.ring.begin(record)
        if lost := self._shim.ring.lost:
            reading = self._read(lambda: self._pipeline.gap(lost, record.time))
            missed = record.offset - self._shim.ring.joined.offset  # an earlier session has read the rest
            if record.kind == ring.OUTPUT:
                missed -= len(record.data)
            if missed > 0:
                self._bus.publish(OutputSkipped(min(lost, missed)))
            self._publish(reading)
        self._terminal.note_position(record.position)
        now, publish = record.time, self._bus.publish
        self._publish(self._read(lambda: self._pipeline.catch_up(now)))
        asked_of_another = record.position < self._shim.ring.joined.head
        match record.kind:
            case ring.OUTPUT:
                record = self._output(record)
            case ring.TYPED | ring.WRITTEN:
                # Text that has settled by now is not an echo of these keys.
                self._publish(self._read(lambda: self._pipeline.tick(now)))
                self._pipeline.typed(record.data, now)
                self._terminal.hurry()
                event = KeysTyped if record.kind == ring.TYPED else KeysWritten
                publish(event(record.data, record.position))
            case ring.ECHOES:
                self._pipeline.echoes = record.data != b""
            case ring.RESIZED:
                columns, rows = _size(record.data)
                reading = self._read(lambda: self._pipeline.resized(columns, rows, now))
                publish(TerminalResized(columns, rows))
                self._publish(reading)
            case ring.ATTACHED:
                self._terminal.note_attached(attached=bool(record.data), watched=record.data == b"watched")
                publish(AttachmentChanged(record.data == b"watched"))
            case ring.HELD:
                if not asked_of_another:
                    id, blank = record.data.split()
                    publish(OutputHeld(int(id), blank == b"1"))
            case ring.LOST:
                publish(TerminalLost(record.data.decode()))
            case ring.EXITED:
                publish(AgentExited(int(record.data)))
            case ring.ENDED:
                self._shim.state.over = True
                self._shim.pty.close()
                self._publish(self._read(lambda: self._pipeline.close(now)))
                self._ended.set()
                publish(OutputEnded())
            case _ if signal := _SIGNALS.get(record.kind):
                if not asked_of_another or signal in _KEPT:
                    publish(signal())
        self._shim.ring.done(record)

    def _output(self, record: Record) -> Record:
        """Read `record` and the output that follows, as large pieces are faster. Return the last record."""
        self._publish(self._read(lambda: self._pipeline.tick(record.time)))  # else a look would end the burst
        burst, until = self._pipeline.burst(record.data, record.time), self._checkpoints.next_expected
        if self._bus.restoring:
            until = min(until, self._shim.ring.joined.resumes)

        def joins(record: Record) -> bool:
            return record.position < until and burst.takes(record.data, record.time)

        records = [record, *self._shim.ring.read_output(record, PIECE, joins)]
        data, last = b"".join(each.data for each in records), records[-1]
        self._later.gap = record.time - self._terminal.last_output()
        place = self._terminal.note_output(last.offset, last.time)
        reading = self._read(lambda: self._pipeline.output(data, last.time, burst.begun))
        self._terminal.remember(data)
        self._bus.publish(OutputRead(data, place, records[0].position))  # the screen shows it by now
        self._publish(reading)
        return last

    def _read(self, step: Callable[[], Reading]) -> Reading:
        """Run one step of the reader; after a fault in it, the session continues without reading."""
        if self._failed:
            return Reading()
        reading = Reading()
        try:
            reading = step()
            failed = self._reader.failed
        except Exception as error:  # noqa: BLE001 (logged with its traceback, published once, contained)
            _log.exception("the reader failed")
            failed = f"{type(error).__name__}: {error}"
        if failed is not None:
            self._failed = True
            self._bus.publish(ReadingFailed(failed))
        return reading

    def _publish(self, reading: Reading) -> None:
        for event in self._words.take(reading):
            self._bus.publish(event)

    def _check_later(self, pauses: Sequence[float] = WAITING_CHECKS) -> None:
        if self._checking is not None:
            self._checking.cancel()
        self._checking = self._bus.loop.call_later(pauses[0], self._check, pauses[1:]) if pauses else None

    def _tick_later(self) -> None:
        waits = self._later.lull or self._ticking is not None  # reading what comes next includes ticks
        if not waits and self._pipeline.settling and not self._ended.is_set():
            self._ticking = self._bus.loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        self._publish(self._read(lambda: self._pipeline.tick(time.monotonic())))
        self._tick_later()

    def _check(self, pauses: Sequence[float]) -> None:
        """Look at an agent that draws nothing, and at its last line."""
        self._check_later(pauses)
        if self._bus.restoring or (self._later.lull and self._shim.ring.pending):
            return  # the screen shows the past
        self._bus.publish(OutputQuiet())
        if self._shim.ring.pending and self._later.timer is None:
            self._empty()  # the wake-up may have been lost: ARMED and HEAD are seen in either order
            return
        self._complete()

    def _complete(self) -> None:
        """Take the agent's unfinished line as complete if the agent waits for input."""
        if self._ended.is_set() or self._shim.ring.pending or not self._terminal.waits_for_input():
            return
        if sure := self._terminal.waits_for_input(sure=True):
            self._check_later(())
        self._publish(self._read(lambda: self._pipeline.waiting(time.monotonic(), sure=sure)))
        position = self._shim.ring.done_up_to
        self._shim.ring.note_wait(position, sure)
        if self._pipeline.decisive:
            self._checkpoints.waited(position, sure)


def _size(data: bytes) -> tuple[int, int]:
    """Return the columns and rows in a resize record."""
    columns, rows = data.split()
    return int(columns), int(rows)
