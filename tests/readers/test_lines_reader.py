"""Programs that only print lines."""

from __future__ import annotations

import json

import pytest
from hearing import Ears, directives_in

from relay.readers.flood import FLOOD

HI = [("Bob", "hi there")]


def test_a_line_ends_at_its_newline_and_not_before() -> None:
    ears = Ears().hear("@relay:Bob hi").wait(0.3).hear(" the").wait(0.3)
    assert ears.lines == []
    assert ears.hear("re\r\n").told == HI
    assert ears.reader.kind == "lines"


def test_a_line_ends_when_the_program_waits_for_input() -> None:
    ears = Ears().hear("@relay:Bob hi there").prompted()
    assert ears.told == HI
    assert ears.prompted().hear("\r\n").close().told == HI


def test_what_follows_a_prompt_is_a_line_of_its_own() -> None:
    ears = Ears().hear("name? ").prompted().hear("thanks\r\n")
    assert ears.texts == ["name? ", "thanks"]


def test_a_redrawn_prompt_is_said_once() -> None:
    ears = Ears().hear("@relay:Bob hi there").prompted().hear("\r@relay:Bob hi there\x1b[K\r\n")
    assert ears.told == HI


def test_the_end_of_the_output_ends_the_line() -> None:
    assert Ears().hear("@relay:Bob hi there").close().told == HI


def test_two_identical_directives_are_two() -> None:
    assert Ears().hear("@relay:Bob hi there\r\n@relay:Bob hi there\r\n").told == HI * 2


def test_several_directives_in_one_write() -> None:
    ears = Ears().hear("@relay:A 1\n@relay:B 2\n\n@relay:C 3\n")
    assert ears.told == [("A", "1"), ("B", "2"), ("C", "3")]


@pytest.mark.parametrize(
    "line",
    [
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
    ],
)
def test_the_text_is_what_the_line_leaves_on_the_terminal(line: str) -> None:
    assert Ears().hear(f"before\r\n{line}\r\n").told == HI


def test_words_placed_by_columns_keep_their_spaces() -> None:
    ears = Ears().hear("@relay:Erin\x1b[15Gline\x1b[20Gtwo\r\n")
    assert ears.told == [("Erin", "line two")]


def test_a_carriage_return_overwrites_only_what_it_writes_over() -> None:
    assert Ears().hear("@relay:Bob one\r@relay:Ann\r\n").told == [("Ann", "one")]


@pytest.mark.parametrize(
    "text", ["日本語の本文", "emoji 👩‍👩‍👧 🎉 done", "cafe\u0301 naïve", "العربية", "한국어"]
)
def test_wide_and_combining_characters(text: str) -> None:
    line = f"@relay:Bob {text}"
    for raw in (line, f"x\r{line}", f"{line}!\b \b"):
        assert Ears().hear(f"{raw}\r\n").told == [("Bob", text)]


def test_overwriting_half_of_a_wide_character_blanks_the_other() -> None:
    assert Ears().hear("@relay:Bob 日本\x1b[12Gx\r\n").told == [("Bob", "x 本")]


def test_bytes_that_are_not_utf8_do_not_matter() -> None:
    assert Ears().hear(b"\xff\xfe\x80\n@relay:Bob hi \xc3(\n").told == [("Bob", "hi \ufffd(")]


def test_a_newline_within_a_string_sequence_ends_no_line() -> None:
    data = "x\n\x1bPdata\n@relay:No way\nmore\x1b\\@relay:Bob hi there\n"
    for at in range(len(data)):
        assert Ears().hear(data[:at], data[at:]).told == HI


STRING_ENDS = ["\x07", "\x1b\\", "\x18", "\x1a", "\x1b[m", "\x9c"]


@pytest.mark.parametrize("size", [100, 4096, 65_536, 1 << 20])
@pytest.mark.parametrize("end", STRING_ENDS)
@pytest.mark.parametrize("newlines", [False, True])
def test_the_words_after_an_image_of_any_size_are_read(size: int, end: str, newlines: bool) -> None:
    content = ("@relay:No way\n" if newlines else "QUJDREVGR0hJ") * (400_000 // 13)
    after = "".join(f"@relay:Bob number {n}\n" for n in range(200))
    data = f"here it is:\n\x1b]1337;File=inline=1:{content}{end}\n{after}".encode()
    assert directives_in(data, chunk=size) == [("Bob", f"number {n}") for n in range(200)]


@pytest.mark.parametrize("end", STRING_ENDS)
def test_an_image_may_outlast_the_session_that_began_to_read_it(end: str) -> None:
    first = Ears().hear("\x1b]1337;File=inline=1:", *["QUJD" * 1024] * 100)
    saved = json.dumps(first.pipeline.state())
    assert len(saved) < 2000
    second = Ears()
    second.pipeline.restore((80, 24), b"", json.loads(saved))
    assert second.hear("QUJD\n" * 100, f"{end}\n@relay:Bob hi there\n").told == HI
    ends = [line.place.offset for line in second.lines]
    assert ends[-1] == second.reader.offset == 21 + 409_600 + 500 + len(end.encode()) + 21


def test_a_flood_after_an_open_string_is_read() -> None:
    for flood in (filler(FLOOD), b"no newline, " * FLOOD):
        ears = Ears().hear("\x1b]52;c;QUJD", b"QUJD\nQUJD\x07" + flood + b"\n@relay:Bob hi there\n" + flood)
        assert ears.told == HI


def test_a_tab_stays_a_tab() -> None:
    assert Ears().hear("@relay:Bob <<<\nall:\n\tcc x.c\n>>>\n").told == [("Bob", "all:\n\tcc x.c")]


def test_sequences_and_characters_split_at_every_byte() -> None:
    data = "\x1b[1m@relay:Bob\x1b[0m\x1b]0;t\x1b\\ 日本 é 👍\x1b[K\x9b0m end\r\n".encode()
    for at in range(1, len(data)):
        assert Ears().hear(data[:at], data[at:]).told == [("Bob", "日本 é 👍 end")]


def test_a_hundred_thousand_directives_in_a_row() -> None:
    data = b"".join(b"@relay:Bob number %d\r\n" % n for n in range(100_000))
    told = directives_in(data, chunk=65536)
    assert told == [("Bob", f"number {n}") for n in range(100_000)]


def filler(size: int) -> bytes:
    return (b"a plain line of output without anything to find\r\n" * (size // 40))[:size] + b"\r\n"


def test_a_flood_is_skipped_but_for_what_can_matter() -> None:
    chunk = filler(FLOOD) + b"@relay:Bob hi there\r\n" + filler(FLOOD)
    ears = Ears().hear("first line\r\n", chunk, "last line\r\n")
    assert ears.told == HI
    assert len(ears.lines) < 50
    assert ears.texts[0] == "first line"
    assert ears.texts[-1] == "last line"
    [directive] = [line for line in ears.lines if line.text.startswith("@")]
    assert directive.gap


def test_a_line_that_a_flood_begins_or_ends_within_is_whole() -> None:
    ears = Ears().hear("@relay:Bob hi", b" there\r\n" + filler(FLOOD) + b"@relay:Ann go", " on\r\n")
    assert ears.told == [*HI, ("Ann", "go on")]


def test_fences_and_forms_hold_through_a_flood() -> None:
    body = "\n".join(f"line {n}" for n in range(5000))
    flood = filler(FLOOD).decode()
    ears = Ears().hear(flood + f"```\n{flood}@relay:In x\n{flood}```\n@relay:Bob <<<\n{body}\n>>>\n{flood}")
    assert ears.told == [("Bob", body)]


def test_a_colourful_flood_is_read_too() -> None:
    line = b"\x1b[32mgreen\x1b[0m and plain\r\n"
    ears = Ears().hear(line * 1000 + b"\x1b[1m@\x1b[0mrelay:Bob hi there\r\n" + line * 1000)
    assert ears.told == HI


def test_a_line_without_end_is_bounded() -> None:
    ears = Ears()
    for _ in range(100):
        ears.hear(b"x" * 65536)
    assert ears.hear("\n@relay:Bob hi there\n").told == HI
    assert max(len(line.text) for line in ears.lines) <= 256 * 1024


def test_lost_output_is_never_joined_across() -> None:
    ears = Ears().hear("@relay:Bob hi")
    assert ears.reader.gap(100, ears.now) == []
    ears.hear(" there\r\nnext\r\n")
    assert ears.told == []
    assert [line.gap for line in ears.lines] == [True, False]


def test_the_unfinished_line_is_what_the_cursor_stands_on() -> None:
    ears = Ears().hear("done\r\nInstall? [Y/n] ")
    assert ears.reader.unfinished() == "Install? [Y/n]"
    assert Ears().reader.unfinished() == ""
    assert Ears(10).hear("Install it now? [Y/n]").reader.unfinished() == "Install it now? [Y/n]"


def test_without_a_screen_movement_parts_the_line() -> None:
    ears = Ears(kind="lines").hear("one\x1b[2;1H@relay:Bob hi there\x1b[5;1H\n")
    assert ears.told == HI
