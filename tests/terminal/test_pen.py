"""Hidden text: what conceals it, and that the shortcuts for floods track the same colours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.terminal.pen import Pen
from relay.terminal.screen import VirtualScreen


def hides(data: bytes) -> list[bool]:
    """Return for each line of `data` whether some of it is hidden."""
    pen, found = Pen(), []
    for line in data.split(b"\n"):
        pen.write(line)
        found.append(pen.end_line())
    return found


HIDDEN = [
    b"\x1b[8mtext",
    b"\x1b[08mtext",
    b"\x1b[1;8;4mtext",
    b"seen \x1b[8mtext\x1b[28m seen",
    b"\x1b[\x078mtext",
    b"\x1b[31;41mtext",
    b"\x1b[91m\x1b[101mtext",
    b"\x1b[41m\x1b[38;5;1mtext",
    b"\x1b[38;5;196;48;2;255;0;0mtext",
    b"\x1b[38:2::1:2:3m\x1b[48:2:1:2:3mtext",
    b"\x1b[8;58;5;28mtext",
    b"\x1b[8m\x1b[1m\x1b[22m\x1b[32m\x1b[Ktext",
]


def test_text_that_is_concealed_or_in_the_colour_of_its_background_is_hidden(
    subtests: pytest.Subtests,
) -> None:
    for data in HIDDEN:
        with subtests.test(repr(data)):
            assert hides(data) == [True]


VISIBLE = [
    b"text",
    b"\x1b[8m \t \x1b[0mtext",
    b"\x1b[8m\x1b[28mtext",
    b"\x1b[8m\x1b[mtext",
    b"\x1b[8m\x1b[!ptext",
    b"\x1b[8;0mtext",
    b"\x1b[38;5;8mtext",
    b"\x1b[38;2;8;8;8mtext",
    b"\x1b[58;5;8mtext",
    b"\x1b[58:5:8mtext",
    b"\x1b[4:3mtext",
    b"\x1b[31;42mtext",
    b"\x1b[31;41m\x1b[39mtext",
    b"\x1b[31;41m\x1b[49mtext",
    b"\x1b[7mtext",
    b"\x1b[>8mtext",
    b"\x1b[31;41m\xe2\x94\x82 \xe2\x96\x80\x1b[0mtext",  # a frame, a half block
    b"\x1b[" + b"9" * 5000 + b"mtext",
]


def test_visible_text_is_not_hidden(subtests: pytest.Subtests) -> None:
    for data in VISIBLE:
        with subtests.test(repr(data[:99])):
            assert hides(data) == [False]


def test_hidden_text_is_tracked_across_lines() -> None:
    assert hides(b"\x1b[8m\none\n\ntwo\x1b[0m\nthree") == [False, True, False, True, False]
    assert hides(b"\x1b[\n8m\ntext") == [
        False,
        False,
        True,
    ]  # a terminal executes the newline within the sequence


_PIECES = st.sampled_from(
    [
        *(b"a line of text ", b"\n", b"\x1b[0m", b"\x1b[m", b"\x1b[K", b"\x1b[1m", b"\x1b[32m", b"\x1b[39m"),
        *(b"\x1b[8m", b"\x1b[28m", b"\x1b[31m", b"\x1b[41m", b"\x1b[49m", b"\x1b[38;5;1m", b"\x1b[97;45;8m"),
        b"filler " * 1000,
    ]
)


@given(st.lists(st.lists(_PIECES, max_size=12).map(b"".join), max_size=4))
def test_skipped_output_is_tracked_like_output_that_is_read(chunks: list[bytes]) -> None:
    """The exception is a foreground set far above, which only matters for a background's colour."""
    read, skipped = Pen(), Pen()
    for chunk in chunks:
        read.write(chunk)
        skipped.skip(chunk, 0, len(chunk))
        passing = Pen()
        passing.restore(skipped.state())
        if passing.passes(chunk):
            read.end_line()
            read.write(chunk)
            assert not read.hidden
    concealed, _, background = read.state()[1:]
    assert [concealed, background] == [skipped.state()[1], skipped.state()[3]]


@given(st.lists(_PIECES, max_size=12).map(b"".join))
def test_the_screen_finds_the_same_rows_hidden(data: bytes) -> None:
    data = data.replace(b"filler " * 1000, b"").replace(b"\x1b[K", b"")
    lines = [line for line in data.split(b"\n") if len(line) < 300][:20]
    screen = VirtualScreen(300, 24)
    screen.note("@", colours=False)
    screen.feed(b"\r\n".join(lines) + b"\x1b[0m\r\n@")
    assert [row.hidden for row in screen.rows()][: len(lines)] == hides(b"\n".join(lines))[: len(lines)]
