"""Recordings on disk: they are read back as written, named after their contents, and deleted when old."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from relay.errors import RecordingError
from relay.recording import store
from relay.recording.asciicast import Cast, CastEvent, Header
from relay.recording.writer import PartWriter

BEGAN = 1_760_000_000.0
DAY = 86_400


def write(
    folder: Path, name: str = "Ann", session: str = "0123456789", began: float = BEGAN, part: int = 1
) -> Path:
    path = store.path_of(folder, "default", name, session, began, part)
    writer = PartWriter(path, Header(80, 24, began, f"{name}: claude", "claude", part=part))
    writer.event(CastEvent(0.5, "o", "x" * 100))
    writer.flush()
    writer.close()
    os.utime(path, (began, began))
    return path


def test_a_recording_is_read_back_as_written(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 and characters that JSON escapes are preserved."""
    path = store.path_of(tmp_path / "recordings", "default", "Ann", "0123456789ab", BEGAN)
    who = {"team": "default", "name": "Ann", "session": "0123456789ab", "part": 1}
    header = Header(80, 24, BEGAN, "Ann: claude", "claude", {"TERM": "xterm"}, 3.0, **who)  # type: ignore[arg-type]
    writer = PartWriter(path, header)
    writer.event(CastEvent(0.25, "o", 'a\r\n\x1b[1m"日本"'))
    writer.event(CastEvent(1, "r", "100x30"))
    writer.event(CastEvent(2, "o", b"\xff\xe6".decode("utf-8", "surrogateescape")))
    writer.entry(2.5, {"time": BEGAN + 2.5, "event": "notice", "text": "hi"})
    writer.flush()
    writer.close()
    cast = Cast(path, strict=True)
    assert cast.header == header
    events = list(cast)
    assert [(e.time, e.kind) for e in events] == [(0.25, "o"), (1, "r"), (2, "o")]
    assert events[0].data == 'a\r\n\x1b[1m"日本"'
    assert events[2].encoded == b"\xff\xe6" and cast.skipped == 0
    [entry] = map(json.loads, store.events_of(path).read_text().splitlines())
    assert (entry["event"], entry["at"]) == ("notice", 2.5)
    for each in (path, store.events_of(path)):
        assert each.stat().st_mode & 0o777 == 0o600
    for folder in (path.parent, path.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_truncated_last_line_is_skipped(cut: int, tmp_path: Path) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'[0.75, "o", "\xe6\x97\xa5 cut off here'[:-cut])
    recorded = Cast(path, strict=True)
    assert (len(list(recorded)), recorded.skipped) == (1, 1)
    path.write_bytes(whole[:-1])  # complete except for its line feed
    recorded = Cast(path, strict=True)
    assert (len(list(recorded)), recorded.skipped) == (1, 0)
    path.write_bytes(whole.replace(b"[0.5", b"{0.5") + b'[1, "o", ""]\n')
    with pytest.raises(RecordingError, match=":2: this line is not a JSON list"):
        list(Cast(path, strict=True))


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "default" / "a.cast"
    writer = PartWriter(path, Header(80, 24, BEGAN, "", ""))
    writer.event(CastEvent(1, "o", "kept"))
    writer.flush()
    real = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
        writer.event(CastEvent(2, "o", "lost"))
        with pytest.raises(OSError, match="No space") as raised:
            writer.flush()
        assert raised.value.errno == errno.ENOSPC
    writer.event(CastEvent(3, "o", "kept, too"))
    writer.flush()
    assert [event.data for event in Cast(path, strict=True)] == ["kept", "kept, too"]
    path.unlink()
    writer.event(CastEvent(4, "o", "for nobody"))
    with pytest.raises(FileNotFoundError):
        writer.flush()
    writer.close()
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
        with pytest.raises(OSError, match="No space"):
            PartWriter(tmp_path / "default" / "b.cast", Header(80, 24, BEGAN, "", ""))
    assert not list((tmp_path / "default").glob("b*"))


@pytest.mark.parametrize("name", ["Ann", "a-b", "Ann.2", "x-20260101T000000-abc"])
def test_a_file_name_identifies_its_recording(name: str, tmp_path: Path) -> None:
    for part in (1, 2, 11):
        path = store.path_of(tmp_path, "team.x", name, "0123456789", BEGAN, part)
        stored = store.parse(path)
        assert stored == store.StoredPart(tmp_path / "team.x", path.name, name, "01234567", BEGAN, part)
        assert stored.events.name == path.name.replace(".cast", ".events.jsonl")
    for other in ("Ann.cast", "Ann-20261399T000000-abc.cast", "Ann-20260101T000000-abc.events.jsonl"):
        assert store.parse(tmp_path / other) is None
    assert store.recordings(tmp_path / "none") == []


def test_the_latest_recording_has_all_its_parts(tmp_path: Path) -> None:
    write(tmp_path, session="old", began=BEGAN - 9)
    parts = [write(tmp_path, session="new", part=part) for part in (2, 10, 1)]
    write(tmp_path, "Bob", session="bob", began=BEGAN + 9)
    assert store.find(tmp_path, "ann").paths == [parts[2], parts[0], parts[1]]
    assert store.recordings(tmp_path, "Ann", "other") == []


def test_old_recordings_are_deleted(tmp_path: Path) -> None:
    """By age, then the oldest until the rest fits; never those of a running session."""
    ages = [40, 31, 20, 10, 1]
    old = [write(tmp_path, session=f"s{age}", began=BEGAN - age * DAY) for age in ages]
    first = write(tmp_path, session="running", began=BEGAN - 90 * DAY)
    second = store.path_of(tmp_path, "default", "Ann", "running", BEGAN - 90 * DAY, 2)
    running = PartWriter(second, Header(80, 24, BEGAN, "", "", part=2))
    remaining = lambda: [path for path in (first, second, *old) if path.exists()]  # noqa: E731
    assert store.sweep(tmp_path, days=30, total=10**9, now=BEGAN) == 2
    assert remaining() == [first, second, *old[2:]]
    size = sum(each.size for each in store.recordings(tmp_path))
    assert store.sweep(tmp_path, days=30, total=size - 1, now=BEGAN) == 1  # not the running oldest
    assert remaining() == [first, second, *old[3:]]
    assert store.sweep(tmp_path, days=30, total=0, now=BEGAN) == 2
    assert remaining() == [first, second]
    assert not list(tmp_path.glob("*/*s10*"))
    running.close()
    assert store.sweep(tmp_path, days=30, total=10**9, now=BEGAN) == 1  # the second part has just changed
    assert remaining() == [second]
