"""The user's draft, from the bytes their terminal sends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.injection.draft import Draft

RAW, CANONICAL = False, True


def _draft(keys: bytes, canonical: bool = RAW) -> Draft:
    draft = Draft()
    draft.type(keys, 1.0, canonical=canonical)
    return draft


RAW_KEYS = [
    (b"hello", False),
    (b"hello\r", True),
    (b"hello\x15", True),
    (b"hello\x03", False),  # programs differ: it clears the input, or brings back an earlier prompt
    (b"hi\x7f\x7f", True),
    (b"hi\x7f", False),
    ("é\x7f".encode(), True),
    (b"word\x17", False),  # line editors differ on what a word is
    (b"\x17\x0b\x15\x7f\x1b[3~", True),  # erasing in an empty input
    (b"\x05", False),  # Ctrl-E accepts a suggestion, Ctrl-A may come before what was accepted
    (b"\x01", False),
    (b"x" * 41 + b"\x15", False),  # Ctrl-U may erase one of several rows
    (b"\x1b]hello\x07", False),  # Alt-], then text
    (b"line\x1b\r", False),  # Alt+Enter: a newline in the draft
    (b"line\\\r", False),  # a backslash escapes Enter
    (b"line\n", False),  # Ctrl+J: a newline in the draft
    (b"\x1b[200~pasted\rtext\x1b[201~", False),
    (b"\x1b[200~pasted\rtext\x1b[201~\r", True),
    (b"\x1b[200~\x1b[201~", True),
    (b"\x1b[C", False),  # right: accepts a suggestion
    (b"\x1b[H", False),
    (b"\x1b[A", False),  # up: recalls
    (b"\t", False),
    (b"\x1b[A\r", True),
    (b"ab\x01\x0b", False),  # Ctrl-A, Ctrl-K
    (b"ab\x01\x15", False),  # Ctrl-U erases only what is before the cursor
    (b"a\nb\x15", False),  # Ctrl-U erases a line
    (b"\x16\r", False),  # Ctrl-V inserts the next key
    (b"\x19", False),  # Ctrl-Y: yanks
    (
        b"\x1b[<64;10;20M\x1b[<35;10;20M\x1b[<0;10;20m\x1b[M`ab\x1b[I\x1b[O",
        True,
    ),  # wheel, motion, release, focus
    (b"\x1b[<0;10;20M", False),  # a click
    (b"\x1b[<1;10;20M", False),
    (
        b"\x1b[?62;22c\x1b[24;80R\x1b[?2026;2$y\x1b[?1u\x1b]11;rgb:00/00/00\x1b\\\x1bP1+r\x1b\\",
        True,
    ),  # terminal responses
    (b"\x1b[97;1u", False),  # kitty keyboard: a
    (b"\x1b[97;1u\x1b[97;1:3u\x1b[127u", True),  # a pressed and released, backspace
    (b"x\x1b[117;5u", True),  # Ctrl+U
    (b"x\x1b[27;5;117~", True),  # the same from xterm
    (b"\x1b[27u", False),  # Esc
    (b"\x1b[98;3u", False),  # Alt+b
    (b"x\x1b[13;2u", False),  # Shift+Enter
    (b"x\x1b[13u", True),  # Enter
    (b"\x1by", False),  # Alt+y
    (b"\x1b", False),
]


def test_the_draft_is_empty_when_a_line_editors_would_be(subtests: pytest.Subtests) -> None:
    for keys, empty in RAW_KEYS:
        with subtests.test(repr(keys)):
            assert _draft(keys).empty is empty


@pytest.mark.parametrize(
    ("keys", "empty"),
    [
        (b"hello\n", True),
        (b"hello\x04", False),  # the program has got a part of a line
        (b"\x04", True),
        (b"hello\x16\x15", False),  # Ctrl-V: the next key is literal
        (b"hello\x1a", True),
        (b"\x1b[A", False),
        (b"\x1b[I", True),
        (b"a\\\r", True),
    ],
)
def test_the_draft_is_empty_when_the_kernels_line_would_be(keys: bytes, empty: bool) -> None:
    assert _draft(keys, CANONICAL).empty is empty


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)))
@example(keys=b"\x1b[=a", cuts=[1])  # a terminal's response, cut after its ESC
def test_chunk_boundaries_do_not_matter(keys: bytes, cuts: list[int]) -> None:
    whole, parts = _draft(keys), Draft()
    edges = sorted({0, *(cut for cut in cuts if cut < len(keys)), len(keys)})
    for start, end in itertools.pairwise(edges):
        parts.type(keys[start:end], 1.0, canonical=RAW)
    assert (parts.empty, parts.last_typed) == (whole.empty, whole.last_typed)


def test_keys_are_activity_and_terminal_responses_are_not() -> None:
    draft = Draft()
    draft.type(b"\x1b[?62c\x1b]11;rgb:0/0/0\x07", 5.0, canonical=RAW)
    assert draft.last_typed == float("-inf")
    draft.type(b"\x1b[A", 6.0, canonical=RAW)
    assert draft.last_typed == 6.0


BEFORE, AFTER = 0.5, 2.0
CHOICE = "Continue? [y/N] "


KEYS_WITHOUT_ENTER = [
    (b"y", True, True, False, AFTER, "> ", [], True),  # read -n1
    (b"y", True, False, False, AFTER, "> ", [], True),  # the terminal was canonical again too early
    (b"y", True, True, False, BEFORE, "> ", [], False),  # no output since then
    (b"y", True, False, False, AFTER, CHOICE + "y", [], False),  # the key is shown before the cursor
    (b"n", False, False, False, AFTER, "> ", [], False),  # the kernel holds it
    (b"yes", True, True, False, AFTER, "> ", [], False),  # the kernel may hold the rest
    (b"1", True, True, True, AFTER, "", ["> "], True),  # a dialog that is gone
    (b"11", True, True, True, AFTER, "", ["> "], True),  # two of them
    (b"1", True, True, True, AFTER, "", ["❯ 1. Yes", "  2. No"], False),  # the dialog is still shown
    (b"no", True, True, True, AFTER, "", ["│ > no      │"], False),  # an input box
    (b"no, use x", True, True, True, AFTER, "", ["❯ 3. no, use x"], False),
    (b"two words", True, True, True, AFTER, "", ["> two", "  words"], False),  # wrapped
    (b"j", False, True, True, AFTER, "", ["a menu"], True),
    (b"h", False, True, True, AFTER, "", ["> hello world"], False),  # with a suggestion
    (b"fo\t", False, True, True, AFTER, "$ foobar", [], False),  # completed
    (b" ", True, True, True, AFTER, "", ["more"], True),
]


def test_keys_that_the_program_read_without_enter_are_not_a_draft(subtests: pytest.Subtests) -> None:
    for keys, asking, raw, now_raw, last_output, unfinished, rows, taken in KEYS_WITHOUT_ENTER:
        with subtests.test(f"{keys!r}, {unfinished!r}, {rows}"):
            draft = Draft()
            draft.type(keys, 1.0, canonical=not raw, asking=asking)
            found = draft.taken(
                canonical=not now_raw, last_output=last_output, unfinished=unfinished, rows=rows
            )
            assert found is taken


def test_keys_after_an_answer_are_a_draft() -> None:
    draft = Draft()
    draft.type(b"1", 1.0, canonical=RAW, asking=True)
    draft.type(b"dear", 2.0, canonical=RAW, asking=False)
    assert not draft.taken(canonical=RAW, last_output=3.0, unfinished="", rows=["nothing of it"])


def test_a_lone_escape_is_a_key_after_a_while() -> None:
    draft = Draft()
    draft.type(b"\x1b", 1.0, canonical=RAW)
    draft.type(b"x", 2.0, canonical=RAW)
    assert not draft.empty
