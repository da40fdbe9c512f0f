"""Full-screen programs that draw in frames (mode 2026), with the newest lines at the bottom of a window."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hearing import Ears

from relay.agents.profile import RowStyle

COLUMNS, ROWS = 40, 12
WINDOW = ROWS - 4

FOOTER = ["", "> ", "  ? for shortcuts"]


def frame(rows: Sequence[str], end: int) -> str:
    """Return the frame that shows `rows` up to `end`: the last prompt above them, an input below."""
    shown = ["> the prompt", *rows[max(0, end - WINDOW) : end]]
    shown += [""] * (WINDOW + 1 - len(shown)) + FOOTER
    drawn = "".join(f"\x1b[{row};1H\x1b[K{text}" for row, text in enumerate(shown, start=1))
    return f"\x1b[?2026h{drawn}\x1b[{ROWS - 1};3H\x1b[?2026l"


def watcher() -> Ears:
    ears = Ears(COLUMNS, ROWS, echo=RowStyle(lines=(re.compile("^> "),)))
    return ears.hear("\x1b[?1049h\x1b[H\x1b[J" + frame([], 0)).wait()


@pytest.mark.parametrize("together", [True, False])
def test_each_frame_counts_however_soon_the_next_one_comes(together: bool) -> None:
    rows = [f"  @relay:Bob number {n}" for n in range(40)]
    frames = [frame(rows, end) for end in range(1, len(rows) + 1, 3)] + [frame(rows, len(rows))]
    ears = watcher().hear(*(["".join(frames)] if together else frames)).wait()
    assert ears.told == [("Bob", f"number {n}") for n in range(40)]


def test_what_is_left_of_a_line_at_the_top_is_no_line_of_a_block() -> None:
    """The line's end may be short, reappear as the window moves a row, and lie in the block itself."""
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
    ears = watcher()
    for end in [*range(1, 9), 10, 9, 10, 9, *range(10, 16)]:
        ears.hear(frame(rows, end)).wait(0.1)
    for end in [15, 14, 13, 14, *range(15, len(rows) + 1)]:
        ears.hear(frame(rows, end)).wait(0.1)
    (told,) = ears.wait(3).prompted().told
    body = [line for line in told[1].split("\n") if line]
    long = "the second line of the block which is long"
    assert body[:8] == ["one", long, "three", "four", "five", "six", "seven", "eight"]
    assert all(body.count(line) == 1 for line in body)


def test_a_line_below_which_others_come_as_it_leaves_may_have_been_cut() -> None:
    """The agent draws the start of its queue and the current text; then everything between them appears."""
    begun = ["  @relay:Bob first", "", "  @relay:Bob one two three four five"]
    rows = [*begun, "  six seven", "", "", "", "  being said"]
    later = [*begun, "  six seven eight", *(f"  line {n}" for n in range(9)), "  being said", "", "  now"]
    ears = watcher().hear(frame(rows, len(rows))).hear(frame(later, len(later))).wait()
    assert ears.told == [("Bob", "first")]


def test_what_is_drawn_below_the_input_is_not_in_a_block() -> None:
    rows = ["  @relay:Bob <<<", "  one", "  two"]
    ears = watcher().hear(frame(rows, 3)).wait().hear(f"\x1b7\x1b[{ROWS};1H  a new status\x1b[K\x1b8").wait()
    rows += ["  three", "", "  @relay:Ann bye"]
    ears.hear(frame(rows, len(rows)).replace("? for shortcuts", "another status")).wait(3).prompted()
    assert [line for line in ears.told[0][1].split("\n") if line][:3] == ["one", "two", "three"]


def test_the_input_itself_is_not_in_a_block() -> None:
    rows = ["  @relay:Bob <<<", "  one", "  two", "  >>>"]
    input = ("\x1b[K> \x1b", "\x1b[K* Type here\x1b")
    ears = (
        watcher()
        .hear(frame(rows[:2], 2).replace(*input))
        .wait(1)
        .hear(frame(rows[:3], 3).replace(*input))
        .wait(2.5)
    )
    assert ears.hear(frame(rows, 4).replace(*input)).wait().told == [("Bob", "one\ntwo")]


def barred(rows: Sequence[str]) -> list[str]:
    """Return truncated `rows` of a page, with its scroll bar after them."""
    bar = "│" * (WINDOW - 3) + "███"
    return [row[: COLUMNS - 1].ljust(COLUMNS - 1) + beside for row, beside in zip(rows, bar, strict=True)]


def test_a_page_that_its_scroll_bar_cuts_off_is_not_read() -> None:
    """After a resize qwen draws it for the old width, and seconds later for the new one."""
    said = "@relay:Bob a message that is longer than the new page is wide"
    other = ["  one", "", "  two", "", "  three", ""]
    ears = Ears(80, ROWS, echo=RowStyle(lines=(re.compile("^> "),)))
    ears.hear("\x1b[?1049h\x1b[H\x1b[J" + frame([f"  {said[:30]}"], 1)).wait(0.5).resize(COLUMNS, ROWS)
    ears.hear(frame(barred([f"  {said}", "", *other]), WINDOW)).wait(4)
    assert ears.told == [] and ears.passed_over == []
    fits = barred(["  @relay:Bob a message that is longer", "  than the new page is wide", *other])
    assert ears.hear(frame(fits, WINDOW)).wait().told == [("Bob", said.removeprefix("@relay:Bob "))]


def test_a_page_that_stays_cut_off_tells_no_cut_body() -> None:
    rows = barred(
        ["  @relay:Bob a message that is longer than", "", "  @relay:Ann short", "", "", "", "", ""]
    )
    ears = watcher().hear(frame(rows, WINDOW)).wait(12)
    rows[5] = rows[5].replace(" ", "x", 1)
    ears.hear(frame(rows, WINDOW)).wait(12)
    assert ears.told == [("Ann", "short")] and len(ears.passed_over) == 1


def test_time_does_not_complete_a_line_while_a_spinner_below_it_stands_still() -> None:
    """The program is stalled, or its terminal, which accepts no more output."""
    ears = watcher()
    for n in range(5):
        ears.hear(frame(["  @relay:Bob one", "", f"  {'◐◓◑◒'[n % 4]} {n} working"], 3)).wait(0.1)
    assert ears.wait(3).told == []
    ears.hear(frame(["  @relay:Bob one two", "", "  ◐ 9 working"], 3)).wait(8)
    assert ears.told == [("Bob", "one two")]


def test_a_program_in_the_middle_of_a_frame_does_not_wait_for_input() -> None:
    whole = frame(["  @relay:Bob <<<", "  one", "  two", "  >>>"], 4)
    half = whole.index("  two")
    ears = watcher().hear(whole[:half]).wait(4).prompted(sure=False)
    assert ears.hear(whole[half:]).wait().told == [("Bob", "one\ntwo")]


def test_scrolling_back_says_only_what_was_never_drawn() -> None:
    bodies = [chr(ord("A") + n) * 12 for n in range(24)]
    rows = [f"  @relay:Bob {body}" for body in bodies]
    ears = watcher()
    for end in (6, 12, 22, 23, 24):  # from 12 to 22 it skips two
        ears.hear(frame(rows, end)).wait(2)
    assert ears.told == [("Bob", body) for body in [*bodies[:12], *bodies[14:]]]
    for end in range(24, 7, -1):
        ears.hear(frame(rows, end)).wait(0.5)
    assert ears.wait().told[22:] == [("Bob", body) for body in bodies[12:14]]
