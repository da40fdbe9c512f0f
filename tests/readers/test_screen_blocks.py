"""Where drawn `<<<` forms end."""

from __future__ import annotations

import pytest

from readers.rig import CLEAR, Rig
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
    """Return a page as pi draws it: the input between two rules, and a footer below."""
    rows = ["hello", *lines, "", RULE, "> ", RULE, f"~ {status}", f"{status} tokens"]
    return "\x1b[H" + "\r\n".join(f"\x1b[2K{row}" for row in rows) + "\x1b[J"


def blocks(rig: Rig) -> list[tuple[str, str, bool]]:
    return [(one.target, one.body, one.unclosed) for one in rig.directives]


def test_the_end_of_a_form_drawn_as_an_empty_row_is_recognised() -> None:
    """F6: pi draws `>>>` below a paragraph only as empty rows above and below."""
    rig = Rig(80, 30, block_end="blank").write(CLEAR + framed([], "1")).wait()
    rig.write(framed(BLOCK + AFTER, "2")).wait()
    body = "one\n\n ```py\n   x\n\n\n   y\n ```\n@relay:Ann quoted\nend"
    assert blocks(rig) == [("Bob", body, False), ("Carol", "after it", False)]


@pytest.mark.parametrize("end", ["blank", "none"])
def test_a_form_without_a_drawn_end_ends_above_the_footer(end: BlockEnd) -> None:
    """F6: the form ends with the turn, marked as unclosed."""
    rig = Rig(80, 30, block_end=end).write(CLEAR + framed([], "1")).wait()
    rig.write(framed([" @relay:Bob <<<", " one", " two"], "2")).wait().prompted()
    assert blocks(rig) == [("Bob", "one\ntwo", True)]
    rig.write(framed([" @relay:Bob <<<", " one", " two", " ", " @relay:Carol next"], "3")).wait().prompted()
    assert blocks(rig)[1:] == [("Carol", "next", False)]


def test_a_form_without_a_drawn_end_ends_at_the_next_directive() -> None:
    """F6: and it is marked as unclosed."""
    rig = Rig(80, 30, block_end="none").write(CLEAR + framed([], "1")).wait()
    rig.write(framed([" @relay:Bob <<<", " one", " ", " @relay:Carol next", " prose"], "2")).wait()
    assert blocks(rig) == [("Bob", "one\n", True), ("Carol", "next", False)]


def test_rules_are_part_of_a_form() -> None:
    """This holds even below an older rule, in a program that prints."""
    text = f"@relay:Bob <<<\r\none\r\n{RULE}\r\ntwo\r\n>>>\r\n"
    rig = Rig(80, 30).write(f"{CLEAR}{RULE}\r\nhello\r\n").wait().write(text).wait()
    assert rig.found == [("Bob", f"one\n{RULE}\ntwo")]
