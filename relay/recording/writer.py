"""Writes the recording of a session to the disk: asciicasts, and the journal's entries next to each.

    {"time": 1760000001.5, "event": "notice", ..., "at": 1.5}    .events.jsonl: "at" is the recording's time

The files always contain whole lines, unless the process dies in the middle of a write; readers then skip the
last line. An asciicast is locked (flock(2)) while it is being written, so that nobody deletes it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.dataclass import replace
from relay.errors import RelayError
from relay.eventbus import EventBus
from relay.home import private_directory
from relay.recording import store
from relay.recording.asciicast import CastEvent, Header, json_line
from relay.storage.locks import wait_lock
from relay.terminal.events import Notify

RETRY = 30.0
"""Seconds until the next try after a disk failure."""

_MEGABYTE = 1_000_000
_IN_USE_CHECK = 0.2  # seconds that processes which check whether a part is in use may hold its lock


class RecordingFiles:
    """The files of one recording: consecutive parts, of which the first go once they take twice `megabytes`.

    A failing disk is reported once; `begin` tries again.

    megabytes: the size after which a part is full.

    header: that of the first part, with a part number one lower.
    origin: when the current part began, by the clock.
    retry:  when to try again after a failure, by the clock.
    follows: an earlier session has recorded the current screen, and nothing has been recorded since.
    """

    def __init__(
        self, folder: Path, megabytes: int, header: Header, bus: EventBus, clock: Callable[[], float]
    ) -> None:
        self.origin = clock()
        self.retry = 0.0
        self.follows = False
        self._folder = folder
        self._most = max(megabytes, 1) * _MEGABYTE
        self._header = header
        self._bus = bus
        self._clock = clock
        self._began = time.time()
        self._paths: list[Path] = []
        self._writer: PartWriter | None = None
        self._notified = False

    def follow(self) -> None:
        """Continue with the parts of an earlier session of the same agent."""
        self.follows = True
        header = self._header
        found = store.recordings(self._folder, header.name, header.team)
        own = (each.parts for each in found if each.first.session == header.session[: store.SESSION])
        if parts := next(own, None):
            self._began = parts[0].began
            self._header = replace(header, part=parts[-1].part)
            self._paths = [each.path for each in parts]

    @property
    def open(self) -> bool:
        return self._writer is not None

    def begin(self, size: tuple[int, int]) -> None:
        """Start the next part, for a terminal of `size`."""
        now, part = self._clock(), self._header.part + 1
        header = replace(self._header, columns=size[0], rows=size[1], timestamp=time.time(), part=part)
        path = store.path_of(self._folder, header.team, header.name, header.session, self._began, part)
        try:
            self._writer = PartWriter(path, header)
        except (OSError, RelayError) as error:
            self._failed(error)
            return
        self._header, self.origin = header, now
        self._shorten()
        self._paths.append(path)

    def record(self, events: list[CastEvent]) -> bool:
        """Buffer `events` for the next flush; return True if they fill the part, which is then closed."""
        if self._writer is None:
            return False
        for event in events:
            self._writer.event(event)
        if self._writer.size <= self._most:
            return False
        with suppress(OSError):
            self._writer.flush()
        self.close()
        return True

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Buffer a journal entry for the next flush."""
        if self._writer is not None:
            self._writer.entry(self._clock() - self.origin, entry)

    def flush(self) -> None:
        if self._writer is None:
            return
        try:
            self._writer.flush()
        except OSError as error:
            self._failed(error)
        else:
            self._notified = self._notified and self._writer.empty

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _shorten(self) -> None:
        """Delete the first parts while all of them exceed twice the size of a full one."""
        parts = [part for path in self._paths if (part := store.parse(path)) is not None]
        sizes = [part.cast_size for part in parts]
        total = sum(sizes)
        while parts and total > 2 * self._most:
            total -= sizes.pop(0)
            parts.pop(0).remove()
        self._paths = [part.path for part in parts]

    def _failed(self, error: OSError | RelayError) -> None:
        if self._writer is not None and self._writer.empty:
            self._writer.remove()
            self._paths.pop()
            self._header = replace(self._header, part=self._header.part - 1)
        self.close()
        self.retry = self._clock() + RETRY
        if not self._notified:
            self._notified = True
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            text = (
                f"the session is not being recorded: {why.rstrip('.')} ({self._folder}). Recording resumes "
                'once there is space; record = "never" in relay.toml turns it off.'
            )
            self._bus.publish(Notify(text))


class PartWriter:
    """Writes the two files of one part."""

    def __init__(self, path: Path, header: Header) -> None:
        """Create the files (0600). Raise OSError or HomeError if that fails."""
        private_directory(path.parent.parent)
        private_directory(path.parent)
        self._path = path
        self._cast = _LineFile(path)
        try:
            self._events = _LineFile(store.events_of(path))
            if not wait_lock(self._cast.fd, _IN_USE_CHECK):
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), os.fspath(path))
            self._cast.kept += header.line()
            self._cast.flush()
        except OSError:
            self.close()
            self.remove()  # nobody could read it
            raise
        self._begins = self._cast.written

    @property
    def size(self) -> int:
        """Bytes of the asciicast, including those not yet written."""
        return self._cast.written + len(self._cast.kept)

    @property
    def empty(self) -> bool:
        """True if nothing but the header has been written."""
        return self._cast.written == self._begins and not self._events.written

    def event(self, event: CastEvent) -> None:
        """Buffer one event for the next `flush`."""
        self._cast.kept += event.line()

    def entry(self, at: float, entry: Mapping[str, Any]) -> None:
        """Buffer one journal entry for the next `flush`. at: seconds of the recording."""
        self._events.kept += json_line({**entry, "at": round(at, 3)})

    def flush(self) -> None:
        """Write the buffered lines. If that fails, drop them and raise OSError."""
        self._cast.flush()
        self._events.flush()

    def remove(self) -> None:
        for each in (self._path, store.events_of(self._path)):
            with suppress(OSError):
                each.unlink()

    def close(self) -> None:
        """Close both files; lines that were not flushed are lost."""
        for file in (getattr(self, "_events", None), self._cast):
            if file is not None:
                file.close()


class _LineFile:
    """A file that ends with a whole line even after a short write.

    written: its size in bytes; kept: lines buffered for the next `flush`.
    """

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.written = os.fstat(self.fd).st_size
        self.kept = bytearray()
        self._path = path

    def flush(self) -> None:
        if not self.kept:
            return
        data = bytes(self.kept)
        self.kept.clear()
        if os.fstat(self.fd).st_nlink == 0:  # deleted: nobody would find what we write
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(self._path))
        try:
            if os.write(self.fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self._path))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fd, self.written)  # no half line in the middle of a file
            raise
        self.written += len(data)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
