"""The lines reader, for programs that only print."""

from __future__ import annotations

import json

import pytest

from readers.rig import Rig, directives_in
from relay.readers.flood import FLOOD
from support import many

HI = [("Bob", "hi there")]


def test_a_line_ends_at_its_newline_and_not_before() -> None:
    rig = Rig().write("@relay:Bob hi").wait(0.3).write(" the").wait(0.3)
    assert rig.lines == []
    assert rig.write("re\r\n").found == HI
    assert rig.reader.kind == "lines"


def test_a_line_ends_when_the_program_waits_for_input() -> None:
    rig = Rig().write("@relay:Bob hi there").prompted()
    assert rig.found == HI
    assert rig.prompted().write("\r\n").close().found == HI


def test_text_after_a_prompt_is_a_separate_line() -> None:
    rig = Rig().write("name? ").prompted().write("thanks\r\n")
    assert rig.texts == ["name? ", "thanks"]


def test_a_redrawn_prompt_is_read_once() -> None:
    rig = Rig().write("@relay:Bob hi there").prompted().write("\r@relay:Bob hi there\x1b[K\r\n")
    assert rig.found == HI


def test_the_end_of_the_output_ends_the_line() -> None:
    assert Rig().write("@relay:Bob hi there").close().found == HI


def test_two_identical_directives_count_twice() -> None:
    assert Rig().write("@relay:Bob hi there\r\n@relay:Bob hi there\r\n").found == HI * 2


def test_several_directives_in_one_write_are_read() -> None:
    rig = Rig().write("@relay:A 1\n@relay:B 2\n\n@relay:C 3\n")
    assert rig.found == [("A", "1"), ("B", "2"), ("C", "3")]


LINES = [
    "\x1b[1;32m@relay:Bob\x1b[0m hi there",
    "\x1b[?2026h@relay:Bob hi there\x1b[?2026l",
    "\x1b(B\x1b[m@relay:\x1b(BBob hi\x1b[m there",
    "\x1b]0;title\x07@relay:Bob hi\x1b]8;;http://x/\x1b\\ there\x1b]8;;\x1b\\",
    "\x1bP1$r0m\x1b\\@relay:Bob \x1bPq#0@relay:No\x1b\\hi there",
    "\x1b_Gq=2;@relay:No\x1b\\@relay:Bob hi there",
    "\x1b^privacy\x1b\\\x1bXstart\x1b\\@relay:Bob hi there",
    "\x9b1m@relay:Bob\x9bm hi\x9d0;title\x9c there",
    "@relay:Bob\x1b[12Ghi\x1b[15Gthere",
    "@relay:Bob\x1b[1Chi\x1b[Cthere",
    "@relay:Bob hithere\x1b[5D\x1b[1@",
    "@relay:Bob hi therx\b\x1b[Xe",
    "downloading 10%\r@relay:Bob hi there\x1b[K",
    "@relay:Bob hi thexx\b\bre",
    "@relay:Bob hi thexx\x1b[2Dre",
    "@relay:Bob hi xxthere\x1b[7D\x1b[2P",
    "xxxxx\x1b[1G@relay:Bob hi there",
    "xxxxx\x1b[2K\r@relay:Bob hi there",
    "@relay:Bob hi there and more\x1b[9D\x1b[K",
    "@relay:Bob hi there!!\x1b[2D\x1b[2X",
    "@relay:Bob hi there\r\r",
    "\x00@relay:Bob\x00 hi there\x7f",
    "\x07@relay:Bob hi there\x07",
]


def test_the_text_of_a_line_is_what_it_leaves_on_the_terminal(subtests: pytest.Subtests) -> None:
    for line in LINES:
        with subtests.test(repr(line)):
            assert Rig().write(f"before\r\n{line}\r\n").found == HI


def test_words_placed_by_columns_keep_their_spaces() -> None:
    rig = Rig().write("@relay:Erin\x1b[15Gline\x1b[20Gtwo\r\n")
    assert rig.found == [("Erin", "line two")]


def test_text_after_a_carriage_return_overwrites_only_its_own_width() -> None:
    assert Rig().write("@relay:Bob one\r@relay:Ann\r\n").found == [("Ann", "one")]


@pytest.mark.parametrize(
    "text", ["日本語の本文", "emoji 👩‍👩‍👧 🎉 done", "cafe\u0301 naïve", "العربية", "한국어"]
)
def test_wide_and_combining_characters_are_read(text: str) -> None:
    line = f"@relay:Bob {text}"
    for raw in (line, f"x\r{line}", f"{line}!\b \b"):
        assert Rig().write(f"{raw}\r\n").found == [("Bob", text)]


def test_overwriting_half_of_a_wide_character_blanks_the_other_half() -> None:
    assert Rig().write("@relay:Bob 日本\x1b[12Gx\r\n").found == [("Bob", "x 本")]


def test_invalid_utf8_is_replaced() -> None:
    assert Rig().write(b"\xff\xfe\x80\n@relay:Bob hi \xc3(\n").found == [("Bob", "hi \ufffd(")]


def test_a_newline_in_a_string_sequence_does_not_end_a_line() -> None:
    data = "x\n\x1bPdata\n@relay:No way\nmore\x1b\\@relay:Bob hi there\n"
    for at in range(len(data)):
        assert Rig().write(data[:at], data[at:]).found == HI


STRING_ENDS = ["\x07", "\x1b\\", "\x18", "\x1a", "\x1b[m", "\x9c"]


def test_text_after_an_image_is_read_in_chunks_of_any_size(subtests: pytest.Subtests) -> None:
    for size in [100, 4096, 65_536, 1 << 20]:
        for end in STRING_ENDS:
            for newlines in [False, True]:
                with subtests.test(f"{size} {end!r} {newlines}"):
                    content = ("@relay:No way\n" if newlines else "QUJDREVGR0hJ") * (400_000 // 13)
                    after = "".join(f"@relay:Bob number {n}\n" for n in range(200))
                    data = f"here it is:\n\x1b]1337;File=inline=1:{content}{end}\n{after}".encode()
                    assert directives_in(data, chunk=size) == [("Bob", f"number {n}") for n in range(200)]


@pytest.mark.parametrize("end", STRING_ENDS)
def test_an_image_may_span_two_sessions(end: str) -> None:
    first = Rig().write("\x1b]1337;File=inline=1:", *["QUJD" * 1024] * 100)
    saved = json.dumps(first.pipeline.state())
    assert len(saved) < 2000
    second = Rig()
    second.pipeline.restore((80, 24), b"", json.loads(saved))
    assert second.write("QUJD\n" * 100, f"{end}\n@relay:Bob hi there\n").found == HI
    ends = [line.place.offset for line in second.lines]
    assert ends[-1] == second.reader.offset == 21 + 409_600 + 500 + len(end.encode()) + 21


def test_a_flood_after_an_open_string_is_read() -> None:
    for flood in (filler(FLOOD), b"no newline, " * FLOOD):
        rig = Rig().write("\x1b]52;c;QUJD", b"QUJD\nQUJD\x07" + flood + b"\n@relay:Bob hi there\n" + flood)
        assert rig.found == HI


def test_a_tab_stays_a_tab() -> None:
    assert Rig().write("@relay:Bob <<<\nall:\n\tcc x.c\n>>>\n").found == [("Bob", "all:\n\tcc x.c")]


def test_sequences_and_characters_may_be_split_at_any_byte() -> None:
    data = "\x1b[1m@relay:Bob\x1b[0m\x1b]0;t\x1b\\ 日本 é 👍\x1b[K\x9b0m end\r\n".encode()
    for at in range(1, len(data)):
        assert Rig().write(data[:at], data[at:]).found == [("Bob", "日本 é 👍 end")]


def test_many_directives_in_a_row_are_read() -> None:
    count = many(100_000)
    data = b"".join(b"@relay:Bob number %d\r\n" % n for n in range(count))
    assert directives_in(data, chunk=65536) == [("Bob", f"number {n}") for n in range(count)]


def filler(size: int) -> bytes:
    return (b"a plain line of output without anything to find\r\n" * (size // 40))[:size] + b"\r\n"


def test_only_what_can_matter_is_read_from_a_flood() -> None:
    chunk = filler(FLOOD) + b"@relay:Bob hi there\r\n" + filler(FLOOD)
    rig = Rig().write("first line\r\n", chunk, "last line\r\n")
    assert rig.found == HI
    assert len(rig.lines) < 50
    assert rig.texts[0] == "first line"
    assert rig.texts[-1] == "last line"
    [directive] = [line for line in rig.lines if line.text.startswith("@")]
    assert directive.gap


def test_a_line_that_a_flood_starts_or_ends_in_is_read_whole() -> None:
    rig = Rig().write("@relay:Bob hi", b" there\r\n" + filler(FLOOD) + b"@relay:Ann go", " on\r\n")
    assert rig.found == [*HI, ("Ann", "go on")]


def test_fences_and_forms_hold_through_a_flood() -> None:
    body = "\n".join(f"line {n}" for n in range(5000))
    flood = filler(FLOOD).decode()
    rig = Rig().write(flood + f"```\n{flood}@relay:In x\n{flood}```\n@relay:Bob <<<\n{body}\n>>>\n{flood}")
    assert rig.found == [("Bob", body)]


def test_a_coloured_flood_is_read() -> None:
    line = b"\x1b[32mgreen\x1b[0m and plain\r\n"
    rig = Rig().write(line * 1000 + b"\x1b[1m@\x1b[0mrelay:Bob hi there\r\n" + line * 1000)
    assert rig.found == HI


def test_an_endless_line_is_bounded() -> None:
    rig = Rig()
    for _ in range(100):
        rig.write(b"x" * 65536)
    assert rig.write("\n@relay:Bob hi there\n").found == HI
    assert max(len(line.text) for line in rig.lines) <= 256 * 1024


def test_lines_are_not_joined_across_lost_output() -> None:
    rig = Rig().write("@relay:Bob hi")
    assert rig.reader.gap(100, rig.now) == []
    rig.write(" there\r\nnext\r\n")
    assert rig.found == []
    assert [line.gap for line in rig.lines] == [True, False]


def test_the_unfinished_line_is_the_one_at_the_cursor() -> None:
    rig = Rig().write("done\r\nInstall? [Y/n] ")
    assert rig.reader.unfinished() == "Install? [Y/n]"
    assert Rig().reader.unfinished() == ""
    assert Rig(10).write("Install it now? [Y/n]").reader.unfinished() == "Install it now? [Y/n]"


def test_without_a_screen_cursor_movement_splits_the_line() -> None:
    rig = Rig(kind="lines").write("one\x1b[2;1H@relay:Bob hi there\x1b[5;1H\n")
    assert rig.found == HI
