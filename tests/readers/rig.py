"""A session's reader pipeline on a clock that the test controls."""

from __future__ import annotations

from relay.agents.profile import BlockEnd, RowStyle
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, Reading
from relay.readers.auto import AutoReader, Kind
from relay.readers.line import Line


class Rig:
    """Feeds a pipeline and collects what it reads. Time passes in ticks of 20 ms, as in a session."""

    def __init__(
        self,
        columns: int = 80,
        rows: int = 24,
        *,
        kind: Kind = "auto",
        echo: RowStyle | None = None,
        code: RowStyle | None = None,
        block_end: BlockEnd = "drawn",
        settle: float = 0.0,
    ) -> None:
        self.reader = AutoReader(
            columns, rows, kind=kind, echo_style=echo, code_style=code, block_end=block_end, settle=settle
        )
        self.pipeline = OutputPipeline(self.reader, Grammar({"relay", "memory"}.__contains__))
        self.directives: list[Directive] = []
        self.lines: list[Line] = []
        self.passed_over: list[str] = []
        self._take(self.pipeline.tick(100.0))

    @property
    def now(self) -> float:
        return self.pipeline.now

    def write(self, *pieces: bytes | str) -> Rig:
        """Have the child write the pieces one after another, at the same moment."""
        for piece in pieces:
            data = piece.encode() if isinstance(piece, str) else piece
            self._take(self.pipeline.output(data, self.now))
        return self

    def wait(self, seconds: float = 3.0) -> Rig:
        for reading in self.pipeline.advance(self.now + seconds):
            self._take(reading)
        return self._take(self.pipeline.tick(self.now))

    def type(self, data: bytes | str, *, echo: bool = True) -> Rig:
        self.pipeline.echoes = echo
        self.pipeline.typed(data.encode() if isinstance(data, str) else data, self.now)
        return self

    def prompted(self, *, sure: bool = True) -> Rig:
        """Have the child wait for input, which ends its turn. sure: the kernel confirms it."""
        return self._take(self.pipeline.waiting(self.now, sure=sure))

    def resize(self, columns: int, rows: int) -> Rig:
        return self._take(self.pipeline.resized(columns, rows, self.now))

    def gap(self, size: int) -> Rig:
        """Lose `size` bytes of the child's output."""
        return self._take(self.pipeline.gap(size, self.now))

    def close(self) -> Rig:
        return self._take(self.pipeline.close(self.now))

    @property
    def found(self) -> list[tuple[str, str]]:
        return [(directive.target, directive.body) for directive in self.directives]

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines if line.text]

    def _take(self, reading: Reading) -> Rig:
        self.lines += reading.lines
        self.directives += reading.directives
        self.passed_over += [one.line.text for one in reading.passed_over]
        return self


def directives_in(
    data: bytes, *, chunk: int = 4096, columns: int = 80, rows: int = 24
) -> list[tuple[str, str]]:
    """Return the directives of a program that writes `data` and exits, read in pieces of `chunk` bytes."""
    rig = Rig(columns, rows)
    for start in range(0, len(data), chunk):
        rig.write(data[start : start + chunk])
    return rig.wait().close().found


LINE = "@relay:Bob hi there"
HI = [("Bob", "hi there")]
LONG = (
    "@relay:Bob "
    + "this message is so long that it does not fit into one row and is wrapped at the margin " * 2
)
CLEAR = "\x1b[2J\x1b[H"


def drawing(columns: int = 80, rows: int = 24) -> Rig:
    """Return a program that has drawn only an input box at the bottom, with the cursor in it."""
    rig = Rig(columns, rows).write(CLEAR + box(rows))
    assert rig.reader.kind == "screen"
    return rig.wait(3)


def box(rows: int, status: str = "? for shortcuts") -> str:
    return f"\x1b[{rows - 2};1H{'─' * 30}\x1b[{rows};1H  {status}\x1b[K\x1b[{rows - 1};1H> "


def at(row: int, text: str, column: int = 1) -> str:
    """Return the output that draws `text` at a position and restores the cursor."""
    return f"\x1b7\x1b[{row};{column}H{text}\x1b8"
