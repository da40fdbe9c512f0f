"""Rendering a recorded screen: only text and SGR reach the terminal, clipped to its size."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.terminal.render import clip, render
from relay.terminal.screen import VirtualScreen

SGR = re.compile(r"\x1b\[[0-9;:]*m")


def drawn(data: str | bytes, columns: int = 20, rows: int = 4, window: tuple[int, int] = (0, 0)) -> list[str]:
    screen = VirtualScreen(columns, rows)
    screen.feed(data.encode() if isinstance(data, str) else data)
    return list(render(screen, window[0] or columns, window[1] or rows)[0])


def test_text_and_colours_are_kept_row_by_row() -> None:
    red, bold, blue = drawn("\x1b[31mred\r\n\x1b[1mbold\x1b[0m plain\r\n\x1b[44mblue")
    assert red == "\x1b[38;5;1mred\x1b[0m"
    assert SGR.sub("", bold) == "bold plain"
    assert "\x1b[1m" in bold and bold.index("\x1b[0m") < bold.index(" plain")
    assert "\x1b[48;5;4m" in blue and blue.endswith("\x1b[0m")


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")))
)
def test_sgr_is_the_only_escape_sequence_in_the_rendering(data: bytes) -> None:
    for row in drawn(data):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e\u2066]", SGR.sub("", row))


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u2028", "\u200b"])
def test_invisible_and_bidi_characters_are_left_out(mark: str) -> None:
    assert mark not in "".join(drawn(f"a{mark}b"))


def test_a_window_shows_the_left_of_the_last_used_rows() -> None:
    assert drawn("1\r\n2\r\n3\r\n4567890", window=(3, 2)) == ["3", "456"]
    assert drawn("1\r\n2", window=(3, 3)) == ["1", "2"]


@pytest.mark.parametrize(
    ("columns", "left"), [(1, "a"), (2, "a"), (3, "a漢"), (4, "a漢"), (5, "a漢字"), (9, "a漢字b")]
)
def test_a_wide_character_is_not_cut_in_two(columns: int, left: str) -> None:
    assert clip("a漢字b", columns) == left
    assert clip("\x1b[1ma漢字b\x1b[0m", columns).replace("\x1b[0m", "") == "\x1b[1m" + left


def test_the_last_column_is_drawn_once() -> None:
    assert drawn("x" * 20)[0] == "x" * 20


def test_the_cursor_is_hidden_unless_it_is_visible_in_the_window() -> None:
    screen = VirtualScreen(20, 4)
    screen.feed(b"\r\nab")
    assert render(screen, 20, 4)[1] == (2, 1)
    assert render(screen, 2, 4)[1] is None
    screen.feed(b"\x1b[?25l")
    assert render(screen, 20, 4)[1] is None
