"""From an agent's output to its lines and directives, with time as an argument.

    output, typing, sizes, gaps, ticks → AutoReader → lines ─→ Grammar → directives

A session feeds it the terminal's events with their times; `play` feeds it a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from relay.dataclass import dataclass
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar, PassedOver
from relay.readers.auto import AutoReader
from relay.readers.line import Line
from relay.readers.screen import PAUSE
from relay.recording.asciicast import CastEvent, gap_size

TICK = 0.02
"""Seconds between two looks at a screen that has just changed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one step, in order.

    passed_over: the lines that would be directives, but for one thing (Grammar.passed_over).
    left_out:    bytes missing here according to the recording.
    """

    lines: Sequence[Line] = ()
    directives: Sequence[Directive] = ()
    passed_over: Sequence[PassedOver] = ()
    left_out: int = 0

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            [*self.lines, *other.lines],
            [*self.directives, *other.directives],
            [*self.passed_over, *other.passed_over],
        )


class Burst:
    """Pieces of output that give the same result whether read as one or one after the other.

    pause: returns the seconds of silence from which a piece and its neighbour are read separately.
    until: the time from which a piece belongs to the next burst, in seconds.
    begun: when the first piece came, in seconds.
    """

    def __init__(self, pause: Callable[[bytes], float], data: bytes, now: float, until: float) -> None:
        self.begun = self._last = now
        self._until = until
        self._pause_at = pause
        self._pause = pause(data)

    def takes(self, data: bytes, now: float) -> bool:
        """Return True, and count it in, if `data`, which comes next, belongs to the burst."""
        self._pause = min(self._pause, self._pause_at(data))
        if now - self._last >= self._pause or now >= self._until:
            return False
        self._last = now
        return True


class OutputPipeline:
    """Reads the output of one agent.

    quiet:       seconds without output after which the program counts as waiting for input; None: only
                 `waiting` says so.
    now:         time of the last step, in seconds; it never goes back.
    last_output: time of the last byte, in seconds.
    muted:       it keeps reading but finds nothing: another source has the agent's words.
    echoes:      typed text will be drawn.
    decisive:    the last `waiting` has ended a line, a form or a fence, or taught a prompt sign: a later
                 reader of the same output needs to know of it.
    """

    def __init__(self, reader: AutoReader, grammar: Grammar, *, quiet: float | None = None) -> None:
        self.reader = reader
        self.now = self.last_output = 0.0
        self._grammar = grammar
        self._quiet = quiet
        self._in_turn = False  # output has come that no `waiting` has ended
        self.muted = False
        self.echoes = True
        self.decisive = False
        # The screen has shown the end of a turn; its last lines may not have settled.
        self._turn_drawn = False

    def state(self) -> dict[str, Any]:
        """Return the JSON that `restore` needs, besides the screen, to continue from here."""
        return {
            "now": self.now,
            "in_turn": self._in_turn,
            "echoes": self.echoes,
            "reader": self.reader.state(),
            "grammar": self._grammar.state(),
        }

    def restore(self, size: tuple[int, int], screen: bytes, state: dict[str, Any]) -> None:
        """Continue from a checkpoint, like AutoReader.restore. Call this before the first feed."""
        self.now, self._in_turn, self.echoes = state["now"], state["in_turn"], state["echoes"]
        self.reader.restore(size, screen, state["reader"])
        self._grammar.restore(state["grammar"])

    @property
    def settling(self) -> bool:
        """True while `tick` may find something even if nothing happens."""
        return self.reader.settling or (self._in_turn and self._quiet is not None)

    def burst(self, data: bytes, now: float) -> Burst:
        """Return the burst that `data`, which comes next, begins."""
        return Burst(self._pause, data, now, self.reader.look_due(now))

    def _pause(self, data: bytes) -> float:
        """Return the seconds of silence from which `data` and its neighbour are read separately."""
        return PAUSE if self.muted else self.reader.pause(data)

    def output(self, data: bytes, now: float, begun: float | None = None) -> Reading:
        """Take output of the agent. begun: when its first piece came, in seconds, if before `now`."""
        self.last_output = now
        self._in_turn = True
        return self._found(self.reader.feed(data, now, begun), now)

    def typed(self, data: bytes, now: float) -> None:
        """Note keys before their echo comes."""
        self.now = now
        self.reader.typed(data, now, echo=self.echoes)

    def resized(self, columns: int, rows: int, now: float) -> Reading:
        return self._found(self.reader.resize(columns, rows, now), now)

    def gap(self, size: int, now: float) -> Reading:
        return self._found(self.reader.gap(size, now), now)

    def tick(self, now: float) -> Reading:
        """Let time pass until `now`."""
        reading = self._found(self.reader.tick(now), now)
        if not self._in_turn or self._quiet is None or now - self.last_output < self._quiet:
            return reading
        return reading + self.waiting(now)

    def waiting(self, now: float, *, sure: bool = True) -> Reading:
        """End the turn: the program waits for input. sure: as in AutoReader.waiting."""
        if not sure and self.reader.drawing(now):
            self.decisive = False
            return Reading()
        self._in_turn = False
        within, prompts = self._grammar.within, self.reader.prompts
        reading = self._found(self.reader.waiting(now, sure=sure), now, ends_turn=True)
        self.decisive = within or bool(reading.lines) or self.reader.prompts != prompts
        return reading

    def turn_drawn(self) -> None:
        """Note that the screen shows the end of a turn."""
        self._turn_drawn = True

    def submitted(self) -> None:
        """Note that something was submitted: a fence left open in the previous turn ends here."""
        if self._turn_drawn:
            self._turn_drawn = False
            self._grammar.forget_fence()

    def close(self, now: float) -> Reading:
        return self._found(self.reader.close(now), now, ends_turn=True)

    def advance(self, until: float) -> Iterator[Reading]:
        """Let time pass until `until`, in ticks while they may find something; yield after each and last."""
        while self.settling and self.now + TICK < until:
            yield self.tick(self.now + TICK)
        self.now = max(self.now, until)
        yield Reading()

    def catch_up(self, now: float) -> Reading:
        """Return what is found by letting time pass until `now`, as `advance` does."""
        return sum(self.advance(now), Reading())

    def _found(self, lines: list[Line], now: float, *, ends_turn: bool = False) -> Reading:
        self.now = now
        if self.muted:
            lines = []
        directives = [directive for line in lines for directive in self._grammar.line(line)]
        if ends_turn:
            end = self._grammar.turn_end(now)
            directives += [] if self.muted else end
        passed_over, self._grammar.passed_over = self._grammar.passed_over, []
        return Reading(lines, directives, passed_over)


def play(events: Iterable[CastEvent], pipeline: OutputPipeline) -> Iterator[Reading]:
    """Feed a recording to `pipeline` at its own times, to its end; yield after each step."""
    for event in events:
        yield from pipeline.advance(event.time)
        match event.kind:
            case "o":
                yield pipeline.output(event.encoded, event.time)
            case "i":
                pipeline.typed(event.encoded, event.time)
            case "r":
                yield pipeline.resized(*event.size, event.time)
            case "m":
                yield Reading(left_out=gap_size(event.data) or 0)
    yield pipeline.close(pipeline.now)
