"""The pipeline: when it ticks, when a turn ends, and how it plays a recording."""

from __future__ import annotations

from itertools import pairwise

from relay.directives.grammar import Grammar
from relay.directives.pipeline import TICK, OutputPipeline, Reading, play
from relay.readers.auto import AutoReader
from relay.recording.asciicast import CastEvent, gap_marker

FORM = b"@relay:Bob <<<\r\nfirst\r\n"
DRAWN = b"\x1b[2J\x1b[5;1H@relay:Bob hi\x1b[9;1H> "


def pipeline(quiet: float | None = None) -> OutputPipeline:
    return OutputPipeline(AutoReader(60, 12), Grammar({"relay"}.__contains__), quiet=quiet)


def bodies(readings: list[Reading]) -> list[str]:
    return [one.body for reading in readings for one in reading.directives]


def test_a_turn_ends_after_the_given_silence() -> None:
    one = pipeline(quiet=2.0)
    assert bodies([one.output(FORM, 1.0)]) == []
    assert bodies([one.tick(2.9)]) == []
    [directive] = one.tick(3.1).directives
    assert (directive.body, directive.unclosed, directive.time) == ("first", True, 3.1)
    assert not one.settling


def test_by_default_only_waiting_and_closing_end_a_turn() -> None:
    one = pipeline()
    one.output(FORM, 1.0)
    assert bodies(list(one.advance(100.0))) == []
    assert bodies([one.waiting(100.0)]) == ["first"]
    one.output(FORM, 101.0)
    assert bodies([one.close(101.0)]) == ["first"]


def test_time_passes_in_ticks_while_something_may_settle() -> None:
    one = pipeline()
    one.output(DRAWN, 1.0)
    times = [(one.now, bodies([reading])) for reading in one.advance(60.0)]
    found = next(time for time, found in times if found)
    assert 2 < found < 4 and times[-1] == (60.0, [])
    steps = [b - a for (a, _), (b, _) in pairwise(times[:-1])]
    assert steps and all(abs(step - TICK) < 1e-6 for step in steps)
    assert len(times) < 4 / TICK


def test_a_muted_pipeline_keeps_reading_and_finds_nothing() -> None:
    one = pipeline()
    one.muted = True
    assert one.output(b"@relay:Bob one\r\n```\r\n", 1.0) == Reading([], [], [])
    one.muted = False
    [directive] = one.output(b"@relay:Bob two\r\n", 2.0).directives
    assert (directive.body, directive.place.offset) == ("two", 37)


def test_a_recording_is_played_at_its_own_times() -> None:
    events = [
        CastEvent(1.0, "i", "@relay:Bob typed\r"),
        CastEvent(1.1, "o", "@relay:Bob typed\r\n"),
        CastEvent(2.0, "m", gap_marker(5000)),
        CastEvent(3.0, "r", "40x10"),
        CastEvent(4.0, "o", "@relay:Bob said\r\n@relay:Bob at the end"),
    ]
    one = pipeline(quiet=60.0)
    readings = list(play(events, one))
    assert bodies(readings) == ["said", "at the end"]
    assert [reading.left_out for reading in readings if reading.left_out] == [5000]
    assert one.reader.screen is not None and one.reader.screen.columns == 40
    assert (one.now, one.last_output) == (4.0, 4.0)


def test_an_open_fence_ends_with_the_first_submission_after_its_turn() -> None:
    """F7: a drawing program never waits at a line, so nothing else would end the fence."""
    one = pipeline()

    def draw(row: int, name: str) -> list[str]:
        reading = one.output(f"\x1b[{row};1H@relay:Bob {name}\x1b[11;1H> ".encode(), one.now)
        return bodies([reading, *one.advance(one.now + 3)])

    one.output(b"\x1b[2J\x1b[1;1H```", 1.0)
    assert draw(2, "within") == []
    one.submitted()
    assert draw(3, "still within, as the turn continues") == []
    one.turn_drawn()
    assert draw(4, "of the turn, but late") == []
    one.submitted()
    assert draw(5, "of the next turn") == ["of the next turn"]
