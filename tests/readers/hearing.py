"""A session's ears for tests: the reader and the grammar, on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterable

from relay.agents.profile import CodeStyle, EchoStyle
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.readers.auto import AutoReader, Kind
from relay.readers.line import Line

TICK = 0.02


class Ears:
    """Feeds an AutoReader and a Grammar; time passes in ticks of 20 ms, as in a session."""

    def __init__(
        self,
        columns: int = 80,
        rows: int = 24,
        *,
        kind: Kind = "auto",
        echo: EchoStyle | None = None,
        code: CodeStyle | None = None,
    ) -> None:
        self.reader = AutoReader(columns, rows, kind=kind, echo_style=echo, code_style=code)
        self.grammar = Grammar({"relay", "memory"}.__contains__)
        self.directives: list[Directive] = []
        self.lines: list[Line] = []
        self.now = 100.0

    def hear(self, *pieces: bytes | str) -> Ears:
        """The child writes the pieces, one after the other, at the same moment."""
        for piece in pieces:
            self._take(self.reader.feed(piece.encode() if isinstance(piece, str) else piece, self.now))
        return self

    def wait(self, seconds: float = 3.0) -> Ears:
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + TICK, end)
            self._take(self.reader.tick(self.now))
        return self

    def type(self, data: bytes | str, *, echo: bool = True) -> Ears:
        self.reader.typed(data.encode() if isinstance(data, str) else data, self.now, echo=echo)
        return self

    def prompted(self) -> Ears:
        """The child waits for input: its turn has ended."""
        self._take(self.reader.waiting(self.now))
        self.directives += self.grammar.turn_end(self.now)
        return self

    def resize(self, columns: int, rows: int) -> Ears:
        self._take(self.reader.resize(columns, rows, self.now))
        return self

    def close(self) -> Ears:
        self._take(self.reader.close(self.now))
        self.directives += self.grammar.turn_end(self.now)
        return self

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(directive.target, directive.body) for directive in self.directives]

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines if line.text]

    def _take(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.lines.append(line)
            self.directives += self.grammar.line(line)


def directives_in(
    data: bytes, *, chunk: int = 4096, columns: int = 80, rows: int = 24
) -> list[tuple[str, str]]:
    """What is told by a program that writes `data` and ends, read in pieces of `chunk` bytes."""
    ears = Ears(columns, rows)
    for start in range(0, len(data), chunk):
        ears.hear(data[start : start + chunk])
    return ears.wait().close().told
