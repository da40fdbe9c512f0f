"""The screen reader, for programs that draw: it recognises text by its position on the screen."""

from __future__ import annotations

import textwrap

import pytest

from readers.rig import CLEAR, HI, LINE, LONG, Rig, at, box, directives_in, drawing
from support import many


def test_a_line_is_read_once_it_has_settled() -> None:
    rig = drawing().write(at(3, LINE)).wait(0.1)
    assert rig.found == []
    assert rig.wait(2).found == HI


HIDDEN = "\u200b\u200c\u200d\u200e\u202e\u2060\u2066\ufeff\u034f\u061c\u180e\U000e0041\ufe0f"


def test_a_directive_after_invisible_characters_is_ignored(subtests: pytest.Subtests) -> None:
    """S13: this holds wherever the output is split."""
    for hidden in [*HIDDEN, HIDDEN]:
        for behind in ["", "  ", "\x1b[1m"]:
            with subtests.test(f"U+{ord(hidden[0]):04X} {len(hidden)} {behind!r}"):
                text = f"{hidden}{behind}{LINE}"
                assert drawing().write(at(3, text)).wait(3).found == []
                rig, data = drawing(), at(3, text).encode()
                for byte in data:
                    rig.write(bytes([byte]))
                assert rig.wait(3).found == []
                assert drawing().write(at(3, "\u26a0\ufe0f fine")).write(at(4, LINE)).wait(3).found == HI


def test_a_line_with_something_newer_below_it_is_read_sooner() -> None:
    rig = drawing().write(at(3, LINE)).wait(0.1).write(at(5, "more")).wait(0.4)
    assert rig.found == HI


def test_a_line_drawn_in_pieces_is_one_line() -> None:
    rig = drawing()
    for end in range(4, len(LINE), 4):
        rig.write(at(3, LINE[:end])).wait(0.3)
    assert rig.write(at(3, LINE)).wait().found == HI


def test_waiting_for_input_settles_the_screen() -> None:
    assert drawing().write(at(3, LINE)).prompted().found == HI
    assert Rig().write(CLEAR + LINE).prompted().found == HI


def test_the_end_of_the_output_settles_the_screen() -> None:
    assert Rig().write(CLEAR + LINE).close().found == HI


def test_two_identical_directives_count_twice() -> None:
    rig = drawing().write(at(3, LINE)).wait().write(at(5, LINE)).wait()
    assert rig.found == HI * 2
    assert drawing().write(at(3, LINE) + at(4, LINE)).wait().found == HI * 2


def test_a_directive_painted_eleven_times_counts_once() -> None:
    rig = drawing()
    for _ in range(11):
        for place, letter in enumerate(LINE):
            rig.write(at(3, letter, place + 1)).wait(0.01)
        rig.wait(0.5)
    assert rig.wait().found == HI


def test_a_directive_erased_and_painted_again_counts_once() -> None:
    rig = drawing().write(at(3, LINE) + at(5, "after")).wait()
    for _ in range(5):
        rig.write(at(3, "\x1b[2K")).wait(0.1)
        for end in range(3, len(LINE) + 1, 4):
            rig.write(at(3, LINE[:end])).wait(0.05 if end < 15 else 3)
        rig.write(at(3, LINE)).wait(2)
    assert rig.found == HI


def test_a_dialog_drawn_over_a_directive_and_removed_changes_nothing() -> None:
    page = at(2, "before") + at(3, LINE) + at(4, "after")
    rig = drawing().write(page).wait()
    rig.write("".join(at(row, "\x1b[2K   Proceed?") for row in (2, 3, 4))).wait(5)
    rig.write("".join(at(row, "\x1b[2K") for row in (2, 3, 4)) + page).wait(5)
    assert rig.found == HI


def test_words_placed_by_columns_keep_their_spaces() -> None:
    rig = drawing().write(at(3, "@relay:Erin\x1b[15Gline\x1b[20Gtwo")).wait()
    assert rig.found == [("Erin", "line two")]


def test_a_spinner_below_does_not_keep_a_line_from_being_read() -> None:
    rig = drawing().write(at(3, LINE))
    for second in range(30):
        rig.write(at(5, f"* Working... ({second}s)")).wait(0.1)
    assert rig.found == HI


def test_a_spinner_below_does_not_complete_a_line() -> None:
    """The spinner's glyph changes in every frame; the model pauses in the middle of a line."""
    words = LINE.split()
    rig = Rig(60, 12).write("\x1b[?1049h" + CLEAR)
    for n in range(12 * len(words)):
        said = " ".join(words[: 1 + n // 12])
        rig.write(at(4, f"{said}\x1b[K"), at(8, f"{'◐◓◑◒'[n % 4]} {n % 7} esc interrupt\x1b[K")).wait(0.05)
    assert rig.wait(6).found == HI


def test_a_text_that_is_drawn_twice_is_read_once_it_has_settled() -> None:
    """opencode draws a link followed by its address until its highlighter has processed it."""
    for settle, found in ((0.0, "see u (u)"), (1.0, "see u")):
        rig = Rig(60, 12, settle=settle).write("\x1b[?1049h" + CLEAR).wait()
        rig.write(at(2, "@relay:Bob see u (u)")).wait(0.1).write(at(4, "more")).wait(0.6)
        assert rig.write(at(2, "@relay:Bob see u\x1b[K")).wait().found == [("Bob", found)]


def test_text_drawn_over_at_the_margin_is_not_read() -> None:
    """opencode positions each wide character, and repeats one that only half fits in the next row."""
    text = "@relay:Bob " + "漢字仮名交じり文" * 3
    rig = Rig(40, 12).write("\x1b[?1049h" + CLEAR)
    rig.write(at(2, text[:25]), at(3, f"{text[24]} {text[26:]}"), at(5, "@relay:Ann next")).wait()
    assert rig.found == [("Ann", "next")]
    assert len(rig.passed_over) == 1


def test_frames_are_read_whole() -> None:
    """A synchronised update (mode 2026) that arrives in two parts shows nothing until it ends."""
    rig = Rig(60, 12).write(CLEAR + LINE + "\r\n").wait()
    rig.write("\x1b[?2026h\x1b[H@relay:Ann half\x1b[K\r\n").wait(0.5)
    rig.write(f"\x1b[H{LINE}\x1b[K\r\n\x1b[?2026l").wait()
    assert rig.found == HI


def test_a_frame_that_never_ends_is_read_eventually() -> None:
    assert Rig(60, 12).write(f"{CLEAR}\x1b[?2026h{LINE}\r\n").wait(12).found == HI


def test_lines_are_read_in_the_order_of_their_places() -> None:
    """An agent may draw the end of a code block before its start is complete."""
    rig = drawing().write(at(3, "```te") + at(4, LINE) + at(5, "```") + at(7, "more")).wait(0.25)
    rig.write(at(3, "```text") + at(7, "more text")).wait()
    rig.write(at(9, "@relay:Ann outside")).wait()
    assert rig.found == [("Ann", "outside")]


def test_a_flood_in_a_drawing_program_is_skipped_except_for_its_tail() -> None:
    flood = b"a plain line of output without anything to find\r\n" * 1000
    rig = Rig(60, 12).write(CLEAR, "@relay:Bob hi", b" there\r\n" + flood, "@relay:Ann after it\r\n").wait()
    assert rig.found == [*HI, ("Ann", "after it")]
    assert len(rig.lines) < 50
    assert any(line.gap for line in rig.lines)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[1;32m@relay:Bob\x1b[0m hi there",
        "\x1b[?2026h@relay:Bob hi there\x1b[?2026l",
        "\x1b(B@relay:\x1b(BBob hi there",
        "\x1b]0;title\x07@relay:Bob hi\x1b]8;;http://x/\x1b\\ there\x1b]8;;\x1b\\",
        "\x1bPq#0@relay:No\x1b\\@relay:Bob hi there",
        "\x9b1m@relay:Bob\x9bm hi\x9d0;title\x9c there",
    ],
)
def test_sequences_before_and_inside_a_directive_do_not_matter(text: str) -> None:
    assert drawing().write(at(3, text)).wait().found == HI


@pytest.mark.parametrize("text", ["日本語の本文", "emoji 👩‍👩‍👧 🎉 done", "cafe\u0301 naïve", "한국어"])
def test_wide_and_combining_characters_are_read(text: str) -> None:
    assert drawing().write(at(3, f"@relay:Bob {text}")).wait().found == [("Bob", text)]


def test_sequences_and_characters_may_be_split_at_any_byte() -> None:
    data = (CLEAR + at(3, "\x1b[1m@relay:Bob\x1b[0m 日本 é 👍\x1b[0m end") + box(24)).encode()
    for cut in range(1, len(data)):
        assert Rig().write(data[:cut], data[cut:]).wait().found == [("Bob", "日本 é 👍 end")]


def test_lines_that_scroll_off_are_read() -> None:
    rig = Rig(80, 10).write(CLEAR)
    for n in range(100):
        rig.write(f"@relay:Bob number {n}\r\n")
    assert rig.wait().found == [("Bob", f"number {n}") for n in range(100)]


def test_a_line_that_scrolls_off_after_it_was_read_is_read_once() -> None:
    rig = Rig(80, 10).write(CLEAR + LINE + "\r\n").wait()
    assert rig.found == HI
    assert rig.write("filler\r\n" * 30).wait().found == HI


def test_many_directives_in_a_row_are_read() -> None:
    count = many(100_000)
    data = CLEAR.encode() + b"".join(b"@relay:Bob number %d\r\n" % n for n in range(count))
    assert directives_in(data, chunk=65536) == [("Bob", f"number {n}") for n in range(count)]


def test_a_transcript_that_scrolls_by_repainting_is_read_once() -> None:
    """A full-screen program repaints every row when a line is added below; one directive occurs twice."""
    transcript = ["one", LINE, *(f"filler {n}" for n in range(12)), LINE, *(f"more {n}" for n in range(12))]
    rig = Rig(60, 12).write("\x1b[?1049h" + CLEAR + box(12)).wait()
    for end in range(1, len(transcript) + 1):
        window = transcript[max(0, end - 8) : end]
        rig.write("".join(at(1 + row, f"{text}\x1b[K") for row, text in enumerate(window))).wait(0.1)
    assert rig.wait().found == HI * 2


def test_scrolling_back_and_forth_repeats_nothing() -> None:
    transcript = ["one", LINE, *(f"filler {n}" for n in range(30)), "@relay:Ann bye", "end"]
    rig = Rig(60, 12).write("\x1b[?1049h" + CLEAR).wait()
    ends = [*range(8, len(transcript) + 1), *range(len(transcript), 7, -1), *range(8, len(transcript) + 1)]
    for end in ends:
        window = transcript[end - 8 : end]
        rig.write("".join(at(1 + row, f"{text}\x1b[K") for row, text in enumerate(window))).wait(0.1)
    assert rig.wait().found == [*HI, ("Ann", "bye")]


def test_lines_that_scroll_off_within_a_region_are_read() -> None:
    rig = Rig(60, 12).write(CLEAR + "header\r\n\x1b[12;1Hfooter\x1b[2;11r\x1b[11;1H")
    for n in range(50):
        rig.write(f"\r\n@relay:Bob number {n}")
    assert rig.wait().found == [("Bob", f"number {n}") for n in range(50)]


def test_a_burst_within_a_region_of_the_alternate_screen_is_read() -> None:
    rig = Rig(60, 12).write("\x1b[?1049h" + CLEAR + "header\x1b[2;11r\x1b[11;1H").wait()
    rig.write("".join(f"\r\n@relay:Bob number {n}" for n in range(500)))
    assert rig.wait().found == [("Bob", f"number {n}") for n in range(500)]


def page(end: int) -> str:
    lines = ["welcome", LINE, *(f"filler {n}" for n in range(30)), "@relay:Ann bye", "end"]
    return "\r\n".join(lines[:end]) + "\r\n"


def test_clearing_and_reprinting_the_page_repeats_nothing(subtests: pytest.Subtests) -> None:
    for clear in ["\x1b[2J\x1b[3J\x1b[H", "\x1b[H\x1b[2J", "\x1b[H\x1b[J", "\x1bc"]:
        for pause in [0, 0.05, 0.3]:
            with subtests.test(f"{clear!r} {pause}"):
                rig = Rig(60, 12).write(clear + page(20)).wait()
                assert rig.found == HI
                for _ in range(3):
                    rig.write(clear).wait(pause).write(page(20)).wait()
                assert rig.found == HI
                assert rig.write(clear + page(40)).wait().found == [*HI, ("Ann", "bye")]


def test_a_directive_printed_again_long_after_a_clear_counts_again() -> None:
    rig = Rig(60, 12).write(CLEAR + LINE + "\r\n").wait().write(CLEAR).wait(3).write(LINE + "\r\n").wait()
    assert rig.found == HI * 2


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_resize_repeats_nothing(columns: int) -> None:
    rig = Rig(70, 12).write(CLEAR + page(20)).wait()
    rig.resize(columns, 15).wait(0.1).resize(70, 12).wait()
    assert rig.found == HI


def test_a_resize_with_a_full_repaint_repeats_nothing() -> None:
    text = " ".join(LONG.split())
    rig = Rig(100, 12).write(CLEAR + "\r\n".join(textwrap.wrap(text, 99)) + "\r\n\r\n" + page(20)).wait()
    found = rig.found
    assert len(found) == 2
    rig.resize(60, 12).wait(0.05)
    rig.write(CLEAR + "\r\n".join(textwrap.wrap(text, 59)) + "\r\n\r\n" + page(20)).wait()
    rig.resize(100, 12).write("\r\n".join(textwrap.wrap(text, 99)) + "\r\n\r\n" + page(20)).wait()
    assert rig.found == found


def test_a_line_is_read_whole_across_a_resize() -> None:
    rig = Rig(60, 12).write(CLEAR + LINE[:15]).resize(40, 12).write(LINE[15:] + "\r\n").wait()
    assert rig.found == HI
    rig = Rig(60, 12).write(LINE[:15]).resize(40, 12).write(LINE[15:] + "\r\n").wait()
    assert rig.found == HI


def test_leaving_the_alternate_screen_repeats_nothing() -> None:
    rig = Rig(60, 12).write(f"{LINE}\r\n$ vim\r\n").wait()
    rig.write("\x1b[?1049h" + CLEAR + "a file").wait().write("\x1b[?1049l").wait().write("$ ").wait()
    assert rig.found == HI


def test_a_suspended_and_continued_full_screen_program_repeats_nothing() -> None:
    drawn = f"\x1b[?1049h{CLEAR}hello\r\n{LINE}\r\n\r\nmore"
    rig = Rig(60, 12).write(drawn).wait().write("\x1b[?1049l").wait(5).write(drawn).wait()
    assert rig.found == HI


def test_a_line_printed_just_before_the_alternate_screen_is_read() -> None:
    rig = Rig(60, 12).write(CLEAR).wait().write(f"{LINE}\r\n\x1b[?1049h{CLEAR}a file").wait()
    assert rig.found == HI


def test_a_menu_that_shrinks_above_the_input_uncovers_nothing_new() -> None:
    """F5: opencode draws its commands over the conversation, in rows that appear and disappear one by one."""
    said = ["  ┃  tell", "  ┃", "", "  Afterwards.", f"  {LINE}", "  End."]
    footer = ["  ┃", "  ┃  /", "  ┃"]
    commands = [f"  ┃ /{name}" for name in ("agents", "compact", "connect", "new", "diff")]

    def page(*rows: str) -> str:
        return (
            "\x1b[?2026h"
            + "".join(at(y, f"{row}\x1b[K") for y, row in enumerate(rows, start=1))
            + "\x1b[?2026l"
        )

    rig = Rig(60, 12).write("\x1b[?1049h", page(*said, *footer)).wait()
    rig.write(page(said[0], *commands, *footer)).wait(0.1)
    rig.write(page(*said[:5], commands[3], *footer)).wait()
    rig.write(page(*said, *footer)).wait()
    assert rig.found == HI


def test_a_frame_with_a_resize_in_the_middle_is_not_read_before_its_end() -> None:
    """F5: pi continues the frame that it has started, however long the machine takes."""
    rig = Rig(60, 12).write("\x1b[?2026h", at(3, "@relay:Bob a message that is drawn"), at(5, "Working"))
    rig.wait(0.5).resize(80, 12).wait(0.5).write(at(7, "~")).wait(0.5)
    rig.write(at(3, f"{LINE}\x1b[K"), "\x1b[?2026l").wait()
    assert rig.found == HI


def test_text_covered_by_the_alternate_screen_is_read_when_the_program_ends() -> None:
    """With a hidden cursor, it is unknown which of its lines are complete."""
    rig = Rig(60, 12).write(f"{CLEAR}\x1b[?25l{LINE}\r\n\x1b[?1049h{CLEAR}@relay:Ann a file").wait()
    assert rig.found == [("Ann", "a file")]
    assert rig.close().found == [("Ann", "a file"), *HI]


def test_forms_keep_their_empty_lines() -> None:
    text = "@relay:Bob <<<\r\nfirst\r\n\r\nlast\r\n>>>\r\n"
    assert Rig().write(CLEAR + text).wait().found == [("Bob", "first\n\nlast")]
    rig = drawing().write("".join(at(2 + n, "  " + row) for n, row in enumerate(text.split("\r\n")))).wait()
    assert rig.found == [("Bob", "first\n\nlast")]


def test_a_form_of_a_thousand_lines_is_read_whole() -> None:
    body = [f"line {n}" for n in range(1000)]
    rig = Rig(60, 12).write(CLEAR + "\r\n".join(["@relay:Bob <<<", *body, ">>>", ""])).wait()
    assert rig.found == [("Bob", "\n".join(body))]


def test_the_screen_reader_takes_over_once_a_program_moves_the_cursor() -> None:
    rig = Rig(60, 12).write(f"{LINE}\r\n@relay:Ann half")
    assert rig.reader.kind == "lines"
    rig.write(f" done\x1b[5;1H{LINE}\x1b[7;1H").wait()
    assert rig.reader.kind == "screen"
    assert rig.found == [*HI, ("Ann", "half done"), *HI]


def test_a_half_written_line_may_continue_after_the_screen_reader_takes_over() -> None:
    rig = (
        Rig(60, 12)
        .write("one\r\n@relay:Bob hi\x1b7\x1b[12;1Hstatus\x1b8")
        .wait(0.3)
        .write(" there\r\n")
        .wait()
    )
    assert rig.found == HI


def test_sequences_at_a_shells_prompt_do_not_end_the_lines_reader() -> None:
    prompt = "\x1b[?2004h\x1b]0;~\x07\x1b[1m$\x1b[0m \x1b[K\x1b[J\x1b[3C\b\x1b[P\x1b[6n\x1b[?1h\x1b=\x1b[>1u"
    assert Rig().write(prompt).reader.kind == "lines"


def test_lost_output_is_marked() -> None:
    rig = drawing()
    rig.gap(100)
    rig.write(at(3, LINE)).wait()
    assert [line.gap for line in rig.lines if line.text.startswith("@")] == [True]


def test_settling_is_false_once_time_changes_nothing_more() -> None:
    rig = drawing().write(at(3, LINE))
    assert rig.reader.settling
    rig.wait()
    assert not rig.reader.settling
    assert rig.found == HI


@pytest.mark.parametrize("torn", [1, 3, 4, 5])
def test_half_drawn_rows_that_a_live_display_leaves_are_not_read(torn: int) -> None:
    """R46: rich prints the text without erasing `torn` rows of it, padded with spaces."""
    body = (
        "the first of several sentences that are together wider than this terminal, so that they are wrapped"
    )
    text = ["Now then.", "", *textwrap.wrap(f"@relay:Bob {body}", 40)]
    filled = [row and row.ljust(40) for row in text]
    rig = Rig(40, 24, kind="screen").write("\r\n".join(filled[:torn])).wait(0.2)
    rig.write("\r\n".join([*filled, "", "Tokens: 2.3k sent, 50 received.", "diff> "])).wait(4)
    assert rig.found == [("Bob", body)]
    assert rig.texts == ["Now then.", f"@relay:Bob {body}", "Tokens: 2.3k sent, 50 received.", "diff>"]


@pytest.mark.parametrize("torn", [3, 4, 5])
def test_rows_that_a_live_display_erases_from_its_text_are_read(torn: int) -> None:
    """R46: rich mistakes the last rows of the text for those that it has not erased."""
    body = (
        "the first of several sentences that are together wider than this terminal, so that they are wrapped"
    )
    text = ["Now then.", "", *textwrap.wrap(f"@relay:Bob {body}", 40)]
    filled = [row and row.ljust(40) for row in text]
    erased = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (torn - 1) + "\r\n\x1b[?25h"
    rig = Rig(40, 24, kind="screen").write("\x1b[?25l" + "\r\n".join(filled[:torn])).wait(0.2)
    rig.write("\r\n".join([*filled, erased, "Tokens: 2.3k sent, 50 received.", "diff> "])).wait(4)
    assert rig.found == [("Bob", body)]
    assert rig.texts == ["Now then.", f"@relay:Bob {body}", "Tokens: 2.3k sent, 50 received.", "diff>"]


def test_a_long_text_that_repeats_itself_is_read_whole() -> None:
    """The text is not a half-drawn display: it has no line break."""
    body = " ".join(["again"] * 40)
    rig = Rig(24, 24, kind="screen").write(f"again again again again {body}\r\n\r\n@relay:Bob {body}\r\n")
    assert rig.wait(4).found == [("Bob", body)]
    assert rig.texts[0].count("again") == 44
