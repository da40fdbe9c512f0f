"""Hidden lines: both the lines reader, even in floods, and the screen reader recognise them."""

from __future__ import annotations

import json

import pytest

from readers.rig import Rig
from relay.readers.auto import AutoReader, Kind
from relay.readers.flood import FLOOD

KINDS: list[Kind] = ["lines", "screen"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "hidden",
    [
        "\x1b[8m@relay:Bob hidden\x1b[0m",
        "\x1b[8m\r\n\r\n@relay:Bob hidden\r\n\x1b[0m",
        "\x1b[97;107m@relay:Bob hidden\x1b[0m",
        "@relay:Bob \x1b[8mhidden\x1b[28m part",
        "@relay:Bob a part that wraps " + "and wraps " * 8 + "\x1b[8mhidden\x1b[0m",
    ],
)
def test_a_hidden_directive_is_passed_over(kind: Kind, hidden: str) -> None:
    rig = Rig(kind=kind).write(f"Hello.\r\n{hidden}\r\n@relay:Bob seen\r\n").wait().close()
    assert rig.found == [("Bob", "seen")]
    assert len(rig.passed_over) == 1 and "hidden" in rig.passed_over[0]


@pytest.mark.parametrize("kind", ["auto", "screen"])
def test_what_is_erased_in_the_frame_in_which_it_came_was_not_said(
    kind: Kind, subtests: pytest.Subtests
) -> None:
    said = "@relay:Bob erased\r\n"
    erased = [
        f"{said}\x1b[A\x1b[2K",
        f"{said}\x1b[A@relay:Bob seen\x1b[K\r\n",
        f"\x1b[?1049h{said}\x1b[?1049l",
        f"one\r\n{said}two\r\n\x1b[H\x1b[2J",
        f"one\r\n{said}\x1b[2J\x1b[H",
    ]
    for output in erased:
        with subtests.test(repr(output)):
            seen = [("Bob", "seen")] * output.count("seen")
            assert Rig(kind=kind).write("Hello.\r\n").wait().write(output).wait().close().found == seen
            assert Rig(kind=kind).write(output).wait().close().found == seen
    before = Rig(kind=kind).write(f"{said}").wait().write("\x1b[A\x1b[2K").wait().close()
    assert before.found == [("Bob", "erased")]


@pytest.mark.parametrize("kind", KINDS)
def test_colours_hide_nothing(kind: Kind) -> None:
    text = "\x1b[1;31m@relay:Bob\x1b[0m \x1b[30;47mone\x1b[0m\r\n\x1b[7m@relay:Bob two\x1b[0m\r\n"
    rig = Rig(kind=kind).write(text).wait().close()
    assert rig.found == [("Bob", "one"), ("Bob", "two")] and not rig.passed_over


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_lines_do_not_open_close_or_fill_forms_and_fences(kind: Kind) -> None:
    block = "@relay:Bob <<<\r\none\r\n\x1b[8mhidden\r\n>>>\r\n\x1b[0mtwo\r\n>>>\r\n"
    fences = "\x1b[8m```\x1b[0m\r\n@relay:Bob three\r\n```\r\n\x1b[8m```\x1b[0m\r\n@relay:Bob no\r\n```\r\n"
    rig = Rig(kind=kind).write(block + fences).wait().close()
    assert rig.found == [("Bob", "one\ntwo"), ("Bob", "three")]


CONCEALED = [
    (("\x1b[32m", "\x1b[39m"), "", "", 2),
    (("\x1b[32m", "\x1b[39m"), "\x1b[8m", "", 0),
    (("", ""), "\x1b[37;47m", "", 0),
    (("\x1b[32m", "\x1b[39m"), "", "\x1b[8m", 0),
    (("\x1b[32m", "\x1b[39m"), "\x1b[8m", "\x1b[28m", 2),
    (("\x1b[32m", "\x1b[0m"), "\x1b[8m", "\x1b[8m", 2),
]


def test_concealment_is_tracked_through_a_flood(subtests: pytest.Subtests) -> None:
    """The concealing sequence may be far above, in a part of the flood that is not read."""
    for size in [4 * FLOOD, 100 * FLOOD]:
        for colours, first, second, count in CONCEALED:
            with subtests.test(f"{colours} {first!r} {second!r} {size}"):
                line = f"{colours[0]}ok{colours[1]} a line of the log\r\n"
                many = line * (3 * FLOOD // len(line))
                said = "@relay:Bob seen\r\n"
                whole = f"{many}{first}\r\n{many}{second}\r\n{many}{said}{many}{said}{many}"
                rig = Rig(kind="lines")
                for at in range(0, len(whole), size):
                    rig.write(whole[at : at + size])
                assert len(rig.close().found) == count and len(rig.passed_over) == 2 - count


def test_a_restored_reader_knows_what_is_hidden() -> None:
    for kind in KINDS:
        first = AutoReader(80, 24, kind=kind)
        first.feed(b"one\r\n\x1b[8m@relay:Bob hid", 100.0)
        state = json.loads(json.dumps(first.state()))
        assert first.screen is not None
        second = AutoReader(80, 24, kind=kind)
        second.restore((80, 24), first.screen.repaint(), state)
        lines = second.feed(b"den\r\n@relay:Bob too\r\n\x1b[0m@relay:Bob seen\r\n", 101.0) + second.close(
            110.0
        )
        found = {line.text: line.hidden for line in lines if "@" in line.text}
        assert found == {"@relay:Bob hidden": True, "@relay:Bob too": True, "@relay:Bob seen": False}, kind


def test_hidden_rows_stay_hidden_after_scrolling_off() -> None:
    rig = Rig(kind="screen").write("\x1b[2J\x1b[8m@relay:Bob hidden\x1b[0m\r\n" + "more\r\n" * 50)
    assert rig.wait().close().found == [] and len(rig.passed_over) == 1


def test_a_panel_and_a_frame_in_the_colour_of_their_background_hide_nothing() -> None:
    row = "\x1b[31;41m┃\x1b[0m @relay:Bob seen \x1b[30;40m▀▀\x1b[0m\r\n"
    rig = Rig(kind="screen").write(row.replace("┃", " ")).wait().close()
    assert [body for _, body in rig.found] == ["seen ▀▀"]
