"""Writes one part of a recording: an asciicast (version 2), and the journal's entries beside it.

    {"version": 2, "width": 80, "height": 24, "timestamp": 1760000000, "title": "Alice: claude", ...}
    [0.25, "o", "hello\\r\\n"]       output       [1.5, "r", "100x30"]   a new size
    [2.0, "m", "12 MB left out"]    a marker     never "i": what the person types is not recorded

    {"time": 1760000001.5, "event": "notice", ..., "at": 1.5}    .events.jsonl: "at" is the recording's time

The files hold whole lines at any time, unless the process dies in the middle of a write: the reader passes
over the last line then.  While it is written, the asciicast is locked (flock(2)), so that nobody deletes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.home import private_directory
from relay.recording.store import events_of

IDLE_LIMIT = 3.0
"""Seconds to which players shorten a pause (idle_time_limit): agents think, and wait for people."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a recording says of itself. timestamp: seconds since the epoch; env: what a player may show."""

    columns: int
    rows: int
    timestamp: float
    title: str
    command: str
    env: Mapping[str, str] = field(default_factory=dict)
    team: str = ""
    name: str = ""
    session: str = ""
    part: int = 1

    def line(self) -> bytes:
        about = {"team": self.team, "name": self.name, "session": self.session, "part": self.part}
        return _line(
            {
                "version": 2,
                "width": self.columns,
                "height": self.rows,
                "timestamp": int(self.timestamp),
                "idle_time_limit": IDLE_LIMIT,
                "title": self.title,
                "command": self.command,
                "env": dict(self.env),
                "relay": about,  # players pass over keys that they do not know
            }
        )


class Writer:
    """The two files of one part; both are made at once (0600). Raises OSError, HomeError where that fails.

    size: bytes of the asciicast, with what is still to be written.
    """

    def __init__(self, path: Path, header: Header) -> None:
        private_directory(path.parent.parent)
        private_directory(path.parent)
        self.path = path
        self._cast = _File(path)
        try:
            self._events = _File(events_of(path))
            fcntl.flock(self._cast.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._cast.add(header.line())
            self._cast.flush()
        except OSError:
            self.close()
            for each in (path, events_of(path)):
                with suppress(OSError):
                    each.unlink()  # nobody could read it
            raise

    @property
    def size(self) -> int:
        return self._cast.size

    def event(self, at: float, kind: str, data: str) -> None:
        """Keep one event for the next `flush`. at: seconds since the beginning."""
        self._cast.add(_line([round(at, 6), kind, data]))

    def entry(self, at: float, entry: Mapping[str, Any]) -> None:
        """Keep one entry of the journal for the next `flush`."""
        self._events.add(_line({**entry, "at": round(at, 3)}))

    def flush(self) -> None:
        """Write what was kept; OSError where the disk takes it not, and then it is kept no longer."""
        self._cast.flush()
        self._events.flush()

    def close(self) -> None:
        """Close both files; what was not flushed is lost."""
        for file in (getattr(self, "_events", None), self._cast):
            if file is not None:
                file.close()


class _File:
    """A file that holds whole lines, or none of the last ones."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._written = os.fstat(self.fd).st_size
        self._path = path
        self._lines: list[bytes] = []
        self._waiting = 0

    @property
    def size(self) -> int:
        return self._written + self._waiting

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting += len(line)

    def flush(self) -> None:
        if not self._lines:
            return
        data = b"".join(self._lines)
        self._lines, self._waiting = [], 0
        if os.fstat(self.fd).st_nlink == 0:  # deleted under us: what we write nobody would find
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(self._path))
        try:
            if os.write(self.fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self._path))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fd, self._written)  # no half line stays in the middle of a file
            raise
        self._written += len(data)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _line(value: object) -> bytes:
    """One line of JSON. Lone surrogates, which UTF-8 has no bytes for, are escaped as JSON does it."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, separators=(", ", ": "), default=str).encode() + b"\n"
