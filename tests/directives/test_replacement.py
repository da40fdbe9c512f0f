"""The same output gives the same directives, each once, even if the session is replaced."""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.directives.checkpoint import Checkpoint, Checkpoints
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, Reading
from relay.readers.auto import AutoReader, Kind
from relay.storage.progress import Progress, digest_of
from support import many

SIZE = 40, 10


@dataclass(frozen=True)
class Output:
    data: bytes


@dataclass(frozen=True)
class Keys:
    data: bytes
    echo: bool = True


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Resize:
    columns: int
    rows: int


@dataclass(frozen=True)
class Wait:
    """The program waits for input, and this is noticed at once."""

    sure: bool = True


Step = Output | Keys | Pause | Resize | Wait
Record = tuple[int, float, Step]
"""The number of a step, its time, and the step."""


@dataclass
class Session:
    """A session of the agent: it acts on directives on which its predecessors have not acted."""

    folder: Path
    kind: Kind
    acted: list[tuple[str, str]]
    resumed: bool
    pipeline: OutputPipeline = field(init=False)

    def __post_init__(self) -> None:
        reader = AutoReader(*SIZE, kind=self.kind)
        self.pipeline = OutputPipeline(reader, Grammar({"relay"}.__contains__))
        self.progress = Progress(self.folder / "progress.jsonl", resumed=self.resumed)
        self.checkpoints = Checkpoints(self.folder / "checkpoint.json", self.progress)

    def play(self, step: Step, number: int = 0) -> None:
        """Process `step`, which is the `number`th."""
        pipeline = self.pipeline
        match step:
            case Pause(seconds):
                for reading in pipeline.advance(pipeline.now + seconds):
                    self._take(reading)
                self._take(pipeline.tick(pipeline.now))
            case Wait(sure):
                self._take(pipeline.waiting(pipeline.now, sure=sure))
                if pipeline.decisive:
                    self.checkpoints.waited(number, sure)
                (self.folder / "wait").write_text(json.dumps([number, sure]))
            case _:
                self._record(step, pipeline.now)

    def replay(self, records: Sequence[Record]) -> None:
        """Read the contents of the ring, with the output in large pieces."""
        ahead = deque(records)
        while ahead:
            number, time, step = ahead.popleft()
            self.wait_again(number)
            self._take(self.pipeline.catch_up(time))
            if not isinstance(step, Output):
                self._record(step, time)
                continue
            burst, until, pieces = (
                self.pipeline.burst(step.data, time),
                self.checkpoints.next_expected,
                [step.data],
            )
            while ahead and ahead[0][0] < until and isinstance(step := ahead[0][2], Output):
                if not burst.takes(step.data, ahead[0][1]):
                    break
                pieces.append(step.data)
                _, time, _ = ahead.popleft()
            self._take(self.pipeline.output(b"".join(pieces), time, burst.begun))

    def wait_again(self, number: int) -> None:
        for sure in self.checkpoints.waits_until(number):
            self._take(self.pipeline.waiting(self.pipeline.now, sure=sure))

    def save(self, number: int) -> bool:
        screen = self.pipeline.reader.screen
        if screen is None or not screen.ground:
            return False
        size, drawn = (screen.columns, screen.height), screen.repaint().decode("latin-1")
        offset = self.pipeline.reader.offset
        self.checkpoints.save(Checkpoint(number, offset, *size, drawn, self.pipeline.state()))
        return True

    def load(self) -> None:
        saved = self.checkpoints.load(0)
        assert saved is not None
        self.pipeline.restore((saved.columns, saved.rows), saved.screen.encode("latin-1"), saved.state)

    def _record(self, step: Step, now: float) -> None:
        match step:
            case Output(data):
                self._take(self.pipeline.output(data, now))
            case Keys(data, echo):
                self.pipeline.echoes = echo
                self._take(self.pipeline.tick(now))
                self.pipeline.typed(data, now)
            case Resize(columns, rows):
                self._take(self.pipeline.resized(columns, rows, now))

    def close(self) -> None:
        self._take(self.pipeline.close(self.pipeline.now))
        self.progress.close(remove=False)

    def _take(self, reading: Reading) -> None:
        for directive in reading.directives:
            self._act(directive)

    def _act(self, directive: Directive) -> None:
        digest = digest_of(directive.namespace, directive.target, directive.body)
        if self.progress.recognize(directive.place, digest) is None:
            self.progress.begin(directive.place, digest, "relay")
            self.progress.done(directive.place)
            self.acted.append((directive.target, directive.body))


def recorded(steps: Sequence[Step]) -> Iterator[Record]:
    """Yield the records of `steps` in the ring."""
    now = 100.0
    for number, step in enumerate(steps):
        if isinstance(step, Pause):
            now += step.seconds
        elif not isinstance(step, Wait):
            yield number, now, step


def one_session(steps: Sequence[Step], kind: Kind) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), kind, [], resumed=False)
        session.play(Pause(100.0))
        for step in steps:
            session.play(step)
        session.close()
        return session.acted


def two_sessions(
    steps: Sequence[Step], kind: Kind, saved: int | None, died: int, back: int
) -> list[tuple[str, str]]:
    """Run a session that saves after `saved` steps and dies after `died`, and one that starts at `back`."""
    with tempfile.TemporaryDirectory() as folder:
        first = Session(Path(folder), kind, [], resumed=False)
        first.play(Pause(100.0))
        begins = 0
        for number, step in enumerate(steps[:died]):
            if number == saved and first.save(number):
                begins = number
            first.play(step, number)
        first.progress.close(remove=False)
        second = Session(Path(folder), kind, first.acted, resumed=True)
        last = Path(folder) / "wait"
        second.checkpoints.expect(tuple(json.loads(last.read_text())) if last.exists() else (0, False))
        if begins:
            second.load()
        second.replay([record for record in recorded(steps[:back]) if record[0] >= begins])
        second.wait_again(back)
        now = 100.0 + sum(step.seconds for step in steps[:back] if isinstance(step, Pause))
        second.play(Pause(now - second.pipeline.now))
        for number, step in enumerate(steps[back:], back):
            second.play(step, number)
        second.close()
        return second.acted


WORDS = [
    *(b"@relay:Bob %d\r\n" % number for number in range(3)),
    *(
        b"- @relay:Bob item\r\n",
        b"@relay:Bob <<<\r\n",
        b">>>\r\n",
        b"```\r\n",
        b"words\r\n",
        b"\r\n",
        b"a",
        b" ",
    ),
    *(
        b"> ",
        b"Name? ",
        b"> @relay:Bob quoted\r\n",
        b"\\@relay:Bob literal\r\n",
        b"\xe2\x9d\xaf ",
        b"\x1b[1mbold\x1b[0m\r\n",
    ),
    b"@relay:Bob a message that is longer than one row of this screen\r\n",
]
DRAWN = [
    *WORDS,
    b"\x1b[2J\x1b[H",
    b"\x1b[4;1H\x1b[K",
    b"\x1b[?1049h\x1b[H",
    b"\x1b[?1049l\x1b[2J\x1b[H",
    b"\x1b[?25l",
    b"\x1b[?25h",
    *(b"\x1b[2;5r", b"\x1b[r", b"\x1b[?2026h", b"\x1b[?2026l", b"\x1b[A", b"\x1bM", b"\x1b[3S"),
    *(b"\x1b[8mhidden\x1b[0m", b"\r", b"\x1b[K", b"\x1b[J", b"\x1b[H", b"\n" * 12),
]


SAME = [Output(b"@relay:Bob 0\r\n")] * 3
EMPTY = [*SAME[:1], Output(b"@relay:Bob <<<\r\n")]
FENCED = [Output(b"@relay:Bob <<<\r\n"), Output(b"```\r\n>>>\r\n"), *SAME[:1]]


@st.composite
def histories(draw: st.DrawFn, words: list[bytes]) -> list[Step]:
    """Draw the steps of a program; its output arrives in pieces of any size."""
    other = st.one_of(
        st.sampled_from([0.001, 0.005, 0.03, 0.2, 0.5, 2.0, 5.0]).map(Pause),
        st.booleans().map(Wait),
        st.builds(
            Keys, st.sampled_from([b"hi\r", b"@relay:Bob 1\r", b"> @relay:Bob 2\r", b"a"]), st.booleans()
        ),
        st.builds(Resize, st.sampled_from([20, 40, 80]), st.sampled_from([5, 10, 20])),
    )
    said = st.lists(st.sampled_from(words), min_size=1, max_size=6).map(b"".join)
    steps: list[Step] = []
    for each in draw(st.lists(st.one_of(said, other), min_size=1, max_size=20)):
        if not isinstance(each, bytes):
            steps.append(each)
            continue
        cuts = sorted(draw(st.sets(st.integers(0, len(each)), max_size=5)) | {0, len(each)})
        slowly = [Pause(0.005)] if draw(st.booleans()) else []
        for start, end in pairwise(cuts):
            steps += [Output(each[start:end]), *slowly]
    return steps


@st.composite
def replacements(draw: st.DrawFn, words: list[bytes]) -> tuple[list[Step], int | None, int, int]:
    steps = draw(histories(words))
    died = draw(st.integers(0, len(steps)))
    back = died
    while back < len(steps) and not isinstance(steps[back], Wait) and draw(st.booleans()):
        back += 1  # in between, no session sees the program wait
    return steps, draw(st.none() | st.integers(0, died)), died, back


@pytest.mark.parametrize("kind", ["lines"])
@settings(max_examples=many(200))
@given(replacements(WORDS))
@example(([*FENCED, Wait()], 3, 4, 4))
@example(([*EMPTY, Wait(False), Output(b"@relay:Bob 0\r\n")], 2, 3, 3))
@example(([Output(b"Name? "), Wait(False), *SAME[:1], Wait(False), *SAME[1:]], None, 4, 4))
def test_printed_directives_are_the_same_if_the_session_is_replaced(
    kind: Kind, replacement: tuple[list[Step], int | None, int, int]
) -> None:
    """Histories are random, or once had different results."""
    steps, saved, died, back = replacement
    assert two_sessions(steps, kind, saved, died, back) == one_session(steps, kind)


COVERED = [Output(b"> a\x1b[?1049h\x1b[H"), Output(b"\x1b[?1049l@relay:Bob a message that is long")]
GROWN = [Output(b"\x1b[H@relay:Bob a\x1b[?1049h\x1b[H"), Output(b"\x1b[?1049l message")]
WRAPPED = [
    Output(b"@relay:Bob <<<\r\n message that is longer than one row of this scr"),
    Output(b"een\r\n>>>\r\n"),
]
CLEARED = [
    Output(b"@relay:Bob 1\r\n\x1b[2J\x1b[H"),
    Pause(0.2),
    Output(b">>>\r\n@relay:Bo"),
    Output(b"@relay:Bob 1\r\n@relay:Bob"),
]
AGAIN = [
    Output(b"ted\r\n@relay:Bob 2\r\n```\r\n```\r\n\x1b[?1049l\x1b[2J\x1b[H"),
    Pause(0.5),
    *(Output(b"@r"), Output(b" 2\r\n```\r\na"), Output(b"\n@relay:Bob 2\r")),
]
SCROLLED = [
    Output(b"\r\n\x1b[?1049h\x1b[Hds\r\n\x1b[2J\x1b[H@r"),
    Output(b"elay:Bob 1\r\n@relay:Bob <<<\r\n"),
    Output(b"words\r\n\x1b["),
    Output(b"?1049h\x1b[H> @relay:Bob quoted\r\nwords\r\na"),
]
FRAMES = [
    Output(b"\x1b[?1049h\x1b[Haa\x1b"),
    Pause(0.03),
    Output(
        b"s screen\r\n@relay:Bob item\r\n\x1b[1mbold\x1b[0m\r\n"
        b"@relay:Bob <<<\r\n\x1b[1mbold\x1b[0m\r\nwords\r\n"
    ),
    Output(b" ```\r\n>>>\r\n\\@relay:Bob literal\r\n\\@relay:Bob literal\r\n@relay:Bob 2\r\na"),
]

LEFT = [
    Output(b"@relay:Bob 2\r\nted\r\n \x1b[?25l"),
    Pause(0.5),
    Output(b"\r\n@relay:Bob a message\r\n\x1b[?1049h\x1b[H\x1b"),
    Output(b"[2J\x1b[H"),
    Output(b"l\r\na\x1b[4;1H\x1b[K@relay:Bob 2\r\n\r\n> "),
]
UNDER = [
    Output(b"@relay:Bob <<<\r\n@old\r\n\x1b[?1049h\x1b[H>>>\r\n"),
    Pause(0.5),
    Output(b"@relay:Bob a message that is longer than one row of this screen\r\n\x1b[?1049h\x1b[H```\r\n"),
    Output(b"relay:Bob 1\r\n"),
    Wait(),
]
BUSY = [
    *(Output(b"\x1b[H"), Pause(0.2), Output(b"@relay:Bob 1\r\n")),
    *[Pause(0.005), Output(b"words\r\x1b[K")] * 50,
    *(Output(b"\x1b[H\x1b[Kwords\r\n"), Wait()),
]
UNSEEN = [
    *(Output(b"\x1b[?1049h\x1b[H"), Pause(0.2), Output(b"@relay:Bob 1\r\nwords\r\nand more\r\n")),
    *(Pause(0.005), Output(b" "), Pause(0.005)),
    Output(b"\x1b[Hwords\x1b[K\r\nand more\x1b[K\r\nthe last ones\r\n"),
]
RESIZED = [*(Output(b"\x1b[2J\x1b[H"), *SAME[:1], Pause(0.2), Resize(20, 5), *SAME[:1])]
LATER = [
    *(Output(b"\x1b[4;1H@relay:Bob 2\x1b[H@relay:Bob"), Pause(1.5), Output(b" 1"), Pause(5.0)),
    Output(b"\x1b[8;1H"),
]


@pytest.mark.parametrize("kind", ["auto", "screen"])
@settings(max_examples=many(100))
@given(replacements(DRAWN))
@example((COVERED, 1, 2, 2))
@example((GROWN, 1, 2, 2))
@example((WRAPPED, 1, 2, 2))
@example((CLEARED, None, 4, 4))
@example((AGAIN, None, 5, 5))
@example((SCROLLED, 1, 3, 3))
@example((FRAMES, None, 3, 3))
@example((LEFT, None, 4, 4))
@example((UNDER, None, 5, 5))
@example((BUSY, None, 3, len(BUSY) - 1))
@example((UNSEEN, 3, 7, 7))
@example((RESIZED, None, 5, 5))
@example((LATER, None, 1, len(LATER)))
def test_drawn_directives_are_the_same_if_the_session_is_replaced(
    kind: Kind, replacement: tuple[list[Step], int | None, int, int]
) -> None:
    """Histories are random, or once had different results."""
    steps, saved, died, back = replacement
    assert two_sessions(steps, kind, saved, died, back) == one_session(steps, kind)
