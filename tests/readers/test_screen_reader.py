"""Programs that draw: their words are recognised by their position on the screen."""

from __future__ import annotations

import textwrap

import pytest
from hearing import CLEAR, HI, LINE, LONG, Ears, at, box, directives_in, drawing


def test_a_line_is_said_when_it_has_stood_for_a_moment() -> None:
    ears = drawing().hear(at(3, LINE)).wait(0.1)
    assert ears.told == []
    assert ears.wait(2).told == HI


HIDDEN = "\u200b\u200c\u200d\u200e\u202e\u2060\u2066\ufeff\u034f\u061c\u180e\U000e0041\ufe0f"


@pytest.mark.parametrize("hidden", [*HIDDEN, HIDDEN], ids=lambda each: f"U+{ord(each[0]):04X} {len(each)}")
@pytest.mark.parametrize("behind", ["", "  ", "\x1b[1m"])
def test_what_is_not_drawn_before_a_directive_makes_it_none(hidden: str, behind: str) -> None:
    """S13: the same holds in a program that prints lines, wherever its output is split."""
    text = f"{hidden}{behind}{LINE}"
    assert drawing().hear(at(3, text)).wait(3).told == []
    ears, data = drawing(), at(3, text).encode()
    for byte in data:
        ears.hear(bytes([byte]))
    assert ears.wait(3).told == []
    assert drawing().hear(at(3, "\u26a0\ufe0f fine")).hear(at(4, LINE)).wait(3).told == HI


def test_a_line_with_something_newer_below_it_is_said_sooner() -> None:
    ears = drawing().hear(at(3, LINE)).wait(0.1).hear(at(5, "more")).wait(0.4)
    assert ears.told == HI


def test_a_line_drawn_in_pieces_is_one() -> None:
    ears = drawing()
    for end in range(4, len(LINE), 4):
        ears.hear(at(3, LINE[:end])).wait(0.3)
    assert ears.hear(at(3, LINE)).wait().told == HI


def test_the_program_waiting_for_input_settles_what_it_has_drawn() -> None:
    assert drawing().hear(at(3, LINE)).prompted().told == HI
    assert Ears().hear(CLEAR + LINE).prompted().told == HI


def test_the_end_of_the_output_settles_what_it_has_drawn() -> None:
    assert Ears().hear(CLEAR + LINE).close().told == HI


def test_two_identical_directives_are_two() -> None:
    ears = drawing().hear(at(3, LINE)).wait().hear(at(5, LINE)).wait()
    assert ears.told == HI * 2
    assert drawing().hear(at(3, LINE) + at(4, LINE)).wait().told == HI * 2


def test_a_directive_painted_eleven_times_is_one() -> None:
    ears = drawing()
    for _ in range(11):
        for place, letter in enumerate(LINE):
            ears.hear(at(3, letter, place + 1)).wait(0.01)
        ears.wait(0.5)
    assert ears.wait().told == HI


def test_a_directive_erased_and_painted_again_is_one() -> None:
    ears = drawing().hear(at(3, LINE) + at(5, "after")).wait()
    for _ in range(5):
        ears.hear(at(3, "\x1b[2K")).wait(0.1)
        for end in range(3, len(LINE) + 1, 4):
            ears.hear(at(3, LINE[:end])).wait(0.05 if end < 15 else 3)
        ears.hear(at(3, LINE)).wait(2)
    assert ears.told == HI


def test_a_dialog_drawn_over_it_and_taken_away_again_changes_nothing() -> None:
    page = at(2, "before") + at(3, LINE) + at(4, "after")
    ears = drawing().hear(page).wait()
    ears.hear("".join(at(row, "\x1b[2K   Proceed?") for row in (2, 3, 4))).wait(5)
    ears.hear("".join(at(row, "\x1b[2K") for row in (2, 3, 4)) + page).wait(5)
    assert ears.told == HI


def test_words_placed_by_columns_keep_their_spaces() -> None:
    ears = drawing().hear(at(3, "@relay:Erin\x1b[15Gline\x1b[20Gtwo")).wait()
    assert ears.told == [("Erin", "line two")]


def test_a_spinner_below_does_not_keep_a_line_from_being_said() -> None:
    ears = drawing().hear(at(3, LINE))
    for second in range(30):
        ears.hear(at(5, f"* Working... ({second}s)")).wait(0.1)
    assert ears.told == HI


def test_a_spinner_below_does_not_make_a_line_complete() -> None:
    """The spinner's glyph changes at every frame; the model pauses in the middle of a line."""
    words = LINE.split()
    ears = Ears(60, 12).hear("\x1b[?1049h" + CLEAR)
    for n in range(12 * len(words)):
        said = " ".join(words[: 1 + n // 12])
        ears.hear(at(4, f"{said}\x1b[K"), at(8, f"{'◐◓◑◒'[n % 4]} {n % 7} esc interrupt\x1b[K")).wait(0.05)
    assert ears.wait(6).told == HI


def test_an_agent_that_draws_a_text_twice_is_heard_when_it_has_settled() -> None:
    """opencode draws a link followed by its address until its highlighter has processed it."""
    for settle, told in ((0.0, "see u (u)"), (1.0, "see u")):
        ears = Ears(60, 12, settle=settle).hear("\x1b[?1049h" + CLEAR).wait()
        ears.hear(at(2, "@relay:Bob see u (u)")).wait(0.1).hear(at(4, "more")).wait(0.6)
        assert ears.hear(at(2, "@relay:Bob see u\x1b[K")).wait().told == [("Bob", told)]


def test_what_is_drawn_over_at_the_margin_is_not_said() -> None:
    """opencode positions each wide character; one with half the room needed begins the next row, too."""
    text = "@relay:Bob " + "漢字仮名交じり文" * 3
    ears = Ears(40, 12).hear("\x1b[?1049h" + CLEAR)
    ears.hear(at(2, text[:25]), at(3, f"{text[24]} {text[26:]}"), at(5, "@relay:Ann next")).wait()
    assert ears.told == [("Ann", "next")]
    assert len(ears.passed_over) == 1


def test_frames_are_read_whole() -> None:
    """A synchronised update (mode 2026) that arrives in two parts shows nothing until it ends."""
    ears = Ears(60, 12).hear(CLEAR + LINE + "\r\n").wait()
    ears.hear("\x1b[?2026h\x1b[H@relay:Ann half\x1b[K\r\n").wait(0.5)
    ears.hear(f"\x1b[H{LINE}\x1b[K\r\n\x1b[?2026l").wait()
    assert ears.told == HI


def test_a_frame_that_never_ends_is_read_in_the_end() -> None:
    assert Ears(60, 12).hear(f"{CLEAR}\x1b[?2026h{LINE}\r\n").wait(12).told == HI


def test_lines_are_said_in_the_order_of_their_places() -> None:
    """An agent may draw the end of a code block before its start is complete."""
    ears = drawing().hear(at(3, "```te") + at(4, LINE) + at(5, "```") + at(7, "more")).wait(0.25)
    ears.hear(at(3, "```text") + at(7, "more text")).wait()
    ears.hear(at(9, "@relay:Ann outside")).wait()
    assert ears.told == [("Ann", "outside")]


def test_a_flood_in_a_program_that_draws_is_skipped_but_for_its_tail() -> None:
    flood = b"a plain line of output without anything to find\r\n" * 1000
    ears = Ears(60, 12).hear(CLEAR, "@relay:Bob hi", b" there\r\n" + flood, "@relay:Ann after it\r\n").wait()
    assert ears.told == [*HI, ("Ann", "after it")]
    assert len(ears.lines) < 50
    assert any(line.gap for line in ears.lines)


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
def test_sequences_before_and_inside(text: str) -> None:
    assert drawing().hear(at(3, text)).wait().told == HI


@pytest.mark.parametrize("text", ["日本語の本文", "emoji 👩‍👩‍👧 🎉 done", "cafe\u0301 naïve", "한국어"])
def test_wide_and_combining_characters(text: str) -> None:
    assert drawing().hear(at(3, f"@relay:Bob {text}")).wait().told == [("Bob", text)]


def test_sequences_and_characters_split_at_every_byte() -> None:
    data = (CLEAR + at(3, "\x1b[1m@relay:Bob\x1b[0m 日本 é 👍\x1b[0m end") + box(24)).encode()
    for cut in range(1, len(data)):
        assert Ears().hear(data[:cut], data[cut:]).wait().told == [("Bob", "日本 é 👍 end")]


def test_lines_that_scroll_off_are_said() -> None:
    ears = Ears(80, 10).hear(CLEAR)
    for n in range(100):
        ears.hear(f"@relay:Bob number {n}\r\n")
    assert ears.wait().told == [("Bob", f"number {n}") for n in range(100)]


def test_a_line_that_scrolls_off_after_it_was_said_is_said_once() -> None:
    ears = Ears(80, 10).hear(CLEAR + LINE + "\r\n").wait()
    assert ears.told == HI
    assert ears.hear("filler\r\n" * 30).wait().told == HI


def test_a_hundred_thousand_directives_in_a_row() -> None:
    data = CLEAR.encode() + b"".join(b"@relay:Bob number %d\r\n" % n for n in range(100_000))
    assert directives_in(data, chunk=65536) == [("Bob", f"number {n}") for n in range(100_000)]


def test_a_transcript_that_scrolls_by_repainting() -> None:
    """A full-screen program repaints every row when a line is added below; one directive comes twice."""
    transcript = ["one", LINE, *(f"filler {n}" for n in range(12)), LINE, *(f"more {n}" for n in range(12))]
    ears = Ears(60, 12).hear("\x1b[?1049h" + CLEAR + box(12)).wait()
    for end in range(1, len(transcript) + 1):
        window = transcript[max(0, end - 8) : end]
        ears.hear("".join(at(1 + row, f"{text}\x1b[K") for row, text in enumerate(window))).wait(0.1)
    assert ears.wait().told == HI * 2


def test_scrolling_back_and_forth_says_nothing_again() -> None:
    transcript = ["one", LINE, *(f"filler {n}" for n in range(30)), "@relay:Ann bye", "end"]
    ears = Ears(60, 12).hear("\x1b[?1049h" + CLEAR).wait()
    ends = [*range(8, len(transcript) + 1), *range(len(transcript), 7, -1), *range(8, len(transcript) + 1)]
    for end in ends:
        window = transcript[end - 8 : end]
        ears.hear("".join(at(1 + row, f"{text}\x1b[K") for row, text in enumerate(window))).wait(0.1)
    assert ears.wait().told == [*HI, ("Ann", "bye")]


def test_lines_that_scroll_away_within_a_region_are_said() -> None:
    ears = Ears(60, 12).hear(CLEAR + "header\r\n\x1b[12;1Hfooter\x1b[2;11r\x1b[11;1H")
    for n in range(50):
        ears.hear(f"\r\n@relay:Bob number {n}")
    assert ears.wait().told == [("Bob", f"number {n}") for n in range(50)]


def test_a_burst_within_a_region_of_the_alternate_screen_is_said() -> None:
    ears = Ears(60, 12).hear("\x1b[?1049h" + CLEAR + "header\x1b[2;11r\x1b[11;1H").wait()
    ears.hear("".join(f"\r\n@relay:Bob number {n}" for n in range(500)))
    assert ears.wait().told == [("Bob", f"number {n}") for n in range(500)]


def page(end: int) -> str:
    lines = ["welcome", LINE, *(f"filler {n}" for n in range(30)), "@relay:Ann bye", "end"]
    return "\r\n".join(lines[:end]) + "\r\n"


@pytest.mark.parametrize("clear", ["\x1b[2J\x1b[3J\x1b[H", "\x1b[H\x1b[2J", "\x1b[H\x1b[J", "\x1bc"])
@pytest.mark.parametrize("pause", [0, 0.05, 0.3])
def test_clearing_and_printing_it_all_again_says_nothing_twice(clear: str, pause: float) -> None:
    ears = Ears(60, 12).hear(clear + page(20)).wait()
    assert ears.told == HI
    for _ in range(3):
        ears.hear(clear).wait(pause).hear(page(20)).wait()
    assert ears.told == HI
    assert ears.hear(clear + page(40)).wait().told == [*HI, ("Ann", "bye")]


def test_what_is_said_again_long_after_a_clear_is_heard() -> None:
    ears = Ears(60, 12).hear(CLEAR + LINE + "\r\n").wait().hear(CLEAR).wait(3).hear(LINE + "\r\n").wait()
    assert ears.told == HI * 2


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_resize_says_nothing_twice(columns: int) -> None:
    ears = Ears(70, 12).hear(CLEAR + page(20)).wait()
    ears.resize(columns, 15).wait(0.1).resize(70, 12).wait()
    assert ears.told == HI


def test_a_resize_with_a_repaint_of_the_whole_page_says_nothing_twice() -> None:
    text = " ".join(LONG.split())
    ears = Ears(100, 12).hear(CLEAR + "\r\n".join(textwrap.wrap(text, 99)) + "\r\n\r\n" + page(20)).wait()
    told = ears.told
    assert len(told) == 2
    ears.resize(60, 12).wait(0.05)
    ears.hear(CLEAR + "\r\n".join(textwrap.wrap(text, 59)) + "\r\n\r\n" + page(20)).wait()
    ears.resize(100, 12).hear("\r\n".join(textwrap.wrap(text, 99)) + "\r\n\r\n" + page(20)).wait()
    assert ears.told == told


def test_a_resize_in_the_middle_of_a_line() -> None:
    ears = Ears(60, 12).hear(CLEAR + LINE[:15]).resize(40, 12).hear(LINE[15:] + "\r\n").wait()
    assert ears.told == HI
    ears = Ears(60, 12).hear(LINE[:15]).resize(40, 12).hear(LINE[15:] + "\r\n").wait()
    assert ears.told == HI


def test_leaving_the_alternate_screen_shows_again_what_was_said_before() -> None:
    ears = Ears(60, 12).hear(f"{LINE}\r\n$ vim\r\n").wait()
    ears.hear("\x1b[?1049h" + CLEAR + "a file").wait().hear("\x1b[?1049l").wait().hear("$ ").wait()
    assert ears.told == HI


def test_a_full_screen_program_that_is_stopped_and_goes_on_says_nothing_twice() -> None:
    drawn = f"\x1b[?1049h{CLEAR}hello\r\n{LINE}\r\n\r\nmore"
    ears = Ears(60, 12).hear(drawn).wait().hear("\x1b[?1049l").wait(5).hear(drawn).wait()
    assert ears.told == HI


def test_a_line_printed_just_before_the_alternate_screen_is_said() -> None:
    ears = Ears(60, 12).hear(CLEAR).wait().hear(f"{LINE}\r\n\x1b[?1049h{CLEAR}a file").wait()
    assert ears.told == HI


def test_a_list_of_choices_that_grows_shorter_above_the_input_uncovers_nothing_new() -> None:
    """F5: opencode draws its commands over the conversation, in rows that come and go one by one."""
    said = ["  ┃  tell", "  ┃", "", "  Afterwards.", f"  {LINE}", "  End."]
    footer = ["  ┃", "  ┃  /", "  ┃"]
    commands = [f"  ┃ /{name}" for name in ("agents", "compact", "connect", "new", "diff")]

    def page(*rows: str) -> str:
        return (
            "\x1b[?2026h"
            + "".join(at(y, f"{row}\x1b[K") for y, row in enumerate(rows, start=1))
            + "\x1b[?2026l"
        )

    ears = Ears(60, 12).hear("\x1b[?1049h", page(*said, *footer)).wait()
    ears.hear(page(said[0], *commands, *footer)).wait(0.1)
    ears.hear(page(*said[:5], commands[3], *footer)).wait()
    ears.hear(page(*said, *footer)).wait()
    assert ears.told == HI


def test_a_frame_in_whose_middle_the_window_changes_its_size_is_not_read_before_its_end() -> None:
    """F5: pi continues the frame it has started, however long the machine takes for that."""
    ears = Ears(60, 12).hear("\x1b[?2026h", at(3, "@relay:Bob a message that is drawn"), at(5, "Working"))
    ears.wait(0.5).resize(80, 12).wait(0.5).hear(at(7, "~")).wait(0.5)
    ears.hear(at(3, f"{LINE}\x1b[K"), "\x1b[?2026l").wait()
    assert ears.told == HI


def test_what_the_alternate_screen_covers_is_said_when_the_program_ends() -> None:
    """A hidden cursor does not show which of its lines are complete."""
    ears = Ears(60, 12).hear(f"{CLEAR}\x1b[?25l{LINE}\r\n\x1b[?1049h{CLEAR}@relay:Ann a file").wait()
    assert ears.told == [("Ann", "a file")]
    assert ears.close().told == [("Ann", "a file"), *HI]


def test_forms_of_many_lines_keep_their_empty_lines() -> None:
    text = "@relay:Bob <<<\r\nfirst\r\n\r\nlast\r\n>>>\r\n"
    assert Ears().hear(CLEAR + text).wait().told == [("Bob", "first\n\nlast")]
    ears = drawing().hear("".join(at(2 + n, "  " + row) for n, row in enumerate(text.split("\r\n")))).wait()
    assert ears.told == [("Bob", "first\n\nlast")]


def test_a_form_of_a_thousand_lines() -> None:
    body = [f"line {n}" for n in range(1000)]
    ears = Ears(60, 12).hear(CLEAR + "\r\n".join(["@relay:Bob <<<", *body, ">>>", ""])).wait()
    assert ears.told == [("Bob", "\n".join(body))]


def test_the_screen_reader_takes_over_where_lines_end() -> None:
    ears = Ears(60, 12).hear(f"{LINE}\r\n@relay:Ann half")
    assert ears.reader.kind == "lines"
    ears.hear(f" done\x1b[5;1H{LINE}\x1b[7;1H").wait()
    assert ears.reader.kind == "screen"
    assert ears.told == [*HI, ("Ann", "half done"), *HI]


def test_a_line_that_is_half_written_when_the_screen_reader_takes_over_may_go_on() -> None:
    ears = (
        Ears(60, 12)
        .hear("one\r\n@relay:Bob hi\x1b7\x1b[12;1Hstatus\x1b8")
        .wait(0.3)
        .hear(" there\r\n")
        .wait()
    )
    assert ears.told == HI


def test_what_a_shell_sends_at_its_prompt_does_not_end_the_lines_reader() -> None:
    prompt = "\x1b[?2004h\x1b]0;~\x07\x1b[1m$\x1b[0m \x1b[K\x1b[J\x1b[3C\b\x1b[P\x1b[6n\x1b[?1h\x1b=\x1b[>1u"
    assert Ears().hear(prompt).reader.kind == "lines"


def test_lost_output_is_marked() -> None:
    ears = drawing()
    ears.gap(100)
    ears.hear(at(3, LINE)).wait()
    assert [line.gap for line in ears.lines if line.text.startswith("@")] == [True]


def test_it_says_when_time_alone_settles_nothing_more() -> None:
    ears = drawing().hear(at(3, LINE))
    assert ears.reader.settling
    ears.wait()
    assert not ears.reader.settling
    assert ears.told == HI


@pytest.mark.parametrize("torn", [1, 3, 4, 5])
def test_what_a_live_display_left_half_drawn_above_its_text_is_not_said(torn: int) -> None:
    """R46: rich prints the text without erasing `torn` rows of it, padded with blanks."""
    body = (
        "the first of several sentences that are together wider than this terminal, so that they are wrapped"
    )
    text = ["Now then.", "", *textwrap.wrap(f"@relay:Bob {body}", 40)]
    filled = [row and row.ljust(40) for row in text]
    ears = Ears(40, 24, kind="screen").hear("\r\n".join(filled[:torn])).wait(0.2)
    ears.hear("\r\n".join([*filled, "", "Tokens: 2.3k sent, 50 received.", "diff> "])).wait(4)
    assert ears.told == [("Bob", body)]
    assert ears.texts == ["Now then.", f"@relay:Bob {body}", "Tokens: 2.3k sent, 50 received.", "diff>"]


@pytest.mark.parametrize("torn", [3, 4, 5])
def test_what_a_live_display_erases_of_its_text_is_said(torn: int) -> None:
    """R46: rich later takes the text's last rows for those that it has not erased."""
    body = (
        "the first of several sentences that are together wider than this terminal, so that they are wrapped"
    )
    text = ["Now then.", "", *textwrap.wrap(f"@relay:Bob {body}", 40)]
    filled = [row and row.ljust(40) for row in text]
    erased = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (torn - 1) + "\r\n\x1b[?25h"
    ears = Ears(40, 24, kind="screen").hear("\x1b[?25l" + "\r\n".join(filled[:torn])).wait(0.2)
    ears.hear("\r\n".join([*filled, erased, "Tokens: 2.3k sent, 50 received.", "diff> "])).wait(4)
    assert ears.told == [("Bob", body)]
    assert ears.texts == ["Now then.", f"@relay:Bob {body}", "Tokens: 2.3k sent, 50 received.", "diff>"]


def test_a_long_text_that_repeats_itself_from_row_to_row_is_said_whole() -> None:
    """The text is no half-drawn display: nothing in it breaks a line."""
    body = " ".join(["again"] * 40)
    ears = Ears(24, 24, kind="screen").hear(f"again again again again {body}\r\n\r\n@relay:Bob {body}\r\n")
    assert ears.wait(4).told == [("Bob", body)]
    assert ears.texts[0].count("again") == 44
