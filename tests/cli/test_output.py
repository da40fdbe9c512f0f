"""Tables: their columns line up, whatever the contents, and they fit a given width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.cli.output import table
from relay.columns import columns_of, cut, fit

WIDE = ["", "Ann", "王小明", "e\u0301te\u0301", "🇩🇪 Bonn", "👍🏽", "❤\ufe0f", "한국어 text", "x" * 40]
TEXTS = st.one_of(
    st.sampled_from(WIDE), st.text("a 王🎉\u0301", max_size=30).map(lambda text: " ".join(text.split()))
)


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("王小明", 6, "王小明"),
        ("王小明", 5, "王小…"),
        ("王小明", 4, "王…"),
        ("👍🏽👍🏽👍🏽", 5, "👍🏽👍🏽…"),
        ("🇩🇪🇫🇷", 3, "🇩🇪…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("王", 1, "…"),
    ],
)
def test_text_is_cut_between_characters(text: str, columns: int, shown: str) -> None:
    assert cut(text, columns) == shown
    assert columns_of(fit(text, columns)) == columns
    assert fit(text, columns, right=True).lstrip() == shown


def test_columns_line_up_with_wide_characters() -> None:
    rows = [("NAME", "NUMBER", "TEXT"), ("王小明王", "7", "a"), ("👍🏽 Bob", "1,234", "b"), ("Ann", "", "c")]
    assert table(rows, right=[1]) == [
        "NAME      NUMBER  TEXT",
        "王小明王       7  a",
        "👍🏽 Bob     1,234  b",
        "Ann               c",
    ]


def test_the_widest_column_shrinks_first() -> None:
    rows = [("Ann", "x" * 30, "y" * 20), ("Bob", "z", "")]
    assert table(rows, 40) == [f"Ann  {'x' * 16}…  {'y' * 15}…", "Bob  z"]
    assert table(rows, 20) == ["Ann  xxxxxxxxxxx…  …", "Bob  z"]


def test_colours_take_no_columns() -> None:
    rows = [("Ann", "ready", "王小明"), ("Bob", "failed", "x")]
    plain = table(rows, 14)
    painted = table(rows, 14, colours=[{1: "\x1b[32m"}, {}])
    assert painted == [plain[0].replace("ready ", "\x1b[32mready \x1b[0m"), plain[1]]


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=6), st.integers(1, 90))
def test_no_line_exceeds_the_width_and_cells_line_up(rows: list[tuple[str, str, str]], columns: int) -> None:
    assert all(columns_of(line) <= columns for line in table(rows, columns))
    first, second = (max(columns_of(row[at]) for row in rows) for at in (0, 1))
    assert table(rows) == [f"{fit(a, first)}  {fit(b, second)}  {c}".rstrip() for a, b, c in rows]
