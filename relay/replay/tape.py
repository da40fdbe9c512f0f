"""A recording as a stream: one or several asciicasts (version 2), read event by event from any place.

A recording is played from its file, never from memory: opening it reads the headers and both ends of each
part.  Recordings are cut off where a machine went down, and may have been written by anything: a line that
is no event is passed over and counted, and no time in it goes back, stands for no number, or is absurd.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from relay.errors import RecordingError
from relay.recording import Happening

MAX_LINE = 8 << 20
"""Bytes of a line that is read; a longer one is passed over."""

LONGEST = 10 * 365 * 86400.0
"""Seconds, ten years: no recording goes on for longer, and an event that says so has the time before it."""

_TAIL = 64 << 10  # bytes at the end of a part in which its last event is looked for at first

_MAX_SIZE = 1 << 16


@dataclass(frozen=True, slots=True)
class Mark:
    """A place between two events. offset: bytes into the part; time: of the event before it, in seconds."""

    part: int = 0
    offset: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a recording.

    start: seconds of the recording at which the times of this file count from.
    end:   seconds of the recording at its last event.
    """

    path: Path
    columns: int
    rows: int
    header: dict[str, Any]
    start: float
    end: float


class Tape:
    """One recording. Several parts follow one another; the times in each count from its own beginning.

    skipped: lines passed over so far because they are no events.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises RecordingError where a file cannot be read or is no asciicast of version 2."""
        self.parts: tuple[Part, ...] = ()
        self.skipped = 0
        for path in paths:
            self.parts += (_part(path, self.parts[-1].end if self.parts else 0.0),)

    @property
    def columns(self) -> int:
        return self.parts[0].columns

    @property
    def rows(self) -> int:
        return self.parts[0].rows

    @property
    def seconds(self) -> float:
        """Its length: the time of its last event."""
        return self.parts[-1].end

    @property
    def cut(self) -> bool:
        """Whether its first parts are missing: of a long session only the last ones are kept."""
        about = self.parts[0].header.get("relay")
        part = about.get("part") if isinstance(about, dict) else None
        return isinstance(part, int) and part > 1

    @property
    def command(self) -> str:
        command = self.parts[0].header.get("command")
        return command if isinstance(command, str) else ""

    def reader(self, mark: Mark | None = None) -> Reader:
        """Reads on from `mark`, or from the beginning."""
        return Reader(self, mark or Mark())


class Reader:
    """Gives the events after a mark, one by one. Where a part has another size, an event "r" says so."""

    def __init__(self, tape: Tape, mark: Mark) -> None:
        self._tape = tape
        self._part = mark.part
        self._time = mark.time
        self._stream: IO[bytes] | None = self._open(mark.offset)

    def __iter__(self) -> Iterator[Happening]:
        try:
            while (event := self.next()) is not None:
                yield event
        finally:
            self.close()

    def next(self) -> Happening | None:
        """The next event, None after the last one."""
        while self._stream is not None:
            while (line := _line(self._stream)) is not None:
                event = parse(line, self._tape.parts[self._part].start, self._time)
                if event is not None:
                    self._time = event.time
                    return event
                self._tape.skipped += bool(line.strip())
            before = self._tape.parts[self._part]
            self.close()
            if self._part + 1 == len(self._tape.parts):
                return None
            self._part += 1
            self._stream = self._open(0)
            part = self._tape.parts[self._part]
            if (part.columns, part.rows) != (before.columns, before.rows):
                return Happening(self._time, "r", f"{part.columns}x{part.rows}")
        return None

    def mark(self) -> Mark:
        """The place behind the event that `next` gave last."""
        if self._stream is None:
            return Mark(self._part, _END, self._time)
        return Mark(self._part, self._stream.tell(), self._time)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, offset: int) -> IO[bytes]:
        stream = _open(self._tape.parts[self._part].path)
        if offset == _END:
            stream.seek(0, os.SEEK_END)
        elif offset:
            stream.seek(offset)
        else:
            _line(stream)  # the header
        return stream


_END = -1


def markers(part: Part) -> Iterator[Happening]:
    """The events "m" of one part."""
    with _open(part.path) as stream:
        while (line := _line(stream)) is not None:
            # Most of a recording is output; only what may be a marker is parsed.
            if b'"m"' in line and (event := parse(line, part.start)) is not None and event.kind == "m":
                yield event


def parse(line: bytes, start: float = 0.0, before: float = 0.0) -> Happening | None:
    """One line as an event, its time in seconds `start` later and not before `before`; None if it is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match event:
        case [int() | float() as time, str(kind), str(data)] if not isinstance(time, bool):
            happening = Happening(_time(time, start, before), kind, data)
            return None if kind == "r" and size(data) is None else happening
    return None


def size(data: str) -> tuple[int, int] | None:
    """(columns, rows) of the data of an event "r", None if it is none."""
    columns, _, rows = data.partition("x")
    if not (columns.isascii() and columns.isdigit() and rows.isascii() and rows.isdigit()):
        return None
    if max(len(columns), len(rows)) > 5 or not (_fits(int(columns)) and _fits(int(rows))):
        return None
    return int(columns), int(rows)


def _time(time: float, start: float, before: float) -> float:
    try:
        value = start + float(time)
    except OverflowError:
        return before
    return max(value, before) if math.isfinite(value) and value <= LONGEST else before


def _part(path: Path, start: float) -> Part:
    """Read the header and both ends of a part that begins `start` seconds after the first one."""
    with _open(path) as stream:
        header = _header(path, _line(stream) or b"")
        return Part(path, header["width"], header["height"], header, start, _last(stream, start))


def _header(path: Path, line: bytes) -> dict[str, Any]:
    why = ""
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header, why = None, "its first line is no JSON object"
    if not why and (not isinstance(header, dict) or "version" not in header):
        why = "its first line has no version"
    elif not why and header["version"] != 2:
        raise RecordingError(
            f"{path}:1: this is an asciicast of version {header['version']!a}, and relay reads version 2. "
            "Convert it with: asciinema convert --output-format asciicast-v2 FILE NEW"
        )
    elif not why and not (_fits(header.get("width")) and _fits(header.get("height"))):
        why = "its first line has no width and height"
    if why:
        raise RecordingError(
            f"{path}:1: this is not a recording: {why}. Name an asciicast, as `asciinema rec` writes it."
        )
    assert isinstance(header, dict)
    return header


def _fits(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number < _MAX_SIZE


def _last(stream: IO[bytes], start: float) -> float:
    """The time of the last event in a part, `start` if it has none."""
    length = stream.seek(0, os.SEEK_END)
    tail = _TAIL
    while True:
        stream.seek(max(0, length - tail))
        times = [event.time for line in stream.read(tail).split(b"\n") if (event := parse(line, start))]
        if times or tail >= min(length, MAX_LINE):
            return max([start, *times])
        tail *= 8


def _open(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}. Name an asciicast file.") from None


def _line(stream: IO[bytes]) -> bytes | None:
    """The next line; empty if it is too long to be read; None at the end."""
    line = stream.readline(MAX_LINE)
    if not line:
        return None
    if not line.endswith(b"\n") and len(line) == MAX_LINE:
        while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
            pass
        return b"\n"
    return line
