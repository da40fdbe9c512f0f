"""The virtual screen: rows, scrollback, modes, and repainting."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.shim.modes import AT_REST, UNDO
from relay.terminal import libghostty
from relay.terminal import screen as screens
from relay.terminal.libghostty import ScreenUnavailable
from relay.terminal.screen import Colours, Row, VirtualScreen


def screen(columns: int = 20, rows: int = 5, *fed: bytes) -> VirtualScreen:
    opened = VirtualScreen(columns, rows)
    opened.collect()
    for data in fed:
        opened.feed(data)
    return opened


def texts(opened: VirtualScreen) -> list[str]:
    return [row.text for row in opened.rows()]


def test_rows_are_the_active_screen() -> None:
    opened = screen(20, 5, "one\r\n日本\x1b[1;31m é\x1b[m\r\n".encode())
    assert opened.rows() == [Row("one"), Row("日本 é"), Row(""), Row(""), Row("")]
    assert (opened.columns, opened.height, opened.cursor) == (20, 5, (0, 2))


def test_a_wrapped_row_is_marked() -> None:
    opened = screen(5, 4, b"abcdefg\r\nabcde\r\n")
    assert opened.rows()[:3] == [Row("abcde", wrapped=True), Row("fg"), Row("abcde")]


PIECES = st.sampled_from(
    ["abcdefg", "a b  ", "     ", "日本", "\r\n", "\x1b[H", "\x1b[2;3H", "\x1b[K", "\x1b[1K", "\b"]
)


@given(st.lists(PIECES, max_size=12))
def test_rows_are_marked_as_wrapped_where_the_library_has_wrapped_them(pieces: list[str]) -> None:
    opened = screen(5, 4, "".join(pieces).encode())
    for y, row in enumerate(opened.rows()):
        if row.text:  # a blank row is a line of its own in any case
            assert row.wrapped == opened._row_has(libghostty.ROW_WRAP, libghostty.ACTIVE, y)


def test_a_wide_character_that_does_not_fit_is_only_in_the_next_row() -> None:
    opened = screen(5, 4, "abcd日\r\n\n\n".encode())
    assert opened.drain().rows == [Row("abcd", wrapped=True)]
    assert opened.rows()[0] == Row("日")


@pytest.mark.parametrize("emoji", ["🧑\u200d💻", "👍🏽", "🇩🇪", "❤️"])
def test_an_emoji_of_several_characters_takes_two_columns(emoji: str) -> None:
    """Agents count it that way: claude puts what follows into the third column, and wraps accordingly."""
    painted = screen(10, 3, f"\x1b[3G{emoji}\x1b[5Gab\r\n12345678{emoji}\r\nend".encode())
    assert texts(painted) == [f"  {emoji}ab", f"12345678{emoji}", "end"]
    assert b"2027" not in painted.repaint()


def test_rows_that_scroll_off_are_drained_once() -> None:
    opened = screen(20, 5, b"".join(b"line %d\r\n" % n for n in range(10)))
    assert [row.text for row in opened.drain().rows] == [f"line {n}" for n in range(6)]
    opened.feed(b"line 10\r\n")
    assert [row.text for row in opened.drain().rows] == ["line 6"]
    assert opened.drain().rows == []


@pytest.mark.parametrize("columns", [5, 20, 120, 400])
def test_no_scrolled_row_is_lost_in_a_flood(columns: int) -> None:
    opened = screen(columns)
    opened.feed(b"\n" * 20_000)
    assert not opened.drain().lost
    opened.feed(b"\x1b[H")
    rows = []
    for start in range(0, 50_000, 5000):
        opened.feed(b"".join(b"%d\r\n" % n for n in range(start, start + 5000)))
        drained = opened.drain()
        assert not drained.lost
        rows += drained.rows
    assert [int(row.text) for row in rows] == list(range(50_000 - 4))


def test_a_wrapped_row_is_still_marked_when_it_scrolls_off() -> None:
    opened = screen(5, 2, b"abcdefghij\r\n")
    assert opened.drain().rows == [Row("abcde", wrapped=True)]


def test_scrolled_rows_do_not_return() -> None:
    opened = screen(20, 3, b"a\r\nb\r\nc\r\nd")
    assert [row.text for row in opened.drain().rows] == ["a"]
    opened.resize(20, 6)
    assert texts(opened)[:3] == ["b", "c", "d"]
    opened.feed(b"\x1b[?1049h\x1b[2J\x1b[Hx\r\n\r\n\r\n\r\n\r\n\r\n\r\n")
    assert opened.alternate
    assert opened.drain().rows == []
    opened.feed(b"\x1b[?1049l")
    assert not opened.alternate
    assert texts(opened)[:3] == ["b", "c", "d"]
    assert opened.drain().rows == []


def test_a_reset_clears_the_screen_and_loses_no_scrolled_row() -> None:
    opened = screen(20, 3, b"a\r\nb\r\nc\r\nd", b"\x1bcx\r\ny\r\nz")
    drained = opened.drain()
    assert not drained.lost
    assert [row.text for row in drained.rows] == ["a"]
    assert texts(opened) == ["x", "y", "z"]


def test_rows_cleared_before_they_were_drained_are_reported_as_lost() -> None:
    assert screen(20, 3, b"a\r\nb\r\nc\r\nd\x1bcx\r\ny\r\nz\r\nw").drain().lost


def test_modes_and_title_are_tracked() -> None:
    opened = screen()
    assert not (opened.bracketed_paste or opened.synchronized or opened.alternate)
    assert opened.cursor_visible
    opened.feed(b"\x1b[?2004h\x1b[?2026h\x1b[?25l\x1b]0;a title\x07")
    assert opened.bracketed_paste
    assert opened.synchronized
    assert not opened.cursor_visible
    assert opened.title == "a title"
    opened.feed(b"\x1b[?2004l\x1b[?2026l")
    assert not (opened.bracketed_paste or opened.synchronized)


def test_ground_is_true_only_between_sequences_and_characters() -> None:
    opened = screen()
    for data, ground in (
        (b"a", True),
        (b"\x1b[3", False),
        (b"1m", True),
        (b"\xe6\x97", False),
        (b"\xa5", True),
    ):
        opened.feed(data)
        assert opened.ground is ground


def test_queries_are_answered_only_on_request() -> None:
    opened = screen()
    opened.feed(b"ab\x1b[6n")
    answers: list[bytes] = []
    opened.answer_queries(answers.append)
    opened.feed(b"\x1b[6n")
    opened.answer_queries(None)
    opened.feed(b"\x1b[6n\x1b[c")
    assert answers == [b"\x1b[1;3R"]


def test_rows_with_a_mark_have_its_colours() -> None:
    opened = screen(40, 6)
    opened.feed(b"plain @one\r\n\x1b[38;2;1;2;3;48;5;16m@two\x1b[0m\r\n")
    assert [row.colours for row in opened.rows()[:2]] == [None, None]
    opened.note("@", "```", colours=True)
    opened.feed(b"\x1b[31m  ```sh\x1b[0m\r\n\x1b[48;5;231mno mark\x1b[0m\r\n\x1b[38;5;244m@five @\x1b[0m")
    rows = opened.rows()
    assert [row.colours for row in rows] == [
        Colours(),
        Colours(0x010203, 0x000000),
        Colours(0xCD0000),
        None,
        Colours(0x808080),
        None,
    ]
    assert rows[0].text == "plain @one"
    opened.feed(b"\r\n\r\n\r\n\r\n")
    assert opened.drain().rows == rows[:3]


def test_a_cell_has_its_colours() -> None:
    opened = screen(10, 2, b"a\x1b[38;2;255;0;128mb\x1b[48;5;196mc")
    assert [opened.colours(x, 0) for x in range(4)] == [
        Colours(),
        Colours(0xFF0080),
        Colours(0xFF0080, 0xFF0000),
        Colours(),
    ]


DRAWINGS = {
    "text": b"one\r\n\r\nthree",
    "colours": b"\x1b[1;31mred\x1b[0m \x1b[48;2;1;2;3mrgb\x1b[m \x1b[4;38;5;99mpalette\x1b[m",
    "wide": "日本 👍 é\r\n한국어".encode(),
    "clusters": "🧑\u200d💻👍🏽🇩🇪❤️ wraps here 🇩🇪".encode(),
    "full rows": b"x" * 60,
    "a blank before the wrap": b"x" * 19 + b" yz",
    "a blank in the last column": b"x" * 19 + b" ",
    "a wide character that did not fit": b"x" * 19 + "日".encode(),
    "erased behind the wrap": b"x" * 25 + b"\x1b[2;1H\x1b[K",
    "a row below one erased behind the wrap": b"x" * 25 + b"\r\nbelow\x1b[2;1H\x1b[K",
    "blanks behind the wrap": b"x" * 20 + b" " * 20 + b"\r\nbelow",
    "all rows": b"1\r\n2\r\n3\r\n4\r\n5",
    "alternate": b"shell\r\n\x1b[?1049h\x1b[2J\x1b[3;5Hmiddle",
    "cursor": b"text\x1b[4;7H\x1b[?25l",
    "modes": b"\x1b[?2004h\x1b[?1002h\x1b[?1006h\x1b[?1h\x1b=ready",
    "region": b"head\x1b[2;4r\x1b[4;1Hbody",
    "cursor's shape, colours": b"\x1b[4 q\x1b]12;#ff0000\x07\x1b]11;rgb:00/00/10\x1b\\\x1b]4;1;red\x07text",
    "tab stops": b"\x1b[3g\x1b[5G\x1bH\r\tx",
    "an open link": b"see \x1b]8;;https://x.org\x1b\\li",
    "links": "see \x1b]8;;https://x.org\x1b\\li\x1b[1;31mn中k\x1b[0me\u0301👨‍👩‍👧\x1b]8;;\x1b\\ end\r\n"
    "\x1b[31mred \x1b]8;;https://y.org\x07that wraps at the end".encode(),
    "attributes that continue": b"plain \x1b[7;33mmore",
}


def test_a_repaint_reproduces_the_screen_in_another_terminal(subtests: pytest.Subtests) -> None:
    for name, drawing in DRAWINGS.items():
        with subtests.test(name):
            one = screen(20, 5, drawing)
            other = screen(20, 5, b"some\r\nleft\r\novers\x1b[41m\x1b[2;3r", one.repaint())
            assert texts(other) == texts(one)
            for what in ("cursor", "cursor_visible", "alternate", "bracketed_paste"):
                assert getattr(other, what) == getattr(one, what), what
            assert other.repaint() == one.repaint()
            # The program's next output looks the same on both.
            more = b"next \x1b[31mred\r\nlast"
            one.feed(more)
            other.feed(more)
            assert other.repaint() == one.repaint()


def test_a_repaint_keeps_links() -> None:
    one = screen(
        20,
        5,
        "a \x1b]8;;https://x.org\x1b\\li\x1b[1mn中k\x1b]8;;https://y.org\x07e\u0301\x1b]8;;\x07 b".encode(),
    )
    linked = (
        "\x1b]8;;https://x.org\x1b\\li\x1b[0m\x1b[1mn中k\x1b]8;;https://y.org\x1b\\e\u0301\x1b]8;;\x1b\\ b"
    )
    assert f"a {linked}" in one.repaint().decode()


def test_the_modes_that_a_program_left_are_undone() -> None:
    fresh = screen(20, 5, b"\x1b[m")
    used = screen(
        20,
        5,
        b"\x1b[?1049h\x1b[?2004h\x1b[?1003h\x1b[?1006h\x1b[?1004h\x1b[?25l\x1b[?1h\x1b[?7l\x1b[?2026h",
        b"\x1b[2;3r\x1b[1;31m\x1b(0\x1b[>1u",
    )
    used.feed(used.modes_reset())
    assert not (used.alternate or used.bracketed_paste or used.synchronized)
    assert used.cursor_visible
    assert used.modes_reset() == fresh.modes_reset()
    used.feed(b"\x1b[2J\x1b[Hq")
    assert texts(used)[0] == "q"


def test_colours_that_a_program_set_are_reset(subtests: pytest.Subtests) -> None:
    """And only those: a shell may have set others."""
    cases = [
        (b"\x1b]11;#000010\x1b\\", b"\x1b]111\x1b\\"),
        (b"\x1b]4;1;red\x07\x1b]12;red\x07", b"\x1b]104\x1b\\\x1b]112\x1b\\"),
        (b"\x1b]22;wait\x07", b"\x1b]22;\x1b\\"),
        (b"\x1b]8;;https://x.org\x07", b"\x1b]8;;\x1b\\"),
        (b"\x1b]11;?\x07\x1b]2;title\x07", b""),
    ]
    for drawn, reset in cases:
        with subtests.test(repr(drawn)):
            used, plain = screen(20, 5, b"\x1b[m", drawn), screen(20, 5, b"\x1b[m")
            assert used.modes_reset() == plain.modes_reset().replace(AT_REST, reset + AT_REST)


@pytest.mark.parametrize(
    "drawn",
    [
        b"\x1b]11;#000010\x1b\\",
        b"\x1b]4;1;red\x07",
        b"\x1b]8;;https://x.org\x07",
        b"\x1b[5 q",
        b"\x1b]22;wait\x07",
    ],
)
def test_a_sequence_that_arrives_in_pieces_is_reset_and_set_again(drawn: bytes) -> None:
    """A4, A8: an agent's output is read in chunks of any size."""
    whole = screen(20, 5, b"\x1b[m", drawn)
    for at in range(1, len(drawn)):
        pieces = screen(20, 5, b"\x1b[m", drawn[:at], drawn[at:])
        assert pieces.modes_reset() == whole.modes_reset()
        assert pieces.repaint() == whole.repaint()
    assert screen(20, 5, *(drawn[at : at + 1] for at in range(len(drawn)))).repaint() == whole.repaint()


LEFT_SET = {
    b"\x1b[>4;2m": b"\x1b[>4m",  # modifyOtherKeys
    b"\x1b[>1;3m": b"\x1b[>m",  # modifyCursorKeys
    b"\x1b[>4;1f": b"\x1b[>4f",  # formatOtherKeys
    b"\x1b[>31u": b"\x1b[<99u",  # kitty's keyboard protocol
    b"\x1b[2h\x1b[4h\x1b[20h": b"\x1b[2;4;20l",  # the keyboard is locked, insert, line feed
    b"\x1b[12l": b"\x1b[12h",  # local echo
    b"\x1b[2;3r": b"\x1b[r",  # the scroll region
    b'\x1b[1"q': b'\x1b[0"q',  # protected characters
    b"\x1b[1;2'z": b"\x1b[0'z",  # the locator
    b"\x1b[3g": b"\x1b[?5W",  # tab stops
    b"\x1b(0\x0e": b"\x1b(B\x1b)B\x0f",  # character sets
    b"\x1b=": b"\x1b>",  # the keypad
    b"\x1b[5 q": b"\x1b[0 q",  # the cursor's shape
    b"\x1b[?5522h\x1b[?9001h": b"\x1b[?80;1001;1045;1050;1051;1052;1053;1060;1061;5522;9001l",
}
"""What a program may set, and what resets it (xterm's ctlseqs, kitty's keyboard protocol)."""


def test_what_no_query_shows_is_reset_always(subtests: pytest.Subtests) -> None:
    """A4: by a session, and by the shim alone."""
    for left, reset in LEFT_SET.items():
        with subtests.test(repr(left)):
            assert reset in screen(20, 5, left).modes_reset()
            assert reset in UNDO


def test_colours_that_a_program_reset_are_not_set_again() -> None:
    used = screen(20, 5, b"\x1b]11;#000010\x07\x1b]4;1;red\x07\x1b]111\x07\x1b]104\x07\x1b]12;red\x07")
    assert b"\x1b]12;red\x07" in used.repaint()
    assert b"]11;" not in used.repaint() and b"]4;" not in used.repaint()


def test_a_program_that_only_printed_leaves_nothing_to_undo() -> None:
    assert screen(20, 5, b"plain text\r\n").modes_reset() == b""


def test_a_blind_reset_leaves_the_text_and_the_cursor_unchanged() -> None:
    opened = screen(20, 5, b"a\r\nb", UNDO, b"c")
    assert texts(opened)[:2] == ["a", "bc"]


def test_undoing_nothing_leaves_the_text_and_the_cursor_unchanged() -> None:
    opened = screen(20, 5, b"a\x1b[mb")
    opened.feed(opened.modes_reset() + b"c")
    assert texts(opened)[0] == "abc"


def test_a_screen_of_one_cell_works() -> None:
    opened = screen(1, 1, "a日\r\nb".encode())
    opened.resize(0, 0)
    assert len(opened.rows()) == 1
    assert opened.failed is None


def test_a_failure_stops_the_analysis_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = screen(20, 3)

    def refuse(*_: object) -> None:
        raise screens._CallFailed("reading a row failed with -1")

    monkeypatch.setattr(opened, "_ref", refuse)
    opened.feed(b"a\r\n" * 10)
    assert opened.failed is not None
    assert "-1" in opened.failed
    opened.feed(b"more")
    assert opened.rows() == [Row("")] * 3


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    libghostty.load.cache_clear()
    with pytest.raises(ScreenUnavailable, match="pip install pyghostty"):
        VirtualScreen(80, 24)


def test_the_package_itself_is_not_imported() -> None:
    """The import takes 150 ms."""
    import subprocess
    import sys

    code = "import sys; from relay.terminal.screen import VirtualScreen; VirtualScreen(8, 2)\n"
    code += "print([m for m in sys.modules if m in ('pyghostty', 'cffi', 'asyncio')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_enormous_screen_is_limited_in_size() -> None:
    screen = VirtualScreen(65535, 65535)
    assert (screen.columns, screen.height) == (2000, 1000)
    screen.resize(80, 24)
    screen.resize(65535, 65535)
    assert (screen.columns, screen.height) == (2000, 1000)
    screen.feed(b"\x1b[65535;65535Hx")
    assert screen.cursor == (1999, 999)
    assert len(screen.rows()) == 1000
    screen.close()
