"""Reads recordings of terminals: asciicast version 2, as asciinema and relay write it.

A header line (a JSON object), then one JSON list `[seconds, kind, data]` a line
(https://docs.asciinema.org/manual/asciicast/v2/): kind "o" is output, "i" input, "r" a new size "80x24",
"m" a marker.  Bytes that were not UTF-8 are lone surrogates (PEP 383), which JSON writes as `\udcff`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.errors import RecordingError


@dataclass(frozen=True, slots=True)
class Happening:
    """One event of a recording. time: seconds since its beginning; never decreasing."""

    time: float
    kind: str
    data: str

    @property
    def bytes(self) -> bytes:
        """The data as the terminal saw it."""
        try:
            return self.data.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return self.data.encode("utf-8", "replace")

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows) of an event of kind "r"."""
        columns, _, rows = self.data.partition("x")
        return int(columns), int(rows)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording, whole.

    command, title: what was run, "" if the header does not say.
    timestamp:  seconds since the epoch at which it began, None if the header does not say.
    idle_limit: seconds to which a player shortens a pause, None for no such wish.
    note:       what is wrong with the file's end, which was left out; "" for nothing.
    """

    columns: int
    rows: int
    command: str
    events: tuple[Happening, ...]
    title: str = ""
    timestamp: float | None = None
    idle_limit: float | None = None
    note: str = ""


def read(path: Path) -> Recording:
    """The recording in the file `path`; RecordingError names the line that is wrong.

    A last line that was cut off, as a killed recorder leaves it, is left out; `Recording.note` says so.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}. Name an asciicast file.") from None
    whole, newline, rest = content.rpartition(b"\n")
    note = ""
    try:
        lines = (whole if newline else rest).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise _not_a_recording(path, "it is not text") from None
    header = _header(path, lines[0])
    if newline and rest.strip():
        try:
            json.loads(rest)
        except ValueError:
            note = f"{path}:{len(lines) + 1}: the recording is cut off here."
        else:
            lines.append(rest.decode("utf-8"))  # whole, but for its line feed
    events: list[Happening] = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            events.append(_event(path, number, line, events[-1].time if events else 0.0))
    return Recording(
        header["width"],
        header["height"],
        _text(header.get("command")),
        tuple(events),
        title=_text(header.get("title")),
        timestamp=_number(header.get("timestamp")),
        idle_limit=_number(header.get("idle_time_limit")),
        note=note,
    )


def _header(path: Path, line: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError:
        raise _not_a_recording(path, "its first line is no JSON object") from None
    if not isinstance(header, dict) or "version" not in header:
        raise _not_a_recording(path, "its first line has no version")
    if header["version"] != 2:
        raise RecordingError(
            f"{path}:1: this is an asciicast of version {header['version']}, and relay reads version 2. "
            "Convert it with: asciinema convert --output-format asciicast-v2 FILE NEW"
        )
    columns, rows = header.get("width"), header.get("height")
    if not (isinstance(columns, int) and isinstance(rows, int) and _fits(columns, rows)):
        raise _not_a_recording(path, "its first line has no width and height")
    return header


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _fits(columns: int, rows: int) -> bool:
    return 0 < columns < 1 << 16 and 0 < rows < 1 << 16


def _event(path: Path, number: int, line: str, before: float) -> Happening:
    try:
        event = json.loads(line)
    except ValueError:
        why = "this line is no JSON list. Record it again, or remove the line."
        raise RecordingError(f"{path}:{number}: {why}") from None
    match event:
        case [int() | float() as time, str(kind), str(data)] if not isinstance(time, bool):
            happening = Happening(max(float(time), before), kind, data)
            if kind == "r" and not _is_resize(happening):
                raise RecordingError(f'{path}:{number}: {data!a} is no size like "80x24". Remove the line.')
            return happening
    raise RecordingError(
        f'{path}:{number}: this is no event like [1.5, "o", "text"]. Record it again, or remove the line.'
    )


def _is_resize(event: Happening) -> bool:
    try:
        return _fits(*event.size)
    except ValueError:
        return False


def _not_a_recording(path: Path, why: str) -> RecordingError:
    return RecordingError(
        f"{path}:1: this is not a recording: {why}. Name an asciicast, as `asciinema rec` writes it."
    )
