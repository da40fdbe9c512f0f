"""Writes one part of a recording to the disk: an asciicast, and the journal's entries beside it.

    {"time": 1760000001.5, "event": "notice", ..., "at": 1.5}    .events.jsonl: "at" is the recording's time

The files hold whole lines at any time, unless the process dies in the middle of a write; readers leave out
the last line then.  While the asciicast is written it is locked (flock(2)), so that nobody deletes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.home import private_directory
from relay.recording.asciicast import CastEvent, Header, json_line
from relay.recording.store import events_of
from relay.storage.locks import wait_lock

_LOOKED_AT = 0.2  # seconds for which others who look whether a part is in use may keep its lock


class PartWriter:
    """Writes the two files of one part, which it creates at once (0600).

    Raise OSError or HomeError where that fails.
    """

    def __init__(self, path: Path, header: Header) -> None:
        private_directory(path.parent.parent)
        private_directory(path.parent)
        self._cast = _LineFile(path)
        try:
            self._events = _LineFile(events_of(path))
            if not wait_lock(self._cast.fd, _LOOKED_AT):
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), os.fspath(path))
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
        """Bytes of the asciicast, with those not yet written."""
        return self._cast.size

    def event(self, event: CastEvent) -> None:
        """Keep one event for the next `flush`."""
        self._cast.add(event.line())

    def entry(self, at: float, entry: Mapping[str, Any]) -> None:
        """Keep one entry of the journal for the next `flush`. at: seconds of the recording."""
        self._events.add(json_line({**entry, "at": round(at, 3)}))

    def flush(self) -> None:
        """Write the kept lines; raise OSError if that fails, and drop them then."""
        self._cast.flush()
        self._events.flush()

    def close(self) -> None:
        """Close both files; what was not flushed is lost."""
        for file in (getattr(self, "_events", None), self._cast):
            if file is not None:
                file.close()


class _LineFile:
    """A file that ends with a whole line even if the disk takes only half of a write."""

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
        if os.fstat(self.fd).st_nlink == 0:  # deleted: nobody would find what we write
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(self._path))
        try:
            if os.write(self.fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self._path))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fd, self._written)  # no half line in the middle of a file
            raise
        self._written += len(data)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
