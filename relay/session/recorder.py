"""Records one session for `relay replay`: what its terminal shows, and beside it the journal's entries.

    OutputPump → backlog → decoded → Veil: secrets covered → Writer → .cast
                   │ a flood: left out, a marker, the screen painted anew
    Journal ────────────────────────────────────────────────→ .events.jsonl

It works on the session's event loop when that has time, in slices, and holds back no byte of the terminal's.
A disk that takes nothing is said once; the agent runs on, and the recording when there is room again.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from relay.errors import RelayError
from relay.recording import gap, store
from relay.recording.stream_redactor import Event, Veil
from relay.recording.writer import Header, Writer
from relay.redaction import Redactor
from relay.settings import Settings

_log = logging.getLogger(__name__)

RATE, BURST = 256 * 1024, 512 * 1024
"""Bytes of output a second that are recorded in the long run, and at once."""

FLOOD = 1 << 14
"""Bytes at once that are part of a flood, which is worked on when it is over."""

SLICE, BREATH = 1 << 15, 0.01
"""Bytes that are worked on before everything else has its turn, and seconds that it has."""

FAST = 1 << 20
"""Bytes left out in a second of a flood that goes on: until it is slower it has the processor to itself."""

CALM, PATIENCE = 0.2, 30.0
"""Seconds without much output after which a flood is over, and seconds for which its end is waited for."""

FLUSH = 1.0
"""Seconds in which what was recorded is on the disk."""

QUIET = 5.0
"""Seconds without output after which what is held back is not looked at again: it waits for its end."""

RETRY = 30.0
"""Seconds until the next try, where the disk took nothing."""

_KEPT_PARTS = 2
_ENVIRONMENT = ("TERM", "SHELL")
_MEGABYTE = 1_000_000

_AFRESH = "\x18\x1b[!p\x1b[?1049l"
"""CAN ends what sequence was not over; DECSTR, the primary screen: from there a screen is painted anew."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Of whom a recording is. size: (columns, rows); env: the agent's environment."""

    team: str
    name: str
    session: str
    command: Sequence[str]
    env: Mapping[str, str]
    size: tuple[int, int]


class Recorder(Protocol):
    """What a session tells of itself. All on the event loop's thread; nothing is ever raised."""

    def output(self, data: bytes) -> None:
        """The agent has written `data`."""
        ...

    def gap(self, size: int) -> None:
        """The agent has written `size` bytes that nobody could keep."""
        ...

    def resized(self, columns: int, rows: int) -> None:
        """The terminal has another size."""
        ...

    def entry(self, entry: dict[str, Any]) -> None:
        """The journal has another entry."""
        ...

    def close(self) -> None:
        """The session is over."""
        ...


class NoRecorder:
    """Records nothing: the settings say so."""

    def output(self, data: bytes) -> None: ...
    def gap(self, size: int) -> None: ...
    def resized(self, columns: int, rows: int) -> None: ...
    def entry(self, entry: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


def recorder(
    folder: Path,
    settings: Settings,
    subject: Recorded,
    *,
    redactor: Redactor,
    repaint: Callable[[], bytes | None],
    tell: Callable[[str], None],
) -> Recorder:
    """What the settings want. folder: Home.recordings; the rest as for DiskRecorder."""
    if settings.record == "never":
        return NoRecorder()
    return DiskRecorder(folder, settings, subject, redactor=redactor, repaint=repaint, tell=tell)


class DiskRecorder:
    """Writes recordings.

    repaint: bytes that draw the screen as it is now; None while the agent is in the middle of a sequence.
    tell:    is told, once, that nothing can be written.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        subject: Recorded,
        *,
        redactor: Redactor,
        repaint: Callable[[], bytes | None],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._subject = subject
        self._redactor = redactor
        self._repaint = repaint
        self._tell = tell
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._veil = Veil(redactor, *subject.size)
        self._backlog: deque[tuple[float, str, bytes]] = deque()
        self._size = subject.size
        self._began = time.time()
        self._origin = self._last = self._filled = clock()
        self._flooded = -CALM
        self._budget = float(BURST)
        self._left_out = self._before = 0
        self._flushing: asyncio.TimerHandle | None = None
        self._working: asyncio.TimerHandle | None = None
        self._part = 0
        self._parts: list[Path] = []
        self._writer: Writer | None = None
        self._retry = 0.0
        self._told = False
        self._open()
        self._loop.call_later(FLUSH, self._sweep)

    # What happens.

    def output(self, data: bytes) -> None:
        now = self._clock()
        calm, self._last = now - self._last >= CALM, now
        if self._writer is None and not self._reopened(now):
            return
        self._budget = min(self._budget + (now - self._filled) * RATE, BURST)
        self._filled = now
        if self._left_out or len(data) > self._budget:
            self._left_out += len(data)
            if calm:
                self._resume()  # `data` is in the screen already
        else:
            self._budget -= len(data)
            self._backlog.append((now, "o", data))
            if len(data) >= FLOOD:
                self._flooded = now
            self._work_later(BREATH)
        self._flush_later()

    def gap(self, size: int) -> None:
        self._left_out += size
        self._flush_later()

    def resized(self, columns: int, rows: int) -> None:
        if (columns, rows) == self._size:
            return
        self._size = columns, rows
        if self._writer is not None and columns > 0 and rows > 0:
            self._backlog.append((self._clock(), "r", b"%dx%d" % self._size))
            self._work_later(BREATH)
            self._flush_later()

    def entry(self, entry: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.entry(self._clock() - self._origin, entry)
            self._flush_later()

    def close(self) -> None:
        for timer in (self._working, self._flushing):
            if timer is not None:
                timer.cancel()
        self._resume()
        while self._backlog:
            self._work(len(self._backlog))
        self._write(all=True)
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # The work, when there is time.

    def _work_later(self, delay: float) -> None:
        if self._working is None:
            self._working = self._loop.call_later(delay, self._work_on)

    def _work_on(self) -> None:
        """Work on a slice of the backlog, unless there is a flood: everything else is more urgent then."""
        self._working = None
        if not self._backlog:
            return
        now = self._clock()
        if now - self._flooded < CALM and now - self._backlog[0][0] < PATIENCE:
            self._work_later(CALM)
            return
        size = count = 0
        for _, _, data in self._backlog:
            count, size = count + 1, size + len(data)
            if size >= SLICE:
                break
        self._work(count)
        if self._backlog:
            self._work_later(BREATH)

    def _work(self, count: int) -> None:
        for _ in range(count):
            at, kind, data = self._backlog.popleft()
            text = self._decoder.decode(data) if kind == "o" else data.decode()
            self._veil.put(Event(max(at - self._origin, 0.0), kind, text))
        if self._veil.held >= SLICE:
            self._record(self._veil.take(self._now))

    def _record(self, events: list[Event]) -> None:
        if self._writer is None:
            return
        for event in events:
            self._writer.event(*event)
        if self._writer.size > max(self._settings.record_megabytes, 1) * _MEGABYTE:
            self._go_on()

    def _resume(self) -> None:
        """Go on after a flood, with the screen as it is now."""
        if not self._left_out or self._writer is None or (screen := self._repaint()) is None:
            return
        now = self._clock()
        self._backlog.append((now, "m", gap.say(self._left_out).encode()))
        self._backlog.append((now, "o", _AFRESH.encode() + screen))
        self._left_out = self._before = 0
        self._work_later(BREATH)

    @property
    def _now(self) -> float:
        """Seconds of the recording."""
        return self._clock() - self._origin

    # The disk.

    def _flush_later(self) -> None:
        if self._flushing is None:
            self._flushing = self._loop.call_later(FLUSH, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        quiet = self._clock() - self._last
        came, self._before = self._left_out - self._before, self._left_out
        if quiet >= CALM or came < FAST:
            self._resume()
        busy = bool(self._backlog)  # what is worked on is written in a second
        if not busy:
            self._write()
        if busy or self._left_out or (self._veil.held and quiet < QUIET):
            self._flush_later()

    def _write(self, *, all: bool = False) -> None:
        self._record(self._veil.take(self._now, all=all))
        if self._writer is None:
            return
        try:
            self._writer.flush()
        except OSError as error:
            self._failed(error)

    def _open(self) -> None:
        """Begin a part, of which the screen as it is now is the first thing unless it is the first part."""
        now = self._clock()
        subject, part = self._subject, self._part + 1
        path = store.path_of(self._folder, subject.team, subject.name, subject.session, self._began, part)
        command = self._redactor.redact(shlex.join(subject.command))
        header = Header(
            *self._size,
            timestamp=time.time(),
            title=f"{subject.name}: {command}",
            command=command,
            env={name: subject.env[name] for name in _ENVIRONMENT if name in subject.env},
            team=subject.team,
            name=subject.name,
            session=subject.session,
            part=part,
        )
        try:
            self._writer = Writer(path, header)
        except (OSError, RelayError) as error:
            self._failed(error)
            return
        self._part, self._origin, self._told = part, now, False
        self._parts.append(path)
        if len(self._parts) > _KEPT_PARTS and (old := store.parse(self._parts.pop(0))) is not None:
            old.remove()

    def _go_on(self) -> None:
        """This part is large enough: the next one begins, and of those before only the last one stays."""
        assert self._writer is not None
        with suppress(OSError):
            self._writer.flush()
        self._writer.close()
        self._writer = None
        self._start_over()

    def _start_over(self) -> None:
        """Begin another part with the screen, which shows all that waits to be written."""
        self._backlog.clear()
        self._veil.skip()
        self._decoder.reset()
        self._open()
        if self._writer is not None:
            screen = self._repaint() or b""
            self._backlog.append((self._clock(), "o", _AFRESH.encode() + screen))
            self._left_out = self._before = 0
            self._work_later(BREATH)
            self._flush_later()

    def _reopened(self, now: float) -> bool:
        """Whether there is a file again after a failure; it is tried now and then."""
        if now >= self._retry:
            self._start_over()
        return False  # what came last is in the screen already

    def _failed(self, error: OSError | RelayError) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._retry = self._clock() + RETRY
        if not self._told:
            self._told = True
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            self._tell(
                f"the session is not recorded: {why.rstrip('.')} ({self._folder}). "
                'It is, once there is room; record = "never" in relay.toml says that it need not be.'
            )

    def _sweep(self) -> None:
        settings = self._settings
        try:
            store.sweep(
                self._folder, days=settings.record_days, total=settings.record_total_megabytes * _MEGABYTE
            )
        except OSError as error:
            _log.warning("old recordings were not looked at: %s", error)
