"""Which character of the output is drawn where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.recording.grid import SEQUENCE, Grid

LF = "\r\n"


def drawn(*output: str, columns: int = 20, height: int = 5) -> str:
    grid = Grid(columns, height)
    for piece in output:
        grid.feed(piece)
    return "\n".join(row.text.rstrip() for row in grid.rows).rstrip("\n")


def kept(output: str) -> list[str]:
    grid = Grid(20, 5)
    grid.feed(output)
    return [passage.text.strip() for passage in grid.passages()]


DRAWN = [
    ("plain\r\ntext\tend", "plain\ntext    end"),
    ("a\x1b[1;31mb\x1b[0mc\x1b(B\x1b>\x07\x00", "abc"),
    ("ab\x1b[3Cc\x1b[2Dd", "ab  dc"),
    ("abc\bx\ry", "ybx"),
    ("\x1b[3GKEY\x1b[8Gis\x1b[2;2Hrow", "  KEY  is\n row"),
    ("one\x1b[2Btwo\x1b[Athree\x1b[Ffour\x1b[3dfive", "four\n      three\n   tfive"),
    ("abcdef\x1b[3G\x1b[K", "ab"),
    ("abcdef\x1b[3G\x1b[1K", "   def"),
    ("abcdef\x1b[2G\x1b[2Xx\x1b[P", "axdef"),
    ("abcdef\x1b[2G\x1b[2@", "a  bcdef"),
    (f"a{LF}b{LF}c\x1b[2;1H\x1b[Lx", "a\nx\nb\nc"),
    (f"a{LF}b{LF}c\x1b[1;1H\x1b[M", "b\nc"),
    (f"a{LF}b{LF}c\x1b[2;3r\x1b[3;1H{LF}d\x1b[r", "a\nc\nd"),
    (f"a{LF}b\x1b[2;1H\x1bMx\x1bM\x1b[Sy", "\nxy\nb"),
    (f"a{LF}b\x1b[H\x1bMtop", "top\na\nb"),
    ("\x1b7abc\x1b8x\x1b[2;2H\x1b[sb\x1b[5;1H\x1b[uc", "xbc\n c"),
    (f"a{LF}b{LF}c\x1b[2;1H\x1b[J", "a"),
    (f"a{LF}b\x1b[2J\x1b[Hc", "c"),
    ("shell\x1b[?1049h\x1b[Hagent\x1b[?1049l", "shell"),
    ("日本x", "日 本 x"),
    ("e\u0301x", "ex"),
    ("a\x1b]0;title\x07b\x1b]8;;url\x1b\\c\x1bPdata\x1b\\d", "abcd"),
]


def test_output_is_drawn_as_on_a_terminal(subtests: pytest.Subtests) -> None:
    for output, screen in DRAWN:
        with subtests.test(repr(output)):
            assert drawn(output).replace("\n\n", "\n") == screen.replace("\n\n", "\n")
            assert drawn(*output) == drawn(output)


def test_rows_that_wrap_or_scroll_off_are_kept() -> None:
    grid = Grid(4, 2)
    grid.feed(f"abcdefgh{LF}x{LF}y{LF}z")
    assert [row.text for row in grid.rows] == ["abcd", "efgh", "x", "y", "z"]
    assert [row.wraps for row in grid.rows] == [True, False, False, False, False]
    assert [passage.text for passage in grid.passages()] == ["abcdefgh\nx\ny\nz\n"]


def test_text_that_disappears_is_kept_once() -> None:
    assert kept("first\rother") == ["first", "other"]
    assert kept("first\x1b[2K\rother") == ["first", "other"]
    assert kept(f"first{LF}second\x1b[2J") == ["first\nsecond"]
    assert kept("first\x1b[?1049hagent")[0] == "first"
    assert kept("\x1b[5;1Hlast\x1b[1;1H\x1b[L") == ["last"]


def test_each_drawn_character_has_its_position_in_the_output() -> None:
    output = f"ab\x1b[1mcd\x1b[8Gef日x{LF}\x1b]0;t\x07gh\x1b[1"
    grid = Grid(20, 5)
    grid.feed(output)
    (passage,) = grid.passages()
    assert passage.text == "abcd   ef日 x\ngh\n\n"
    assert all(place < 0 or output[place] == c for c, place in zip(*passage, strict=True))
    assert grid.read == len(output) - 3
    assert [output[start:end] for start, end, _ in grid.strings] == ["\x1b]0;t\x07"]


def test_an_unfinished_sequence_is_continued_by_later_output() -> None:
    grid = Grid(20, 5)
    pieces = ("ab\x1b", "[3", "Gc\x1b]0;ti", "tle\x07d")
    for piece in pieces:
        grid.feed(piece)
    read = len("".join(pieces))
    assert grid.rows[0].text == "abcd" and grid.read == read
    grid.feed("\x1b]0;" + "x" * SEQUENCE)
    assert grid.read == read + 4 + SEQUENCE  # treated as text


FINALS = st.sampled_from([*"ABCDEFGHJKLMPSTXdfrsu@`aehlm", "p"])
CSI = st.builds(
    lambda numbers, final: f"\x1b[{numbers}{final}", st.from_regex(r"\??\d{0,2}(;\d{0,2})?"), FINALS
)
PIECE = st.one_of(
    st.text(max_size=30),
    CSI,
    st.sampled_from(["\r\n", "\x1bM", "\x1b8", "\x1bc", "\x1b[?1049h", "\x1b[?1049l"]),
)


@given(st.lists(st.one_of(PIECE, st.tuples(st.integers(1, 30), st.integers(1, 9))), max_size=40))
def test_any_output_can_be_drawn(pieces: list[str | tuple[int, int]]) -> None:
    grid = Grid(10, 4)
    output = ""
    for piece in pieces:
        if isinstance(piece, tuple):
            grid.resize(*piece)
            continue
        grid.feed(piece)
        output += piece
        assert grid.read <= len(output)
        for row in grid.rows:
            assert len(row.cells) == len(row.origins)
        for passage in grid.passages():
            assert len(passage.text) == len(passage.origins)
            assert all(place < 0 or output[place] == c for c, place in zip(*passage, strict=True))
