r"""Asciicasts, the format of recordings: the header, events, reading and writing.

    {"version": 2, "width": 80, "height": 24, "timestamp": 1760000000, "title": "Alice: claude", ...}
    [0.25, "o", "hello\r\n"]        output       [1.5, "r", "100x30"]   a new size
    [2.0, "m", "12 MB left out"]    a marker     [3.0, "i", "ls"]       input, which relay never writes

relay writes version 2 (https://docs.asciinema.org/manual/asciicast/v2/), and reads version 3 as well, which
asciinema 3 writes: its times count from the previous event, and lines that begin with "#" are comments.
Bytes that are not UTF-8 are lone surrogates (PEP 383), which JSON writes as `\udcff`.

A recording is read as a stream, never into memory: opening it reads the header and both ends of each part.
It may end in the middle of a line, because a machine went down, and anybody may have written it: a time that
goes backwards, is absurd or is not a number is replaced with the previous one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard

from relay.dataclass import dataclass, field
from relay.errors import RecordingError

MAX_LINE = 8 << 20
"""Maximum bytes of a line; a longer one counts as damaged."""

LONGEST = 10 * 365 * 86400.0
"""Maximum length of a recording in seconds, ten years; a later event gets the time of the previous one."""

_TAIL = 64 << 10  # bytes at the end of a part that are searched first for its last event
_END = -1  # offset of a mark after the last event of a part
_MAX_SIZE = 1 << 16
_MEGABYTE, _KILOBYTE = 1_000_000, 1000
_GAP = re.compile(r"(\d{1,9}(?:\.\d)?) ([kM])B left out")
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})", re.ASCII)
_UNREADABLE = b"\0\n"  # in place of a line that is too long


class CastEvent(NamedTuple):
    """One event. time: seconds since the recording began; kind: "o", "i", "r" or "m"; data: as in JSON."""

    time: float
    kind: str
    data: str

    @property
    def encoded(self) -> bytes:
        """The data as the terminal received it."""
        try:
            return self.data.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return self.data.encode("utf-8", "replace")

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows) of an "r" event; it may raise ValueError if the event was not read from a file."""
        columns, _, rows = self.data.partition("x")
        return int(columns), int(rows)

    def line(self) -> bytes:
        return json_line([round(self.time, 6), self.kind, self.data])


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a recording; a missing field is None, "" or 0.

    timestamp:  when the recording began, in seconds since the epoch.
    env:        variables of the recorded program that players may show.
    idle_limit: seconds to which players shorten a pause.
    team, name, session, part: those of the session that relay recorded; part is the file's number, from 1 on.
    version:    of the format that it was read from: 2 or 3.
    """

    columns: int
    rows: int
    timestamp: float | None = None
    title: str = ""
    command: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    idle_limit: float | None = None
    team: str = ""
    name: str = ""
    session: str = ""
    part: int = 0
    version: int = 2

    def event(self, line: bytes, start: float = 0.0, before: float = 0.0) -> CastEvent | None:
        """Return `line` below this header as an event, as `parse_event` does."""
        return parse_event(line, before if self.version == 3 else start, before)

    def line(self) -> bytes:
        """Return the header as the first line of a file of version 2."""
        about = {"team": self.team, "name": self.name, "session": self.session, "part": self.part}
        optional = {
            "timestamp": None if self.timestamp is None else int(self.timestamp),
            "idle_time_limit": self.idle_limit,
            "title": self.title,
            "command": self.command,
            "env": dict(self.env),
            "relay": about if self.part else None,  # players ignore unknown keys
        }
        given = {key: value for key, value in optional.items() if value not in (None, "", {})}
        return json_line({"version": 2, "width": self.columns, "height": self.rows} | given)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place between two events. offset: bytes into the part; time: the previous event's, in seconds."""

    part: int = 0
    offset: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class CastPart:
    """One file of a recording.

    start: the recording's time, in seconds, from which the times in this file count.
    end:   the recording's time, in seconds, at this file's last event.
    """

    path: Path
    header: Header
    start: float
    end: float

    @classmethod
    def read(cls, path: Path, start: float) -> CastPart:
        """Read the header and the end of a part that begins at `start`. Raise RecordingError on failure."""
        with _open(path) as stream:
            header = _header(path, _line(stream) or b"")
            return cls(path, header, start, _last(stream, header, start))

    def markers(self) -> Iterator[CastEvent]:
        time = self.start
        with _open(self.path) as stream:
            while (line := _line(stream)) is not None:
                # Most of a recording is output: parse only what may be a marker, or counts for its time.
                if b'"m"' not in line and self.header.version == 2:
                    continue
                event = self.header.event(line, self.start, time)
                time = time if event is None or self.header.version == 2 else event.time
                if event is not None and event.kind == "m":
                    yield event


class Cast:
    """One recording, in one or several consecutive files; iterating yields its events.

    skipped: the number of damaged lines skipped so far.
    strict:  raise RecordingError for a damaged line instead; a truncated last line is skipped.
    """

    def __init__(self, *paths: Path, strict: bool = False) -> None:
        """Open the files; raise RecordingError if one cannot be read or is not an asciicast."""
        self.parts: tuple[CastPart, ...] = ()
        self.skipped = 0
        self.strict = strict
        for path in paths:
            self.parts += (CastPart.read(path, self.parts[-1].end if self.parts else 0.0),)

    def __iter__(self) -> Iterator[CastEvent]:
        return iter(self.reader())

    @property
    def header(self) -> Header:
        """The header of the first existing part."""
        return self.parts[0].header

    @property
    def seconds(self) -> float:
        """The time of the last event."""
        return self.parts[-1].end

    @property
    def truncated(self) -> bool:
        """True if the first parts are missing: relay keeps only the last ones of a long session."""
        return self.header.part > 1

    def reader(self, mark: Mark | None = None) -> CastReader:
        return CastReader(self, mark or Mark())


class CastReader:
    """Yields the events of a recording one by one, and an "r" event where a part has another size."""

    def __init__(self, cast: Cast, mark: Mark) -> None:
        self._cast = cast
        self._part = mark.part
        self._time = mark.time
        self._stream: IO[bytes] | None = self._open(mark.offset)

    def __iter__(self) -> Iterator[CastEvent]:
        try:
            while (event := self.next()) is not None:
                yield event
        finally:
            self.close()

    def next(self) -> CastEvent | None:
        """Return the next event, None after the last; raise RecordingError if it is damaged and `strict`."""
        while self._stream is not None:
            while (line := _line(self._stream)) is not None:
                part = self._cast.parts[self._part]
                event = part.header.event(line, part.start, self._time)
                if event is not None:
                    self._time = event.time
                    return event
                if line.strip() and not (part.header.version == 3 and line.startswith(b"#")):
                    if self._cast.strict and line.endswith(b"\n"):
                        raise self._error(line)
                    self._cast.skipped += 1
            before = self._cast.parts[self._part].header
            self.close()
            if self._part + 1 == len(self._cast.parts):
                return None
            self._part += 1
            self._stream = self._open(0)
            header = self._cast.parts[self._part].header
            if (header.columns, header.rows) != (before.columns, before.rows):
                return CastEvent(self._time, "r", f"{header.columns}x{header.rows}")
        return None

    def mark(self) -> Mark:
        """Return the place after the event that `next` returned last."""
        return Mark(self._part, _END if self._stream is None else self._stream.tell(), self._time)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, offset: int) -> IO[bytes]:
        stream = _open(self._cast.parts[self._part].path)
        if offset == _END:
            stream.seek(0, os.SEEK_END)
        elif offset:
            stream.seek(offset)
        else:
            _line(stream)  # the header
        return stream

    def _error(self, line: bytes) -> RecordingError:
        assert self._stream is not None
        end = self._stream.tell()
        self._stream.seek(0)
        number = self._stream.read(end).count(b"\n")
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            why = "this line is not a JSON list. Record it again, or remove the line."
        else:
            match event:
                case [int() | float(), "r", str(data)]:
                    why = f'{data!r} is not a size like "80x24". Remove the line.'
                case _:
                    why = 'this is not an event like [1.5, "o", "text"]. Record it again, or remove the line.'
        return RecordingError(f"{self._cast.parts[self._part].path}:{number}: {why}")


def parse_event(line: bytes, start: float = 0.0, before: float = 0.0) -> CastEvent | None:
    """Return `line` as an event, `start` seconds later and not before `before`; None if it is not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match event:
        case [int() | float() as time, str(kind), str(data)] if not isinstance(time, bool):
            if kind != "r" or _is_size(data):
                return CastEvent(_time(time, start, before), kind, data)
    return None


def gap_marker(size: int) -> str:
    """Return the data of the marker (kind "m") that replaces `size` bytes of output that were left out."""
    if size >= _MEGABYTE:
        return f"{size / _MEGABYTE:.1f} MB left out"
    return f"{max(size // _KILOBYTE, 1)} kB left out"


def gap_size(marker: str) -> int | None:
    """Return the bytes left out according to `marker`; None if `gap_marker` did not make it."""
    found = _GAP.fullmatch(marker)
    return None if found is None else int(float(found[1]) * (_MEGABYTE if found[2] == "M" else _KILOBYTE))


def json_line(value: object) -> bytes:
    """Return one line of JSON. Lone surrogates, for which UTF-8 has no bytes, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, separators=(", ", ": "), default=str).encode() + b"\n"


def _is_size(data: str) -> bool:
    size = _SIZE.fullmatch(data)
    return size is not None and _fits(int(size[1])) and _fits(int(size[2]))


def _time(time: float, start: float, before: float) -> float:
    try:
        value = start + float(time)
    except OverflowError:
        return before
    return max(value, before) if math.isfinite(value) and value <= LONGEST else before


def _header(path: Path, line: bytes) -> Header:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        raise _no_recording(path, "is not a JSON object") from None
    if not isinstance(header, dict) or "version" not in header:
        raise _no_recording(path, "has no version")
    version, size = header["version"], header
    if version not in (2, 3):
        raise RecordingError(
            f"{path}:1: this is asciicast version {version!r}, and relay reads versions 2 and 3. "
            "Convert it with: asciinema convert --output-format asciicast-v2 FILE NEW"
        )
    keys = ("width", "height") if version == 2 else ("cols", "rows")
    if version == 3:
        size = header["term"] if isinstance(header.get("term"), dict) else {}
    columns, rows = map(size.get, keys)
    if not (_fits(columns) and _fits(rows)):
        raise _no_recording(path, f"has no {' and '.join(keys)}")
    env, about = header.get("env"), header.get("relay")
    about = about if isinstance(about, dict) else {}
    part = about.get("part")
    return Header(
        columns,
        rows,
        timestamp=_number(header.get("timestamp")),
        idle_limit=_number(header.get("idle_time_limit")),
        title=_text(header.get("title")),
        command=_text(header.get("command")),
        env={k: v for k, v in env.items() if isinstance(v, str)} if isinstance(env, dict) else {},
        team=_text(about.get("team")),
        name=_text(about.get("name")),
        session=_text(about.get("session")),
        part=part if isinstance(part, int) else 0,
        version=version,
    )


def _no_recording(path: Path, why: str) -> RecordingError:
    return RecordingError(
        f"{path}:1: this is not a recording: its first line {why}. "
        "Name an asciicast, as `asciinema rec` writes it."
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e15:
        return None
    return float(value)


def _fits(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number < _MAX_SIZE


def _last(stream: IO[bytes], header: Header, start: float) -> float:
    """Return the time of the last event in a part, `start` if it has none. stream: behind the header."""
    if header.version == 3:  # each time counts from the previous one
        time = start
        while (line := _line(stream)) is not None:
            time = event.time if (event := header.event(line, start, time)) else time
        return time
    length = stream.seek(0, os.SEEK_END)
    tail = _TAIL
    while True:
        stream.seek(max(0, length - tail))
        times = [event.time for line in stream.read(tail).split(b"\n") if (event := parse_event(line, start))]
        if times or tail >= min(length, MAX_LINE):
            return max([start, *times])
        tail *= 8


def _open(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}. Name an asciicast file.") from None


def _line(stream: IO[bytes]) -> bytes | None:
    """Return the next line, _UNREADABLE in place of one that is too long; None at EOF."""
    line = stream.readline(MAX_LINE)
    if not line:
        return None
    if not line.endswith(b"\n") and len(line) == MAX_LINE:
        while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
            pass
        return _UNREADABLE
    return line
