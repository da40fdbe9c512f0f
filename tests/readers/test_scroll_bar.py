"""A full-screen program's scroll bar is not part of its rows; the sides of boxes are."""

from __future__ import annotations

import pytest

from relay.columns import columns_of
from relay.readers.scroll_bar import without_scroll_bar
from relay.terminal.screen import Row

TEXTS = ["@relay:Bob one", "", "  two 漢字", "three", "", "four", "five", "six", "seven"]
BAR = "│││███│││"
FOOTER = [Row(""), Row("─" * 40), Row("> ")]


def drawn(texts: list[str], bar: str, column: int) -> list[Row]:
    """Return `texts` with one character of `bar` after each, in `column`."""
    pairs = zip(texts, bar, strict=True)
    return [Row(text + " " * (column - 1 - columns_of(text)) + beside) for text, beside in pairs]


@pytest.mark.parametrize("column", [40, 30])
@pytest.mark.parametrize("bar", [BAR, "░░░▓▓▓░░░", "│" * 8 + "█", "█" * 9, "┃" * 9])
def test_a_scroll_bar_is_removed_at_the_margin_and_at_that_of_another_size(column: int, bar: str) -> None:
    rows = drawn(TEXTS, bar, column) + FOOTER
    assert without_scroll_bar(rows, 40).rows == [Row(text) for text in TEXTS] + FOOTER


def test_a_scroll_bar_is_removed_from_rows_wrapped_by_a_narrower_terminal() -> None:
    texts = ["x" * 50, *TEXTS[3:], ""]
    rows = []
    for row in drawn(texts, BAR[: len(texts)], 60):
        rows += [Row(row.text[:40].rstrip(), wrapped=True), Row(row.text[40:])]
    found = [row.text for row in without_scroll_bar(rows, 40).rows]
    assert found == [part for text in texts for part in (text[:40], text[40:])]


def test_text_cut_off_by_a_scroll_bar_is_hidden() -> None:
    """Such rows were laid out for a wider page. Drawings, such as the side of a box, may be cut off."""
    texts = ["漢字" * 9 + "仮", *TEXTS[1:4], "x" * 39, *TEXTS[5:7], "─" * 38 + "╮", " a box".ljust(38) + "│"]
    found = without_scroll_bar(drawn(texts, BAR, 40) + FOOTER, 40)
    assert found.torn
    assert [row.text for row in found.rows if row.hidden] == [texts[4]]
    assert found.rows[:9] == [Row(text, hidden=text == texts[4]) for text in texts]


@pytest.mark.parametrize(
    "rows",
    [
        [Row("│" + "x".ljust(38) + "│")] * 6,  # a box
        [Row("┃ x".ljust(39) + "┃")] * 6,
        [Row("x".ljust(39) + "█")] * 2,  # too low
        [Row("x" * 39 + "█")] * 6,  # no space before it
        [Row("one █"), Row("three █"), Row("ab █")] * 4,  # a chart
    ],
)
def test_other_characters_at_the_margin_stay(rows: list[Row]) -> None:
    assert without_scroll_bar(rows + FOOTER, 40) == (rows + FOOTER, False)
