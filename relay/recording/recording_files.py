"""The files of one session's recording: one part after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.errors import RelayError
from relay.eventbus import EventBus
from relay.recording import store
from relay.recording.asciicast import CastEvent, Header
from relay.recording.writer import PartWriter
from relay.terminal.events import Notify

RETRY = 30.0
"""Seconds until the next try after a failure of the disk."""

_KEPT_PARTS = 2
_MEGABYTE = 1_000_000


class RecordingFiles:
    """The files of one recording: one part after the other, of which the last ones are kept.

    A failing disk is reported once; `begin` tries again.

    header: of the first part, whose number is one less.
    origin: when the current part began, by the clock.
    """

    def __init__(
        self,
        folder: Path,
        megabytes: int,
        header: Header,
        bus: EventBus,
        clock: Callable[[], float],
    ) -> None:
        self.origin = clock()
        self._folder = folder
        self._most = max(megabytes, 1) * _MEGABYTE
        self._header = header
        self._bus = bus
        self._clock = clock
        self._began = time.time()
        self._paths: list[Path] = []
        self._writer: PartWriter | None = None
        self._retry = 0.0
        self._notified = False

    @property
    def open(self) -> bool:
        """There is a part to write to."""
        return self._writer is not None

    def may_retry(self, now: float) -> bool:
        """Return True if it is time to try again after a failure."""
        return now >= self._retry

    def begin(self, size: tuple[int, int]) -> None:
        """Begin the next part, for a terminal of `size`."""
        now = self._clock()
        header = replace(
            self._header,
            columns=size[0],
            rows=size[1],
            timestamp=time.time(),
            part=self._header.part + 1,
        )
        path = store.path_of(self._folder, header.team, header.name, header.session, self._began, header.part)
        try:
            self._writer = PartWriter(path, header)
        except (OSError, RelayError) as error:
            self._failed(error)
            return
        self._header, self.origin, self._notified = header, now, False
        self._paths.append(path)
        if len(self._paths) > _KEPT_PARTS and (old := store.parse(self._paths.pop(0))) is not None:
            old.remove()

    def record(self, events: list[CastEvent]) -> bool:
        """Keep `events` for the next flush; return True if that fills the part, which is closed then."""
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

    def entry(self, entry: dict[str, Any]) -> None:
        """Keep an entry of the journal for the next flush."""
        if self._writer is not None:
            self._writer.entry(self._clock() - self.origin, entry)

    def flush(self) -> None:
        """Write what was kept."""
        if self._writer is not None:
            try:
                self._writer.flush()
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _failed(self, error: OSError | RelayError) -> None:
        self.close()
        self._retry = self._clock() + RETRY
        if not self._notified:
            self._notified = True
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            text = (
                f"the session is not recorded: {why.rstrip('.')} ({self._folder}). "
                'It is, once there is room; record = "never" in relay.toml says that it need not be.'
            )
            self._bus.publish(Notify(text))
