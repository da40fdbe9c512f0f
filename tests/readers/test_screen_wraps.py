"""Lines longer than a row: text that a program or the terminal wraps is one line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from readers.rig import CLEAR, HI, LINE, LONG, Rig, at, drawing
from relay.columns import columns_of
from support import many


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("lead", ["", "  ", "● "])
def test_hard_wrapped_rows_are_one_line(columns: int, lead: str) -> None:
    text = " ".join(LONG.split())
    wrapped = textwrap.wrap(text, columns - len(lead) - 1)
    screen = at(2, lead + wrapped[0])
    screen += "".join(at(3 + n, " " * len(lead) + row) for n, row in enumerate(wrapped[1:]))
    rig = drawing(columns).write(screen + at(12, "  Another paragraph.")).wait()
    assert rig.found == [("Bob", text.removeprefix("@relay:Bob "))]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_rows_chopped_at_the_margin_are_one_line(columns: int) -> None:
    text = "@relay:Bob " + "abcdefg" * 60
    rows = [text[n : n + columns] for n in range(0, len(text), columns)]
    rig = drawing(columns).write("".join(at(2 + n, row) for n, row in enumerate(rows))).wait()
    assert rig.found == [("Bob", "abcdefg" * 60)]


def test_rows_of_wide_characters_are_joined_without_a_space() -> None:
    rows = ["@relay:Bob 日本語の本文がここで", "折り返されます"]
    rig = drawing(31).write(at(2, rows[0]) + at(3, rows[1])).wait()
    assert rig.found == [("Bob", "日本語の本文がここで折り返されます")]


def test_a_directive_followed_by_prose_is_not_joined_to_it() -> None:
    rig = drawing().write(at(2, "  " + LINE) + at(3, "  And then some prose.") + at(5, "end")).wait()
    assert rig.found == HI


def test_directives_in_consecutive_full_rows_are_not_joined() -> None:
    rows = [f"@relay:A{n} {'x' * 20} yy" for n in range(5)]
    rig = drawing(33).write("".join(at(2 + n, row) for n, row in enumerate(rows))).wait()
    assert [target for target, _ in rig.found] == ["A0", "A1", "A2", "A3", "A4"]


def test_a_mention_wrapped_to_the_start_of_a_row_is_not_a_directive() -> None:
    rig = drawing(40).write(at(2, "Some prose, so wide that it ends with") + at(3, "@relay:Bob here.")).wait()
    assert rig.found == []


def test_soft_wrapped_rows_are_one_line() -> None:
    text = " ".join(LONG.split())
    for columns in range(20, 60):
        rig = Rig(columns, 30).write(f"{CLEAR}{text}\r\n").wait()
        assert rig.found == [("Bob", text.removeprefix("@relay:Bob "))], columns


def test_two_long_messages_with_the_same_beginning_count_twice() -> None:
    first, second = (f"@relay:Bob {'the same words ' * 10}{end}" for end in ("one", "two"))
    rig = drawing(200).write(at(2, first)).wait().write(at(4, second)).wait()
    assert [body[-3:] for _, body in rig.found] == ["one", "two"]
    rig = drawing(200).write(at(2, first)).wait().write(at(2, second)).wait()
    assert [body[-3:] for _, body in rig.found] == ["one", "two"]


def wrapped_at(text: str, columns: int, wide: Callable[[str], int]) -> list[str]:
    """Return rows of at most `columns`, broken as pi does: at spaces, and inside words longer than a row."""
    rows = [""]
    for word in text.split():
        if rows[-1] and wide(f"{rows[-1]} {word}") <= columns:
            rows[-1] += f" {word}"
            continue
        rows += [""] if rows[-1] else []
        for character in word:
            if wide(rows[-1] + character) > columns:
                rows.append("")
            rows[-1] += character
    return rows


URL = "https://example.org/" + "a/very/long/path/" * 8 + "?n=1"


BODIES = [
    f"see {URL} and src/{'very_long_module_name_' * 6}.py:1204 END",
    f"see {URL}",
    "C1 请检查北方仓库的季度数据,然后把差异写进笔记。その後、田中さんに「四千四百七十一番」の箱について"
    "聞いてください。한국어로도 알려 주세요. 这是一段很长的中文文字,没有空格,所以终端必须在某个地方断行,"
    "而且每个字占两列,最后一个词是终点 END",
    "ship it 🚀 with the family 👨\u200d👩\u200d👧\u200d👦, café naïve Zoë, Ω≈ç√ and — dashes… END",
]


def test_a_directive_with_a_short_first_row_is_read_whole(subtests: pytest.Subtests) -> None:
    """F4: the next paragraph below it is a separate line."""
    for columns in [60, 80, 120, 200]:
        for lead in ["", " ", "● "]:
            for body in BODIES:
                with subtests.test(repr((columns, lead, body))):
                    rows = wrapped_at(f"@relay:Bob {body}", columns - len(lead) - 1, columns_of)
                    rows = [*rows, "", *wrapped_at("And then some prose.", columns, columns_of)]
                    drawn = "".join(
                        at(2 + n, (lead if n == 0 else " " * len(lead)) + row) for n, row in enumerate(rows)
                    )
                    rig = drawing(columns).write(drawn).wait()
                    assert rig.found == [("Bob", body)]
                    assert "And then some prose." in [text.strip() for text in rig.texts]


def test_a_long_word_after_others_is_read_whole(subtests: pytest.Subtests) -> None:
    """F4: qwen 0.24.4 breaks it at the edge of that row."""
    for columns in [60, 80, 120, 200]:
        for margin in [1, 2, 4]:
            with subtests.test(repr((columns, margin))):
                edge = columns - margin - 4
                url = URL * 3
                if len(f"@relay:Bob see {url}") % edge == 0:
                    url += "x"  # at the edge, a space is invisible
                text = f"@relay:Bob see {url} and then END"
                rows = [text[:edge], *wrapped_at(text[edge:], edge, columns_of)]
                drawn = "".join(at(2 + n, f"    {row}") for n, row in enumerate(rows))
                rig = drawing(columns).write("\x1b[?1049h", drawn).wait()
                assert rig.found == [("Bob", f"see {url} and then END")]


@pytest.mark.parametrize("emoji", ["👍🏽", "🇩🇪", "👨\u200d👩\u200d👧\u200d👦", "🇩🇪🇫🇷", "❤️", "☝🏽"])
def test_emoji_that_the_agent_counts_as_narrower_are_read_whole(emoji: str) -> None:
    """F13: one row of the agent is two on the screen, which draws the parts separately."""
    for before in range(56, 80):
        row = f"@relay:Bob {'x' * (before - 12)} {emoji * 2} and"
        rig = Rig(80, 12, kind="screen").write(f"{CLEAR}{row.ljust(76)}\r\n\r\nmore\r\n").wait()
        assert rig.found == [("Bob", row.removeprefix("@relay:Bob "))]


def test_prose_right_below_a_short_directive_is_not_joined_to_it() -> None:
    for prose in ("And then some prose.", "これは別の段落です。", "See https://example.org/a/path."):
        rig = drawing().write(at(2, f" {LINE}") + at(3, f" {prose}") + at(5, "end")).wait()
        assert rig.found == HI


def test_a_word_after_a_row_of_one_word_keeps_its_space() -> None:
    rows = ["@relay:Bob see", "x" * 66, "y" * 20]
    rig = drawing().write("".join(at(2 + n, f" {row}") for n, row in enumerate(rows))).wait()
    assert rig.found == [("Bob", f"see {rows[1]} {rows[2]}")]


PARAGRAPHS = [
    "- @relay:Bob first of a list",
    "@relay:Bob twice the same",
    "---",
    "@relay:Carol below a rule",
    "| who | what |",
    "```sh",
    "@relay:Bob in a fence",
    "```",
    f"@relay:Ann see {URL} END",
    "@relay:Bob 请检查北方仓库的季度数据,然后把差异写进笔记。その後、田中さんに聞いてください。这是一段很长",
    "---",
    "@relay:Bob twice the same",
    *(
        f"Paragraph {n} tells of rain on quiet hills, of boats and of a lamp that nobody lit."
        for n in range(9)
    ),
    "@relay:Carol the last of them, so long that it is wrapped at sixty columns and not at two hundred",
]
EXPECTED = [
    "first of a list",
    "twice the same",
    "below a rule",
    f"see {URL} END",
    PARAGRAPHS[9][11:],
    "twice the same",
]


def conversation(columns: int, paragraphs: list[str]) -> list[str]:
    """Return rows as pi draws them, with its input below."""
    rows: list[str] = []
    for paragraph in paragraphs:
        if paragraph == "---":
            rows.append(" " + "─" * (columns - 2))
        elif paragraph.startswith("|"):
            cell = "─" * (columns // 2 - 4)
            rows += [f" ┌{cell}┬{cell}┐", f" │ who{' ' * (len(cell) - 4)}│ @relay:No x", f" └{cell}┴{cell}┘"]
        else:
            rows += [f" {row}" for row in wrapped_at(paragraph, columns - 2, columns_of)]
        rows.append("")
    return [*rows, "─" * columns, "> ", "─" * columns, f" {columns} tokens"]


def redrawn(columns: int, paragraphs: list[str]) -> str:
    """Return the start of a frame that redraws everything."""
    return f"\x1b[?2026h{CLEAR}\x1b[3J" + "\r\n".join(conversation(columns, paragraphs))


@settings(max_examples=many(60))
@given(st.lists(st.tuples(st.sampled_from([60, 80, 120, 200]), st.sampled_from([0.0, 0.5, 3.0])), max_size=6))
@example([(120, 3.0), (80, 3.0), (60, 3.0), (200, 3.0)])
def test_a_conversation_redrawn_at_any_width_repeats_nothing(resizes: list[tuple[int, float]]) -> None:
    """F1: it has rules, a table, a list, code and Chinese; a directive that occurs twice counts twice."""
    rig = Rig(80, 24).write(CLEAR)
    for number in range(1, len(PARAGRAPHS)):
        if PARAGRAPHS[number - 1] not in ("```sh", PARAGRAPHS[6]):
            rig.write(redrawn(80, PARAGRAPHS[:number]) + "\x1b[?2026l").wait(1.5)
    assert [body for _, body in rig.found] == EXPECTED
    for columns, pause in resizes:
        rig.resize(columns, 24).wait(pause / 3).write(redrawn(columns, PARAGRAPHS[:-1])).wait(pause)
        rig.write("\x1b[?2026l").wait(pause)
    assert [body for _, body in rig.wait(3).found] == EXPECTED
    columns = resizes[-1][0] if resizes else 80
    rig.write(redrawn(columns, [*PARAGRAPHS, "@relay:Bob new"]) + "\x1b[?2026l").wait(3)
    assert [body for _, body in rig.found] == [*EXPECTED, PARAGRAPHS[-1].removeprefix("@relay:Carol "), "new"]


def test_a_slowly_drawn_frame_repeats_nothing() -> None:
    """F1: a busy machine takes seconds to draw it."""
    rig = Rig(80, 24).write(redrawn(80, PARAGRAPHS) + "\x1b[?2026l").wait()
    found, frame = rig.found, redrawn(120, PARAGRAPHS)
    rig.resize(120, 24).wait(2.5)
    for start in range(0, len(frame), 400):
        rig.write(frame[start : start + 400]).wait(0.9 if start % 800 else 2.5)
    assert rig.write("\x1b[?2026l").wait().found == found


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2003"])
def test_a_row_of_unusual_spaces_below_a_full_row_is_empty(blank: str) -> None:
    """Such a row once stopped the reader, so that an Enter went into a dialog."""
    for rows in (at(2, ("word " * 20)[:79]) + at(3, blank), at(2, "x" * 80 + blank)):
        rig = drawing(80).write(rows + at(5, LINE) + at(7, "end")).wait()
        assert rig.found == HI
