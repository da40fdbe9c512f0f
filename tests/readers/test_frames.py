"""Full-screen programs that draw in frames (mode 2026), with the newest lines at the bottom of a window."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from readers.rig import Rig
from relay.agents.profile import RowStyle

COLUMNS, ROWS = 40, 12
WINDOW = ROWS - 4

FOOTER = ["", "> ", "  ? for shortcuts"]


def frame(rows: Sequence[str], end: int) -> str:
    """Return the frame that shows `rows` up to `end`, with the last prompt above them and an input below."""
    shown = ["> the prompt", *rows[max(0, end - WINDOW) : end]]
    shown += [""] * (WINDOW + 1 - len(shown)) + FOOTER
    drawn = "".join(f"\x1b[{row};1H\x1b[K{text}" for row, text in enumerate(shown, start=1))
    return f"\x1b[?2026h{drawn}\x1b[{ROWS - 1};3H\x1b[?2026l"


def started() -> Rig:
    rig = Rig(COLUMNS, ROWS, echo=RowStyle(lines=(re.compile("^> "),)))
    return rig.write("\x1b[?1049h\x1b[H\x1b[J" + frame([], 0)).wait()


@pytest.mark.parametrize("together", [True, False])
def test_each_frame_is_read_however_soon_the_next_one_follows(together: bool) -> None:
    rows = [f"  @relay:Bob number {n}" for n in range(40)]
    frames = [frame(rows, end) for end in range(1, len(rows) + 1, 3)] + [frame(rows, len(rows))]
    rig = started().write(*(["".join(frames)] if together else frames)).wait()
    assert rig.found == [("Bob", f"number {n}") for n in range(40)]


def test_the_remainder_of_a_line_at_the_top_is_not_a_line_of_a_block() -> None:
    """The end of the line may be short, reappear as the window moves, and be part of the block itself."""
    rows = ["  a long line that goes on in another", "  row, down to its very end", "", "  @relay:Bob <<<"]
    rows += ["  one", "  the second line of the block which is", "  long", "", "  three", "  four", "  five"]
    rows += [
        "  six",
        "  seven",
        "  eight",
        "",
        "  more below",
        "",
        "  and more",
        "  1",
        "  2",
        "  3",
        "  4",
        "  5",
    ]
    rig = started()
    for end in [*range(1, 9), 10, 9, 10, 9, *range(10, 16)]:
        rig.write(frame(rows, end)).wait(0.1)
    for end in [15, 14, 13, 14, *range(15, len(rows) + 1)]:
        rig.write(frame(rows, end)).wait(0.1)
    (found,) = rig.wait(3).prompted().found
    body = [line for line in found[1].split("\n") if line]
    long = "the second line of the block which is long"
    assert body[:8] == ["one", long, "three", "four", "five", "six", "seven", "eight"]
    assert all(body.count(line) == 1 for line in body)


def test_a_line_that_may_be_cut_off_as_it_scrolls_away_is_not_read() -> None:
    """The agent draws the start of its queue and its current text; then everything in between appears."""
    begun = ["  @relay:Bob first", "", "  @relay:Bob one two three four five"]
    rows = [*begun, "  six seven", "", "", "", "  being said"]
    later = [*begun, "  six seven eight", *(f"  line {n}" for n in range(9)), "  being said", "", "  now"]
    rig = started().write(frame(rows, len(rows))).write(frame(later, len(later))).wait()
    assert rig.found == [("Bob", "first")]


def test_text_below_the_input_is_not_in_a_block() -> None:
    rows = ["  @relay:Bob <<<", "  one", "  two"]
    rig = started().write(frame(rows, 3)).wait().write(f"\x1b7\x1b[{ROWS};1H  a new status\x1b[K\x1b8").wait()
    rows += ["  three", "", "  @relay:Ann bye"]
    rig.write(frame(rows, len(rows)).replace("? for shortcuts", "another status")).wait(3).prompted()
    assert [line for line in rig.found[0][1].split("\n") if line][:3] == ["one", "two", "three"]


def test_the_input_itself_is_not_in_a_block() -> None:
    rows = ["  @relay:Bob <<<", "  one", "  two", "  >>>"]
    input = ("\x1b[K> \x1b", "\x1b[K* Type here\x1b")
    rig = (
        started()
        .write(frame(rows[:2], 2).replace(*input))
        .wait(1)
        .write(frame(rows[:3], 3).replace(*input))
        .wait(2.5)
    )
    assert rig.write(frame(rows, 4).replace(*input)).wait().found == [("Bob", "one\ntwo")]


def barred(rows: Sequence[str]) -> list[str]:
    """Return truncated `rows` of a page, each followed by its part of the scroll bar."""
    bar = "│" * (WINDOW - 3) + "███"
    return [row[: COLUMNS - 1].ljust(COLUMNS - 1) + beside for row, beside in zip(rows, bar, strict=True)]


def test_a_page_cut_off_by_its_scroll_bar_is_not_read() -> None:
    """After a resize, qwen draws it for the old width, and seconds later for the new one."""
    said = "@relay:Bob a message that is longer than the new page is wide"
    other = ["  one", "", "  two", "", "  three", ""]
    rig = Rig(80, ROWS, echo=RowStyle(lines=(re.compile("^> "),)))
    rig.write("\x1b[?1049h\x1b[H\x1b[J" + frame([f"  {said[:30]}"], 1)).wait(0.5).resize(COLUMNS, ROWS)
    rig.write(frame(barred([f"  {said}", "", *other]), WINDOW)).wait(4)
    assert rig.found == [] and rig.passed_over == []
    fits = barred(["  @relay:Bob a message that is longer", "  than the new page is wide", *other])
    assert rig.write(frame(fits, WINDOW)).wait().found == [("Bob", said.removeprefix("@relay:Bob "))]


def test_a_cut_body_is_passed_over_on_a_page_that_stays_cut_off() -> None:
    rows = barred(
        ["  @relay:Bob a message that is longer than", "", "  @relay:Ann short", "", "", "", "", ""]
    )
    rig = started().write(frame(rows, WINDOW)).wait(12)
    rows[5] = rows[5].replace(" ", "x", 1)
    rig.write(frame(rows, WINDOW)).wait(12)
    assert rig.found == [("Ann", "short")] and len(rig.passed_over) == 1


def test_time_does_not_complete_a_line_above_a_frozen_spinner() -> None:
    """The program is stalled, or its terminal accepts no more output."""
    rig = started()
    for n in range(5):
        rig.write(frame(["  @relay:Bob one", "", f"  {'◐◓◑◒'[n % 4]} {n} working"], 3)).wait(0.1)
    assert rig.wait(3).found == []
    rig.write(frame(["  @relay:Bob one two", "", "  ◐ 9 working"], 3)).wait(8)
    assert rig.found == [("Bob", "one two")]


def test_a_program_in_the_middle_of_a_frame_does_not_wait_for_input() -> None:
    whole = frame(["  @relay:Bob <<<", "  one", "  two", "  >>>"], 4)
    half = whole.index("  two")
    rig = started().write(whole[:half]).wait(4).prompted(sure=False)
    assert rig.write(whole[half:]).wait().found == [("Bob", "one\ntwo")]


def test_scrolling_back_reads_only_text_never_drawn_before() -> None:
    bodies = [chr(ord("A") + n) * 12 for n in range(24)]
    rows = [f"  @relay:Bob {body}" for body in bodies]
    rig = started()
    for end in (6, 12, 22, 23, 24):  # from 12 to 22 it skips two
        rig.write(frame(rows, end)).wait(2)
    assert rig.found == [("Bob", body) for body in [*bodies[:12], *bodies[14:]]]
    for end in range(24, 7, -1):
        rig.write(frame(rows, end)).wait(0.5)
    assert rig.wait().found[22:] == [("Bob", body) for body in bodies[12:14]]
