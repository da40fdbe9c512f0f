"""What an agent draws that is not its words: echoes, tools' output, code, panels, half a page."""

from __future__ import annotations

import re
import textwrap

import pytest
from hearing import Ears

from relay.agents.profile import ANY_COLOUR, RowStyle

LINE = "@relay:Bob hi there"
HI = [("Bob", "hi there")]
CLEAR = "\x1b[2J\x1b[H"
FULL = "\x1b[?1049h\x1b[2J\x1b[H"


def background(colour: int) -> str:
    return f"\x1b[48;2;{colour >> 16};{colour >> 8 & 255};{colour & 255}m"


def foreground(colour: int) -> str:
    return f"\x1b[38;2;{colour >> 16};{colour >> 8 & 255};{colour & 255}m"


ECHO = RowStyle(backgrounds=frozenset({0x373737}), foregrounds=frozenset({0xCBA6F7}))


@pytest.mark.parametrize("colour", [background(0x373737), foreground(0xCBA6F7)])
def test_what_is_drawn_in_the_colours_of_an_echo_is_not_said(colour: str) -> None:
    ears = Ears(echo=ECHO).hear(f"{CLEAR}{colour}  {LINE}\x1b[0m\r\n\r\n  @relay:Ann real\r\n").wait()
    assert ears.told == [("Ann", "real")]
    assert Ears().hear(f"{CLEAR}{colour}  {LINE}\x1b[0m\r\n").wait().told == HI


@pytest.mark.parametrize("colour", [background(0x383838), foreground(0x373737), "\x1b[1;7m"])
def test_other_colours_are_no_echo(colour: str) -> None:
    assert Ears(echo=ECHO).hear(f"{CLEAR}{colour}  {LINE}\x1b[0m\r\n").wait().told == HI


def test_any_colour_is_every_one_but_the_terminals_own() -> None:
    echo = RowStyle(backgrounds=frozenset({ANY_COLOUR}))
    text = f"{CLEAR}\x1b[48;5;236m{LINE}\x1b[0m\r\n\r\n\x1b[31m@relay:Ann real\x1b[0m\r\n"
    assert Ears(echo=echo).hear(text).wait().told == [("Ann", "real")]


def test_an_echo_that_scrolls_off_before_it_is_looked_at_is_none_of_the_agents_words() -> None:
    lines = "".join(f"line {n}\r\n" for n in range(30))
    text = f"{CLEAR}{background(0x373737)}{LINE}\x1b[0m\r\n{lines}@relay:Ann real\r\n"
    assert Ears(80, 10, echo=ECHO).hear(text).wait().told == [("Ann", "real")]


def test_a_fence_that_was_typed_opens_none() -> None:
    ears = Ears(echo=ECHO).hear(f"{CLEAR}{background(0x373737)}```\x1b[0m\r\n\r\n{LINE}\r\n").wait()
    assert ears.told == HI


def test_a_sign_before_a_row_makes_it_an_echo() -> None:
    echo = RowStyle(lines=(re.compile(r"^(\w+)?> "),))
    ears = Ears(60, 12, echo=echo)
    ears.hear(f"{CLEAR}diff> words that were typed\r\n{LINE}\r\n\r\ndiff> {LINE}\r\n").wait()
    assert ears.told == HI


def test_rows_that_hang_on_a_corner_are_what_a_tool_printed() -> None:
    echo = RowStyle(lines=(re.compile(r"^\s*⎿"),))
    text = f"● Bash(cat notes)\r\n  ⎿ \u00a0first\r\n     {LINE}\r\n\r\n     @relay:Ann real\r\n"
    assert Ears(echo=echo).hear(CLEAR + text).wait().told == [("Ann", "real")]
    text = f"● Bash(cat notes)\r\n  ⎿ \u00a0first\r\n  {LINE}\r\n"
    assert Ears(echo=echo).hear(CLEAR + text).wait().told == HI


@pytest.mark.parametrize("sign", ["›", "  ┃"])
def test_nothing_hangs_on_another_sign(sign: str) -> None:
    """Codex keeps the last prompt in the first row of a page that scrolls below it."""
    echo = RowStyle(lines=(re.compile(r"^\s*[›┃]"),))
    assert Ears(echo=echo).hear(f"{CLEAR}{sign} a question\r\n     {LINE}\r\n").wait().told == HI


@pytest.mark.parametrize(
    "code",
    [
        RowStyle(backgrounds=frozenset({0xF8F8F8})),
        RowStyle(foregrounds=frozenset({0x010203})),
        RowStyle(lines=(re.compile(r"^ *\d+ "),)),
    ],
)
def test_what_is_drawn_as_code_is_said_but_is_no_directive(code: RowStyle) -> None:
    drawn = f"{background(0xF8F8F8)}{foreground(0x010203)}{LINE}\x1b[0m\r\n1 {LINE}\r\n"
    ears = Ears(code=code).hear(f"{CLEAR}{drawn}\r\n@relay:Ann real\r\n").wait()
    assert ("Ann", "real") in ears.told
    assert len(ears.told) == (1 if not code.lines else 2)
    assert ears.texts[:2] == [LINE, f"1 {LINE}"]
    assert any(line.code for line in ears.lines)


def test_code_that_is_coloured_a_moment_later_is_code() -> None:
    code = RowStyle(foregrounds=frozenset({ANY_COLOUR}))
    ears = Ears(code=code).hear(f"{CLEAR}{LINE}\x1b[20;5H").wait(0.5)
    assert ears.hear(f"\x1b[H{foreground(0x112233)}{LINE}\x1b[0m\x1b[20;5H").wait().told == []


def panel(rows: int, *, width: int, columns: int) -> str:
    at = columns - width + 1
    return "".join(
        f"\x1b[{y};{at}H{background(0x141414)} LSP{' ' * (width - 4)}\x1b[0m" for y in range(1, rows + 1)
    )


def test_a_panel_at_the_right_is_no_part_of_the_text() -> None:
    echo = RowStyle(backgrounds=frozenset({0x141414}))
    rows = [
        "@relay:Bob a message that is wrapped at the margin of its",
        "own part of the screen",
        "",
        "@relay:Ann hi",
    ]
    drawn = "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, start=2))
    ears = Ears(80, 12, echo=echo).hear(FULL + drawn + panel(12, width=20, columns=80)).wait()
    assert ears.told == [
        ("Bob", "a message that is wrapped at the margin of its own part of the screen"),
        ("Ann", "hi"),
    ]


def test_what_a_resize_has_cut_off_is_not_said() -> None:
    """A full-screen program redraws its page a moment after the resize."""
    long = "@relay:Bob one two three four five six seven eight nine ten eleven twelve"
    ears = Ears(80, 12).hear(f"{FULL}{long}\r\n\r\nmore").wait()
    ears.resize(50, 12).wait(0.05).hear("\x1b[14t").wait(1.5)
    wrapped = "\r\n".join(textwrap.wrap(long, 49))
    ears.hear(f"{CLEAR}{wrapped}\r\n\r\nmore").wait()
    assert ears.told == [("Bob", long.removeprefix("@relay:Bob "))]


def test_a_line_whose_first_rows_scroll_away_while_it_grows_is_whole() -> None:
    rows = [
        "@relay:Bob the first row of a message that",
        "goes on in a second one, which in turn is",
        "followed by a third row, where it ends.",
    ]
    ears = Ears(45, 12).hear("\x1b[?1049h").wait()
    pages = [rows[:1], rows[:2], rows[1:], [rows[2], "", "And then some prose."]]
    for page in pages:
        shown = [*page, *[""] * 12][:12]
        ears.hear("".join(f"\x1b[{y};1H{row}\x1b[K" for y, row in enumerate(shown, start=1))).wait(0.1)
    assert ears.wait().told == [("Bob", " ".join(rows).removeprefix("@relay:Bob "))]


@pytest.mark.parametrize("end", [">>>", "│ >>", "  >>", "> > >", "│ │ >>"])
def test_the_end_of_a_form_may_be_drawn_as_a_quote(end: str) -> None:
    text = f"{CLEAR}@relay:Bob <<<\r\nfirst\r\nlast\r\n{end}\r\n@relay:Ann hi\r\n"
    assert Ears().hear(text).wait().told == [("Bob", "first\nlast"), ("Ann", "hi")]


def test_words_that_happen_to_fill_two_rows_keep_the_blank_between_them() -> None:
    rows = ["@relay:Bob some words of it", "up to the margin of the row", "and more."]
    assert len(rows[0]) == len(rows[1]) == 27
    ears = (
        Ears(27, 12).hear(CLEAR + "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, start=1))).wait()
    )
    assert ears.told == [("Bob", "some words of it up to the margin of the row and more.")]


def test_the_blank_that_had_no_room_in_a_full_row_may_begin_the_next() -> None:
    """qwen wraps that way."""
    rows = ["  @relay:Bob some words of it", "   up to the margin."]
    ears = (
        Ears(29, 12).hear(CLEAR + "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, start=1))).wait()
    )
    assert ears.told == [("Bob", "some words of it up to the margin.")]


@pytest.mark.parametrize("ears", [Ears(), Ears(echo=ECHO)], ids=["plain", "styled"])
def test_a_cell_of_a_table_is_no_directive(ears: Ears) -> None:
    """Blanks separate its columns: text that begins in one may end in another."""
    table = [
        "   head      tail",
        "  ━━━━━━━━  ━━━━━",
        f"   {LINE}  said",
        "  ────────  ─────",
        f"   {LINE}  again",
    ]
    text = [*table, "", "  @relay:Ann real", "  ────────────────", "  @relay:Ann below a rule"]
    assert ears.hear(CLEAR + "\r\n".join(text) + "\r\n").wait().told == [
        ("Ann", "real"),
        ("Ann", "below a rule"),
    ]


def test_a_rule_in_one_piece_is_that_of_a_table_right_below_heads() -> None:
    """aider draws its tables that way; a rule across the screen, or below prose, separates words."""
    table = [" head             tail", " " + "─" * 30, f" {LINE}  said", ""]
    said = [
        "a  double blank",
        "",
        "─" * 30,
        LINE,
        "",
        "a  double blank",
        "─" * 60,
        LINE,
        "",
        "prose",
        "───",
        LINE,
    ]
    ears = Ears(60, 24).hear(CLEAR + "\r\n".join([*table, *said]) + "\r\n").wait()
    assert ears.told == HI * 3
