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
