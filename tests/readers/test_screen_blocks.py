"""Drawn blocks of many lines: where each ends."""

from __future__ import annotations

import pytest
from hearing import CLEAR, Ears

from relay.agents.profile import BlockEnd

RULE = "─" * 80
BLOCK = [
    " @relay:Bob <<<",
    " one",
    " ",
    "  ```py",
    "    x",
    " ",
    " ",
    "    y",
    "  ```",
    " @relay:Ann quoted",
    " end",
]
AFTER = [" ", " ", " @relay:Carol after it"]


def framed(lines: list[str], status: str) -> str:
    """Return a page with the input between two rules and a footer below, as pi draws it."""
    rows = ["hello", *lines, "", RULE, "> ", RULE, f"~ {status}", f"{status} tokens"]
    return "\x1b[H" + "\r\n".join(f"\x1b[2K{row}" for row in rows) + "\x1b[J"


def blocks(ears: Ears) -> list[tuple[str, str, bool]]:
    return [(one.target, one.body, one.unclosed) for one in ears.directives]


def test_the_end_of_a_form_that_is_drawn_as_an_empty_row_is_seen() -> None:
    """F6: pi draws `>>>` below a paragraph only as empty rows above and below."""
    ears = Ears(80, 30, block_end="blank").hear(CLEAR + framed([], "1")).wait()
    ears.hear(framed(BLOCK + AFTER, "2")).wait()
    body = "one\n\n ```py\n   x\n\n\n   y\n ```\n@relay:Ann quoted\nend"
    assert blocks(ears) == [("Bob", body, False), ("Carol", "after it", False)]


@pytest.mark.parametrize("end", ["blank", "none"])
def test_a_form_whose_end_is_not_drawn_ends_above_the_footer(end: BlockEnd) -> None:
    """F6: the form ends with the turn, and this is reported."""
    ears = Ears(80, 30, block_end=end).hear(CLEAR + framed([], "1")).wait()
    ears.hear(framed([" @relay:Bob <<<", " one", " two"], "2")).wait().prompted()
    assert blocks(ears) == [("Bob", "one\ntwo", True)]
    ears.hear(framed([" @relay:Bob <<<", " one", " two", " ", " @relay:Carol next"], "3")).wait().prompted()
    assert blocks(ears)[1:] == [("Carol", "next", False)]


def test_a_form_whose_end_is_not_drawn_ends_at_the_next_directive() -> None:
    """F6: the sender is told."""
    ears = Ears(80, 30, block_end="none").hear(CLEAR + framed([], "1")).wait()
    ears.hear(framed([" @relay:Bob <<<", " one", " ", " @relay:Carol next", " prose"], "2")).wait()
    assert blocks(ears) == [("Bob", "one\n", True), ("Carol", "next", False)]


def test_rules_are_part_of_a_form() -> None:
    """A rule counts even below an older rule, in a program that prints."""
    text = f"@relay:Bob <<<\r\none\r\n{RULE}\r\ntwo\r\n>>>\r\n"
    ears = Ears(80, 30).hear(f"{CLEAR}{RULE}\r\nhello\r\n").wait().hear(text).wait()
    assert ears.told == [("Bob", f"one\n{RULE}\ntwo")]
