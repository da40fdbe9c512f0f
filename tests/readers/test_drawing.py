"""What an agent draws besides its own text: echoes, tools' output, code, panels, half a page."""

from __future__ import annotations

import re
import textwrap

import pytest

from readers.rig import Rig
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
def test_text_in_the_colours_of_an_echo_is_ignored(colour: str) -> None:
    rig = Rig(echo=ECHO).write(f"{CLEAR}{colour}  {LINE}\x1b[0m\r\n\r\n  @relay:Ann real\r\n").wait()
    assert rig.found == [("Ann", "real")]
    assert Rig().write(f"{CLEAR}{colour}  {LINE}\x1b[0m\r\n").wait().found == HI


@pytest.mark.parametrize("colour", [background(0x383838), foreground(0x373737), "\x1b[1;7m"])
def test_text_in_other_colours_is_not_an_echo(colour: str) -> None:
    assert Rig(echo=ECHO).write(f"{CLEAR}{colour}  {LINE}\x1b[0m\r\n").wait().found == HI


def test_any_colour_matches_all_but_the_terminals_default() -> None:
    echo = RowStyle(backgrounds=frozenset({ANY_COLOUR}))
    text = f"{CLEAR}\x1b[48;5;236m{LINE}\x1b[0m\r\n\r\n\x1b[31m@relay:Ann real\x1b[0m\r\n"
    assert Rig(echo=echo).write(text).wait().found == [("Ann", "real")]


def test_an_echo_that_scrolls_off_before_it_is_read_is_ignored() -> None:
    lines = "".join(f"line {n}\r\n" for n in range(30))
    text = f"{CLEAR}{background(0x373737)}{LINE}\x1b[0m\r\n{lines}@relay:Ann real\r\n"
    assert Rig(80, 10, echo=ECHO).write(text).wait().found == [("Ann", "real")]


def test_a_typed_fence_does_not_open_one() -> None:
    rig = Rig(echo=ECHO).write(f"{CLEAR}{background(0x373737)}```\x1b[0m\r\n\r\n{LINE}\r\n").wait()
    assert rig.found == HI


def test_a_prompt_sign_before_a_row_makes_it_an_echo() -> None:
    echo = RowStyle(lines=(re.compile(r"^(\w+)?> "),))
    rig = Rig(60, 12, echo=echo)
    rig.write(f"{CLEAR}diff> words that were typed\r\n{LINE}\r\n\r\ndiff> {LINE}\r\n").wait()
    assert rig.found == HI


def test_rows_indented_below_a_corner_are_tool_output() -> None:
    echo = RowStyle(lines=(re.compile(r"^\s*⎿"),))
    text = f"● Bash(cat notes)\r\n  ⎿ \u00a0first\r\n     {LINE}\r\n\r\n     @relay:Ann real\r\n"
    assert Rig(echo=echo).write(CLEAR + text).wait().found == [("Ann", "real")]
    text = f"● Bash(cat notes)\r\n  ⎿ \u00a0first\r\n  {LINE}\r\n"
    assert Rig(echo=echo).write(CLEAR + text).wait().found == HI


@pytest.mark.parametrize("sign", ["›", "  ┃"])
def test_rows_indented_below_another_sign_are_not_tool_output(sign: str) -> None:
    """Codex keeps the last prompt in the first row of a page that scrolls below it."""
    echo = RowStyle(lines=(re.compile(r"^\s*[›┃]"),))
    assert Rig(echo=echo).write(f"{CLEAR}{sign} a question\r\n     {LINE}\r\n").wait().found == HI


@pytest.mark.parametrize(
    "code",
    [
        RowStyle(backgrounds=frozenset({0xF8F8F8})),
        RowStyle(foregrounds=frozenset({0x010203})),
        RowStyle(lines=(re.compile(r"^ *\d+ "),)),
    ],
)
def test_text_drawn_as_code_is_read_but_is_not_a_directive(code: RowStyle) -> None:
    drawn = f"{background(0xF8F8F8)}{foreground(0x010203)}{LINE}\x1b[0m\r\n1 {LINE}\r\n"
    rig = Rig(code=code).write(f"{CLEAR}{drawn}\r\n@relay:Ann real\r\n").wait()
    assert ("Ann", "real") in rig.found
    assert len(rig.found) == (1 if not code.lines else 2)
    assert rig.texts[:2] == [LINE, f"1 {LINE}"]
    assert any(line.code for line in rig.lines)


def test_code_that_is_coloured_a_moment_later_is_not_a_directive() -> None:
    code = RowStyle(foregrounds=frozenset({ANY_COLOUR}))
    rig = Rig(code=code).write(f"{CLEAR}{LINE}\x1b[20;5H").wait(0.5)
    assert rig.write(f"\x1b[H{foreground(0x112233)}{LINE}\x1b[0m\x1b[20;5H").wait().found == []


def panel(rows: int, *, width: int, columns: int) -> str:
    at = columns - width + 1
    return "".join(
        f"\x1b[{y};{at}H{background(0x141414)} LSP{' ' * (width - 4)}\x1b[0m" for y in range(1, rows + 1)
    )


def test_a_panel_on_the_right_is_not_part_of_the_text() -> None:
    echo = RowStyle(backgrounds=frozenset({0x141414}))
    rows = [
        "@relay:Bob a message that is wrapped at the margin of its",
        "own part of the screen",
        "",
        "@relay:Ann hi",
    ]
    drawn = "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, start=2))
    rig = Rig(80, 12, echo=echo).write(FULL + drawn + panel(12, width=20, columns=80)).wait()
    assert rig.found == [
        ("Bob", "a message that is wrapped at the margin of its own part of the screen"),
        ("Ann", "hi"),
    ]


def test_a_line_cut_off_by_a_resize_is_not_read() -> None:
    """A full-screen program redraws its page a moment after the resize."""
    long = "@relay:Bob one two three four five six seven eight nine ten eleven twelve"
    rig = Rig(80, 12).write(f"{FULL}{long}\r\n\r\nmore").wait()
    rig.resize(50, 12).wait(0.05).write("\x1b[14t").wait(1.5)
    wrapped = "\r\n".join(textwrap.wrap(long, 49))
    rig.write(f"{CLEAR}{wrapped}\r\n\r\nmore").wait()
    assert rig.found == [("Bob", long.removeprefix("@relay:Bob "))]


def test_a_line_whose_first_rows_scroll_off_while_it_grows_is_read_whole() -> None:
    rows = [
        "@relay:Bob the first row of a message that",
        "goes on in a second one, which in turn is",
        "followed by a third row, where it ends.",
    ]
    rig = Rig(45, 12).write("\x1b[?1049h").wait()
    pages = [rows[:1], rows[:2], rows[1:], [rows[2], "", "And then some prose."]]
    for page in pages:
        shown = [*page, *[""] * 12][:12]
        rig.write("".join(f"\x1b[{y};1H{row}\x1b[K" for y, row in enumerate(shown, start=1))).wait(0.1)
    assert rig.wait().found == [("Bob", " ".join(rows).removeprefix("@relay:Bob "))]


@pytest.mark.parametrize("end", [">>>", "│ >>", "  >>", "> > >", "│ │ >>"])
def test_the_end_of_a_form_may_be_drawn_as_a_quote(end: str) -> None:
    text = f"{CLEAR}@relay:Bob <<<\r\nfirst\r\nlast\r\n{end}\r\n@relay:Ann hi\r\n"
    assert Rig().write(text).wait().found == [("Bob", "first\nlast"), ("Ann", "hi")]


def test_words_that_fill_two_rows_exactly_keep_the_space_between_them() -> None:
    rows = ["@relay:Bob some words of it", "up to the margin of the row", "and more."]
    assert len(rows[0]) == len(rows[1]) == 27
    rig = (
        Rig(27, 12).write(CLEAR + "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, start=1))).wait()
    )
    assert rig.found == [("Bob", "some words of it up to the margin of the row and more.")]


def test_a_space_that_does_not_fit_into_a_full_row_may_start_the_next() -> None:
    """qwen wraps that way."""
    rows = ["  @relay:Bob some words of it", "   up to the margin."]
    rig = (
        Rig(29, 12).write(CLEAR + "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, start=1))).wait()
    )
    assert rig.found == [("Bob", "some words of it up to the margin.")]


@pytest.mark.parametrize("rig", [Rig(), Rig(echo=ECHO)], ids=["plain", "styled"])
def test_a_table_cell_is_not_a_directive(rig: Rig) -> None:
    """Spaces separate its columns, so that text which starts in one may end in another."""
    table = [
        "   head      tail",
        "  ━━━━━━━━  ━━━━━",
        f"   {LINE}  said",
        "  ────────  ─────",
        f"   {LINE}  again",
    ]
    text = [*table, "", "  @relay:Ann real", "  ────────────────", "  @relay:Ann below a rule"]
    assert rig.write(CLEAR + "\r\n".join(text) + "\r\n").wait().found == [
        ("Ann", "real"),
        ("Ann", "below a rule"),
    ]


def test_an_unbroken_rule_right_below_headers_belongs_to_a_table() -> None:
    """aider draws its tables that way; a rule across the screen or below prose separates text."""
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
    rig = Rig(60, 24).write(CLEAR + "\r\n".join([*table, *said]) + "\r\n").wait()
    assert rig.found == HI * 3
