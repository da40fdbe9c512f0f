"""The virtual screen of a recording at any time: forward event by event, or straight to a time.

    Cast → step ──→ VirtualScreen    snapshots on the way: (place in the recording, bytes that redraw it)
           seek ──→ the nearest snapshot before that time, and from there event by event

The cost of a seek grows with the output up to that time, so snapshots are taken by bytes, not by seconds.
Terminal queries in the recording are not answered.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from relay.dataclass import dataclass
from relay.recording.asciicast import Cast, CastEvent, Mark
from relay.terminal.screen import VirtualScreen

MAX_COLUMNS, MAX_ROWS = 500, 300
"""The largest screen that is drawn; a recording may claim any size."""

EVERY = 512 << 10
"""Bytes of output between two snapshots; a virtual screen processes them in some ten milliseconds."""

KEPT = 32 << 20
"""Maximum bytes of snapshots kept; beyond that, every second one is dropped."""

_SWITCH = re.compile(rb"\x1b\[\?(?:[0-9]+;)*(?:1049|1047|47)(?:;[0-9]+)*h")
"""DECSET of the alternate screen (xterm ctlseqs)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The screen at one place of the recording.

    picture: bytes that redraw it. below: bytes that redraw the primary screen under an alternate one.
    """

    mark: Mark
    columns: int
    rows: int
    picture: bytes = b""
    below: bytes = b""


class SeekableScreen:
    """The screen of a recording after all events up to `time` (seconds).

    recorded: (columns, rows) of the recorded terminal; the screen may be smaller.
    """

    def __init__(self, cast: Cast) -> None:
        """Raise ScreenUnavailable if this machine has no virtual screen."""
        self._cast = cast
        self._snapshots: list[Snapshot] = []
        self._every = EVERY
        self._begin(Snapshot(Mark(), cast.header.columns, cast.header.rows))

    def _begin(self, at: Snapshot) -> None:
        self.recorded = (at.columns, at.rows)
        self.screen = VirtualScreen(*self._size())
        self.screen.feed(at.below)
        self.screen.feed(at.picture)
        self._below = at.below
        self._fed = 0  # bytes since the last snapshot was due
        self._reader = self._cast.reader(at.mark)
        self._mark = self._reader.mark()
        self.time = self._mark.time
        self._next: CastEvent | None = self._reader.next()

    def __enter__(self) -> SeekableScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def upcoming(self) -> float | None:
        """The time of the next event, None after the last one."""
        return None if self._next is None else self._next.time

    def step(self) -> CastEvent | None:
        """Feed the next event and return it; None at the end."""
        event = self._next
        if event is None:
            return None
        self.time = event.time
        if event.kind == "o":
            self._feed(event.encoded)
        elif event.kind == "r":
            self.recorded = event.size
            self.screen.resize(*self._size())
        self._mark = self._reader.mark()
        self._next = self._reader.next()
        if self._fed >= self._every and self.screen.ground:
            self._snap()
        return event

    def seek(self, time: float) -> None:
        """Go to `time`, forward or back: feed every event up to it and none after it."""
        at = bisect_right(self._snapshots, time, key=lambda snapshot: snapshot.mark.time)
        best = self._snapshots[at - 1] if at else None
        if time < self.time or (best is not None and best.mark.time > self.time):
            self.close()
            self._begin(best or Snapshot(Mark(), self._cast.header.columns, self._cast.header.rows))
        while self._next is not None and self._next.time <= time:
            self.step()
        self.time = max(0.0, time)

    def close(self) -> None:
        self._reader.close()
        self.screen.close()

    def _size(self) -> tuple[int, int]:
        return min(self.recorded[0], MAX_COLUMNS), min(self.recorded[1], MAX_ROWS)

    def _feed(self, data: bytes) -> None:
        start = 0
        for found in _SWITCH.finditer(data):
            self.screen.feed(data[start : found.start()])
            start = found.start()
            if not self.screen.alternate:
                self._below = self.screen.repaint()
        self.screen.feed(data[start:])
        self._fed += len(data)

    def _snap(self) -> None:
        self._fed = 0
        if self._snapshots and self._snapshots[-1].mark.time >= self._mark.time:
            return  # this stretch was played before
        below = self._below if self.screen.alternate else b""
        self._snapshots.append(Snapshot(self._mark, *self.recorded, self.screen.repaint(), below))
        if sum(len(each.picture) + len(each.below) for each in self._snapshots) > KEPT:
            self._every *= 2
            self._snapshots = self._snapshots[::2]
