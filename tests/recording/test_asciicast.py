"""Asciicasts as streams: damaged lines are skipped, and invalid timestamps do no harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import RecordingError
from relay.recording import asciicast
from relay.recording.asciicast import Cast
from relay.replay.export import export
from relay.replay.timeline import Timeline
from replay.casts import cast


def events(recorded: Cast) -> list[tuple[float, str, str]]:
    return [(each.time, each.kind, each.data) for each in recorded]


def test_a_truncated_or_invalid_line_is_skipped_and_counted(tmp_path: Path) -> None:
    path = cast(
        tmp_path / "a.cast",
        (0.5, "o", "one"),
        b"not json",
        b'["1", "o", "text"]',
        b'[1, "r", "80xwide"]',
        b'[1, "r", "0x5"]',
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
        (2.0, "o", "two"),
        b'[3.0, "o", "cut o',
    )
    recorded = Cast(path)
    assert events(recorded) == [(0.5, "o", "one"), (2.0, "o", "two")]
    assert (recorded.seconds, recorded.skipped) == (2.0, 7)


@pytest.mark.parametrize("time", ["-5", "NaN", "-Infinity", "Infinity", "1e300", "1" + "0" * 400, "0.1"])
def test_an_invalid_time_is_replaced_with_that_of_the_previous_event(time: str, tmp_path: Path) -> None:
    odd = f'[{time}, "o", "odd"]'.encode()
    recorded = Cast(cast(tmp_path / "a.cast", (1.0, "o", "a"), odd, (2.0, "o", "b")))
    assert events(recorded) == [(1.0, "o", "a"), (1.0, "o", "odd"), (2.0, "o", "b")]
    assert Cast(cast(tmp_path / "b.cast", odd)).seconds in {0.0, 0.1}


def test_version_3_is_read(tmp_path: Path) -> None:
    """The times of asciinema 3 count from the previous event, and it may write comments."""
    path = tmp_path / "a.cast"
    path.write_text(
        '{"version": 3, "term": {"cols": 40, "rows": 8, "type": "xterm-256color"}, "timestamp": 1504467315, '
        '"title": "Demo", "env": {"SHELL": "/bin/zsh"}}\n# event stream\n'
        '[0.25, "o", "Hello"]\n[1.0, "r", "90x30"]\n[1.5, "m", "here"]\n# a comment\n[0.25, "o", "Bye"]\n'
        '[0.5, "x", "0"]\n'
    )
    recorded = Cast(path, strict=True)
    found = [(0.25, "o", "Hello"), (1.25, "r", "90x30"), (2.75, "m", "here"), (3.0, "o", "Bye")]
    assert events(recorded) == [*found, (3.5, "x", "0")]
    assert (recorded.seconds, recorded.skipped, recorded.header.title) == (3.5, 0, "Demo")
    assert [event.time for event in recorded.parts[0].markers()] == [2.75]
    reader = recorded.reader()
    for _ in range(2):
        reader.next()
    rest = recorded.reader(reader.mark())
    reader.close()
    assert [each.time for each in rest] == [2.75, 3.0, 3.5]
    exported = tmp_path / "b.cast"
    exported.write_bytes(b"".join(export(recorded, Timeline([]))))
    assert events(Cast(exported)) == [each for each in found if each[1] != "m"]


def test_reading_continues_from_any_mark_across_all_parts(tmp_path: Path) -> None:
    one = cast(tmp_path / "1.cast", (0.0, "o", "a"), (4.0, "o", "b"))
    empty = cast(tmp_path / "2.cast")
    two = cast(tmp_path / "3.cast", (0.5, "o", "c"), (6.0, "o", "d"), columns=50)
    recorded = Cast(one, empty, two)
    whole = events(recorded)
    assert whole == [
        (0.0, "o", "a"),
        (4.0, "o", "b"),
        (4.0, "r", "50x8"),
        (4.5, "o", "c"),
        (10.0, "o", "d"),
    ]
    assert recorded.seconds == 10.0
    reader = recorded.reader()
    for read in range(len(whole)):
        rest = [(each.time, each.kind, each.data) for each in recorded.reader(reader.mark())]
        assert [each for each in rest if each[1] == "o"] == [each for each in whole[read:] if each[1] == "o"]
        reader.next()
    assert reader.next() is None
    assert events(recorded) == whole


def test_the_length_is_found_at_the_end_of_a_long_file_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [(number / 100, "o", "x" * 50) for number in range(5000)]
    path = cast(tmp_path / "a.cast", *many, (50.0, "o", "y" * 60_000), b'[51.0, "o", "cut')
    read = []
    parse = asciicast.parse_event
    monkeypatch.setattr(
        asciicast, "parse_event", lambda line, *rest: read.append(len(line)) or parse(line, *rest)
    )
    assert Cast(path).seconds == 50.0
    assert len(read) < 100


def test_an_endless_line_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asciicast, "MAX_LINE", 1000)
    long = b'[1.0, "o", "' + b"x" * 5000 + b'"]'
    assert events(Cast(cast(tmp_path / "a.cast", long, (2.0, "o", "b")))) == [(2.0, "o", "b")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b"[]", "no version"),
        (b'{"version": 1, "width": 80, "height": 24}', "asciinema convert"),
        (b'{"version": [3], "width": 80, "height": 24}', "asciinema convert"),
        (b'{"version": 3, "term": {"cols": 80}}', "no cols and rows"),
        (b'{"version": 3, "term": {"cols": 80, "rows": -1}}', "no cols and rows"),
        (b'{"version": 2, "width": 80}', "no width and height"),
        (b'{"version": 2, "width": 0, "height": 24}', "no width and height"),
        (b'{"version": 2, "width": 1e9, "height": 24}', "no width and height"),
        (b'{"version": 2, "width": 70000, "height": 24}', "no width and height"),
    ],
)
def test_an_invalid_recording_is_refused_with_the_reason(line: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.cast"
    path.write_bytes(line + b'\n[1, "o", "x"]\n')
    with pytest.raises(RecordingError, match=why):
        Cast(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"none\.cast: No such file"):
        Cast(tmp_path / "none.cast")


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes_are_an_event_or_none(lines: list[bytes]) -> None:
    for line in lines:
        event = asciicast.parse_event(line, 0.0, 1.0)
        assert event is None or event.time >= 1.0
