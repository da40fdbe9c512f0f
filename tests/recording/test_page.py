"""The text of a terminal's output, and where in the output its characters are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.recording.page import SEQUENCE, Page


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain\r\ntext\t.", "plain\r\ntext\t."),
        ("a\x1b[1;31mb\x1b[0mc\x1b[K\x1b(B\x1b>", "abc"),
        ("a\x1b[5;1Hb\x1b[Ac\x1b[2Kd", "a\nb\ncd"),
        ("a\x1b[3Cb", "a b"),
        ("a\x1b7b\x1bMc", "a\nb\nc"),
        ("a\x1b]0;title\x07b\x1b]8;;url\x1b\\c\x1bPdata\x1b\\d", "abcd"),
        ("a\bb\x07\x00c\x7f", "abc"),
        ("ab\x1b", "ab"),
        ("ab\x1b[3", "ab"),
        ("ab\x1b]0;ti", "ab"),
        ("ab\x1b日", "ab\x1b日"),
        ("\x1b]0;" + "x" * SEQUENCE, "\x1b]0;" + "x" * SEQUENCE),
    ],
)
def test_what_can_be_read(source: str, text: str) -> None:
    assert Page.of_terminal(source).text == text


def test_places_in_the_source() -> None:
    source = "ab\x1b[1mcd\x1b[5;9Hef\x1b]0;t\x07gh\x1b[1"
    page = Page.of_terminal(source)
    assert page.text == "abcd\nefgh"
    assert list(page.ranges(1, 9)) == [(1, 2), (6, 8), (14, 16), (22, 24)]
    assert [source[page.source(index)] for index in (0, 2, 3, 5, 7)] == list("acdeg")
    assert page.source(9) == page.end == source.index("\x1b[1", 20) == 24
    assert [page.index(place) for place in (0, 1, 2, 7, 15, 30)] == [0, 1, 2, 3, 6, 9]
    assert page.columns == {5: 8}
    [(start, end, content)] = page.strings
    assert (source[start:end], source[content]) == ("\x1b]0;t\x07", "0")
    gaps = Page.without("abcdef", [(1, 2), (4, 5)])
    assert gaps.text == "acdf" and list(gaps.ranges(0, 4)) == [(0, 1), (2, 4), (5, 6)]


@given(
    st.lists(st.sampled_from(["ab", "\x1b[1m", "\x1b[2;3H", "\x1b]0;t\x07", "\x1b", "\r\n", "日"])).map(
        "".join
    )
)
def test_places_are_those_of_the_characters(source: str) -> None:
    page = Page.of_terminal(source)
    for index, character in enumerate(page.text):
        place = page.source(index)
        assert source[place] == character or source[place] == "\x1b"  # which a line feed stands for
        if source[place] == character:
            assert list(page.ranges(index, index + 1)) == [(place, place + 1)]
            assert page.index(place) == index
