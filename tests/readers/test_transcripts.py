"""A transcript gives the same directives in any chunks, at any width, printed or drawn."""

from __future__ import annotations

import re
import textwrap
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from readers.rig import Rig
from relay.directives.grammar import Grammar
from relay.place import Place
from relay.readers.line import Line
from support import many

WORD = st.text(st.sampled_from("abcxyz日本éñ👍-,.@:<>`"), min_size=1, max_size=9)
SENTENCE = st.lists(WORD, min_size=1, max_size=30).map(" ".join)
DIRECTIVE = st.builds("@relay:{} {}".format, st.sampled_from(["Bob", "Ann", "*", "#all"]), SENTENCE)
# On a screen, ">>" alone also ends a form: agents draw ">>>" as nested quotes.
INSIDE = SENTENCE.filter(lambda text: not re.fullmatch(r"(>\s*){2,3}", text))
FORM = st.lists(INSIDE, max_size=4).map(lambda lines: "\n".join(["@relay:Bob <<<", *lines, ">>>"]))
FENCED = DIRECTIVE.map(lambda line: f"```\n{line}\n```")
PARAGRAPH = st.one_of(DIRECTIVE, DIRECTIVE.map("- {}".format), SENTENCE, FORM, FENCED, st.just(""))
TRANSCRIPT = st.lists(PARAGRAPH, max_size=12).map("\n".join)
CUTS = st.lists(st.integers(0, 4000), max_size=12)
COLOURED = st.sampled_from(["", "\x1b[1;31m", "\x1b[0m", "\x1b(B", "\x1b]0;t\x07", "\x1b[?2026h\x1b[?2026l"])


def directives(transcript: str) -> list[tuple[str, str]]:
    """Return the directives that the grammar alone finds in the text."""
    grammar = Grammar({"relay"}.__contains__)
    lines = [Line(text, 0, Place("terminal", n)) for n, text in enumerate(transcript.split("\n"))]
    found = [one for line in lines for one in grammar.line(line)]
    return [(one.target, one.body) for one in found + grammar.turn_end(0)]


def read(data: bytes, cuts: list[int], columns: int, *, pause: float = 0.0) -> list[tuple[str, str]]:
    rig = Rig(columns, 12)
    places = sorted({min(cut, len(data)) for cut in [0, *cuts]})
    for start, end in zip(places, [*places[1:], len(data)], strict=True):
        rig.write(data[start:end])
        if pause:
            rig.wait(pause)
    return rig.wait(0.2).close().found


@given(TRANSCRIPT, CUTS, st.integers(1, 200), COLOURED)
@example("@relay:Bob a", [0, 5], 1, "")
def test_printed_lines_give_the_same_directives_in_any_chunks_at_any_width(
    text: str, cuts: list[int], columns: int, colour: str
) -> None:
    data = (colour + text.replace("\n", f"\r\n{colour}") + "\r\n").encode()
    assert read(data, cuts, columns) == directives(text)


@settings(max_examples=many(150))
@example("@relay:Bob " + "x日" * 60, [], 118, 0.0)
@example("@relay:Bob <<<\n" + ": 日" * 60 + "\n>>>", [], 79, 0.0)
@example("\n".join(["@relay:Bob " + "x" * 70] * 20), [], 55, 0.0)
@example("@relay:Bob ::日日 :::::::日日 :::::::日日 :", [], 40, 0.0)
@given(TRANSCRIPT, CUTS, st.integers(40, 200), st.sampled_from([0.0, 0.02]))
def test_drawn_lines_give_the_same_directives_in_any_chunks_at_any_width(
    text: str, cuts: list[int], columns: int, pause: float
) -> None:
    """Empty lines separate the paragraphs, as agents print them."""
    lines = text.replace("\n", "\n\n")
    data = ("\x1b[2J\x1b[H" + lines.replace("\n", "\r\n") + "\r\n").encode()
    assert squeezed(read(data, cuts, columns, pause=pause)) == squeezed(directives(lines))


@settings(max_examples=many(150))
@given(st.lists(st.one_of(DIRECTIVE, SENTENCE), max_size=8), st.integers(60, 160), st.integers(1, 3))
def test_a_wrapped_page_that_is_redrawn_gives_each_directive_once(
    paragraphs: list[str], columns: int, times: int
) -> None:
    rows = [
        row
        for text in paragraphs
        for row in [
            *textwrap.wrap(text.replace("日", "x").replace("本", "y").replace("👍", "z"), columns),
            "",
        ]
    ]
    rig = Rig(columns, 60)
    for _ in range(times):
        rig.write("\x1b[H" + "".join(f"\x1b[{y + 1};1H{row}\x1b[K" for y, row in enumerate(rows[:58]))).wait(
            2
        )
    once = Rig(columns, 60)
    once.write("\x1b[H" + "".join(f"\x1b[{y + 1};1H{row}\x1b[K" for y, row in enumerate(rows[:58])))
    assert rig.close().found == once.wait(2).close().found


@given(st.lists(st.binary(max_size=200), max_size=10), st.integers(1, 90), st.integers(1, 30))
def test_lines_are_text_in_order_whatever_the_bytes(pieces: list[bytes], columns: int, rows: int) -> None:
    rig = Rig(columns, rows)
    for piece in pieces:
        rig.write(piece).type(piece).wait(0.05)
    rig.resize(max(1, columns // 2), rows + 3).prompted().wait(0.1).close()
    assert rig.reader.failed is None
    assert not any(CONTROL.search(line.text) for line in rig.lines)
    assert all(a.place < b.place and a.time <= b.time for a, b in pairwise(rig.lines))
    assert all(line.place.offset <= sum(map(len, pieces)) for line in rig.lines)


CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x80-\x9f]")
"""Control characters except DEL, which the virtual screen draws."""


SEQUENCES = st.lists(
    st.sampled_from(
        [b"\x1b[%d;%dH" % (y, x) for y in (1, 5, 40) for x in (1, 30)]
        + [
            b"\x1b[2J",
            b"\x1b[K",
            b"\x1b[?1049h",
            b"\x1b[?1049l",
            b"\x1bc",
            b"\x1b[3J",
            b"\x1b[2;5r",
            b"\x1b[r",
        ]
        + [b"\x1b[A", b"\x1bM", b"\x1b[3L", b"\x1b[2M", b"\x1b[?2026h", b"\x1b[?2026l", b"\r\n", b"\x1b[4S"]
        + [
            b"@relay:Bob hi",
            b"text",
            b"```",
            b"\r\n\r\n\r\n\r\n",
            b"\xe6",
            b"\x9b",
            b"\x1b]0;",
            b"\x1bP",
            b"\x07",
        ]
    ),
    max_size=60,
)


@settings(max_examples=many(200))
@example(["\u2003".encode(), b"\x1b[1;1H"] * 3, 1, 5)
@given(SEQUENCES, st.integers(1, 90), st.integers(1, 30))
def test_no_sequences_make_a_reader_fail(pieces: list[bytes], columns: int, rows: int) -> None:
    rig = Rig(columns, rows)
    for number, piece in enumerate(pieces):
        rig.write(piece)
        if number % 7 == 0:
            rig.wait(0.05)
        if number == 30:
            rig.resize(rows, columns)
    assert rig.prompted().close().reader.failed is None
    assert all(a.place < b.place for a, b in pairwise(rig.lines))


def squeezed(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Remove white space from the bodies, as the drawn transcript has more empty lines."""
    return [(target, "".join(body.split())) for target, body in found]
