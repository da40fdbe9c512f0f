"""Full-screen programs that draw in frames (mode 2026), the newest lines at the bottom of a window."""

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
    """The frame that shows `rows` up to `end`: the last prompt above them, an input below."""
    shown = ["> the prompt", *rows[max(0, end - WINDOW) : end]]
    shown += [""] * (WINDOW + 1 - len(shown)) + FOOTER
    drawn = "".join(f"\x1b[{row};1H{text}\x1b[K" for row, text in enumerate(shown, start=1))
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
    """Its end may be short, come back as the window moves down by a row, and lie in the block itself."""
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
    """The agent draws the beginning of its queue, and what is being said now; then all between them comes."""
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


def test_scrolling_back_says_only_what_was_never_drawn() -> None:
    bodies = [chr(ord("A") + n) * 12 for n in range(24)]
    rows = [f"  @relay:Bob {body}" for body in bodies]
    ears = watcher()
    for end in (6, 12, 22, 23, 24):  # from 12 to 22 it jumps over two
        ears.hear(frame(rows, end)).wait(2)
    assert ears.told == [("Bob", body) for body in [*bodies[:12], *bodies[14:]]]
    for end in range(24, 7, -1):
        ears.hear(frame(rows, end)).wait(0.5)
    assert ears.wait().told[22:] == [("Bob", body) for body in bodies[12:14]]
