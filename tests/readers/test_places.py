"""The place of a line in the output: exact for printed lines, at most one chunk late for drawn ones."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from readers.rig import Rig
from relay.place import Place
from relay.readers.flood import FLOOD
from support import many

LINE = st.text(st.sampled_from("ab日 @:`\t"), max_size=12)
CUTS = st.lists(st.integers(0, 400), max_size=12)
COLOUR = st.sampled_from(["", "\x1b[1;31m", "\x1b]0;t\x07", "\x1b(B"])
C1 = b"\x9b1m"
"""CSI as one byte, which is converted to two before it is read."""


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in [0, *cuts]})
    return [data[start:end] for start, end in zip(places, [*places[1:], len(data)], strict=True)]


def at(offset: int, ordinal: int = 0) -> Place:
    return Place("terminal", offset, ordinal)


@given(st.lists(LINE, max_size=12), COLOUR, CUTS)
def test_a_printed_line_has_the_place_of_its_end_in_any_chunks(
    texts: list[str], colour: str, cuts: list[int]
) -> None:
    lines = [f"{colour}{text}\r\n".encode() for text in texts]
    rig = Rig()
    for chunk in chunks(b"".join(lines), cuts):
        rig.write(chunk)
    ends = [len(b"".join(lines[:count])) for count in range(1, len(lines) + 1)]
    assert [line.place for line in rig.lines] == [at(end) for end in ends]


@given(st.lists(st.sampled_from([b"a", C1, b"\r\n"]), max_size=40), CUTS)
@example([C1, b"a", b"\r\n", C1, C1, b"\r\n"], [])
def test_with_eight_bit_controls_a_place_is_at_most_one_chunk_late(
    pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(pieces)
    ends = [number + 1 for number, byte in enumerate(data) if byte == 0x0A]
    rig = Rig()
    fed, latest = 0, []
    for chunk in chunks(data, cuts):
        fed += len(chunk)
        rig.write(chunk)
        latest += [fed] * (len(rig.lines) - len(latest))
    places = [line.place for line in rig.lines]
    assert len(places) == len(ends)
    assert all(end <= place.offset <= last for end, place, last in zip(ends, places, latest, strict=True))
    assert places == sorted(set(places))


@settings(max_examples=many(150))
@given(st.integers(1, 30), CUTS, st.sampled_from([0.0, 0.02, 2.0]), st.booleans())
def test_a_drawn_line_has_a_place_after_the_output_that_drew_it(
    count: int, cuts: list[int], pause: float, full: bool
) -> None:
    screen = "\x1b[?1049h\x1b[H" if full else "\x1b[2J\x1b[H"
    data = (screen + "".join(f"@relay:Bob number {n:03}.\r\n\r\n" for n in range(count))).encode()
    rig = Rig(60, 80)
    fed = 0
    for chunk in chunks(data, cuts):
        before = len(rig.directives)
        fed += len(chunk)
        rig.write(chunk).wait(pause)
        assert all(one.place.offset <= fed for one in rig.directives[before:])
    rig.wait(3).close()
    if pause < 1:  # otherwise half-drawn text counts as complete
        assert len(rig.directives) == count
    for one in rig.directives:
        assert data.index(one.body.encode()) + len(one.body) <= one.place.offset
    assert all(a.place < b.place for a, b in pairwise(rig.lines))


def test_lines_that_are_read_together_have_distinct_places() -> None:
    data = "\x1b[2J\x1b[H@relay:Bob one\r\n\r\n@relay:Ann two\r\n"
    rig = Rig().write(data).wait()
    assert [line.text for line in rig.lines] == ["@relay:Bob one", "", "@relay:Ann two"]
    assert [line.place for line in rig.lines] == [at(len(data), index) for index in range(3)]
    assert [one.place for one in rig.directives] == [at(len(data), 0), at(len(data), 2)]


def test_places_continue_from_printed_lines_to_the_screen() -> None:
    rig = Rig().write("one\r\ntwo\r\n").wait().write("\x1b[2;1H").write("three\r\n").wait().close()
    assert [(line.text, line.place.offset) for line in rig.lines] == [("one", 5), ("two", 10), ("three", 23)]


def test_lost_output_counts_in_places() -> None:
    """A place counts all output, not only what was kept."""
    rig = Rig().write("one\r\n").gap(1000).write("two\r\n")
    assert [line.place for line in rig.lines] == [at(5), at(1010)]
    drawn = Rig(kind="screen").write("one\r\n").wait().gap(1000).write("two\r\n").wait()
    assert [line.place.offset for line in drawn.lines] == [5, 1010]


def test_in_a_flood_each_line_that_is_read_has_its_own_place() -> None:
    filler = b"a plain line of output without anything to find\r\n"
    data = filler * 400 + b"@relay:Bob hi\r\n" + filler * 400
    assert len(data) > FLOOD
    rig = Rig().write(data)
    [one] = rig.directives
    assert one.place == at(400 * len(filler) + len(b"@relay:Bob hi\r\n"))


def test_a_directive_has_the_place_of_the_line_that_ends_it() -> None:
    form = "@relay:Bob <<<\r\nfirst\r\n>>>\r\n"
    rig = Rig().write(form + "more\r\n")
    assert [one.place for one in rig.directives] == [at(len(form))]
    unclosed = "@relay:Bob <<<\r\nfirst\r\n"
    rig = Rig().write(unclosed).prompted()
    assert [(one.unclosed, one.place) for one in rig.directives] == [(True, at(len(unclosed)))]


def test_an_unfinished_line_has_the_place_up_to_which_was_read() -> None:
    rig = Rig().write("name? ").prompted().write("x\r\n")
    assert [(line.text, line.place) for line in rig.lines] == [("name? ", at(6)), ("x", at(9))]
