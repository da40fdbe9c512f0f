"""Records the session for `relay replay`: its terminal's output, and the journal's entries.

    output, sizes → Throttle → backlog → StreamRedactor: secrets covered → RecordingFiles → .cast
                    │ a flood is left out: a marker, and the screen repainted
    journal ──────────────────────────────────────────────────────────────────────────→ .events.jsonl

It works on the session's event loop, in slices when the loop has time, and delays no byte of the terminal.  A
failing disk is reported once; the agent keeps running, and recording resumes once there is room again.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from relay.dataclass import replace
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import SessionBegan, SessionClosed
from relay.recording import store
from relay.recording.asciicast import CastEvent, Header, gap_marker
from relay.recording.stream_redactor import StreamRedactor
from relay.recording.throttle import CALM, Throttle
from relay.recording.writer import RecordingFiles
from relay.redaction import Redactor
from relay.settings import Settings
from relay.state.agent_terminal import AgentTerminal
from relay.storage.journal import EntryWritten
from relay.terminal.events import OutputRead, OutputSkipped, TerminalResized

_log = logging.getLogger(__name__)

SLICE, BREATH = 1 << 15, 0.01
"""Bytes processed before everything else gets its turn, and the seconds of that turn."""

SOON = 0.5
"""Seconds after which new output is processed: a program that draws constantly costs less in one go."""

FLOOD_TIMEOUT = 30.0
"""Seconds to wait for the end of a flood."""

FLUSH = 1.0
"""Seconds after which recorded output is on the disk."""

SWEEP_EVERY = 86400.0
"""Seconds between two sweeps of recordings that are too old or too many."""

QUIET = 5.0
"""Seconds without output after which held-back output is no longer re-examined: it waits for the end."""

IDLE_LIMIT = 3.0
"""Seconds to which players shorten a pause (idle_time_limit): agents think, and wait for their user."""

_ENVIRONMENT = ("TERM", "SHELL")
_MEGABYTE = 1_000_000

_AFRESH = b"\x18\x1b[!p\x1b[?1049l"
"""CAN ends an unfinished sequence; DECSTR and the primary screen: the starting point of a repaint."""


class Recorder:
    """Writes the recording of one session, and never raises.

    folder: Home.recordings.
    header: the session's; its secrets are removed here. Its size is the initial size of the terminal.
    follows: an earlier session of the agent has begun the recording.
    """

    def __init__(
        self,
        bus: EventBus,
        terminal: AgentTerminal,
        folder: Path,
        settings: Settings,
        header: Header,
        redactor: Redactor,
        *,
        follows: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._terminal = terminal
        self._clock = clock
        self._size = header.columns, header.rows
        self._throttle = Throttle(clock())
        self._backlog: deque[tuple[float, str, bytes]] = deque()  # (when, kind, data), by the clock
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._redactor = redactor
        self._stream = StreamRedactor(redactor, *self._size)
        command = redactor.redact(header.command)
        env = {name: header.env[name] for name in _ENVIRONMENT if name in header.env}
        title = f"{header.name}: {command}"
        header = replace(header, title=title, command=command, env=env, idle_limit=IDLE_LIMIT)
        self._files = RecordingFiles(folder, settings.record_megabytes, header, bus, clock)
        if follows:
            self._files.follow()
        self._flushing: asyncio.TimerHandle | None = None
        self._working: asyncio.TimerHandle | None = None
        bus.loop.call_later(FLUSH, _sweep, bus.loop, folder, settings)

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if self._files.follows:
            self._size = self._terminal.size
        self._files.begin(self._size)

    @handles(OutputRead)
    def output(self, event: OutputRead) -> None:
        if self._files.follows and self._files.open:
            self._files.follows = False
            self._backlog.append((self._clock(), "o", _AFRESH + (self._terminal.repaint() or b"")))
            self._work_later(BREATH)
            self._flush_later()
            return  # the data is on the screen already
        now, data = self._clock(), event.data
        calm = self._throttle.is_calm(now)
        self._throttle.last = now
        if not self._files.open:
            if now >= self._files.retry:
                self._start_over()
            return  # `data` is on the screen already
        if self._throttle.takes(len(data), now):
            self._backlog.append((now, "o", data))
            self._work_later(SOON)
        elif calm:
            self._resume()
        self._flush_later()

    @handles(OutputSkipped)
    def skipped(self, event: OutputSkipped) -> None:
        if self._files.follows:  # the next output draws the screen afresh
            self._backlog.append((self._clock(), "m", gap_marker(event.size).encode()))
            return
        self._throttle.left_out += event.size
        self._flush_later()

    @handles(TerminalResized)
    def resized(self, event: TerminalResized) -> None:
        if (event.columns, event.rows) == self._size:
            return
        self._size = event.columns, event.rows
        if self._files.open and min(self._size) > 0:
            self._backlog.append((self._clock(), "r", b"%dx%d" % self._size))
            self._work_later(BREATH)
            self._flush_later()

    @handles(EntryWritten)
    def entry(self, event: EntryWritten) -> None:
        if self._files.open:
            self._files.entry(event.entry)
            self._flush_later()

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        for timer in (self._working, self._flushing):
            if timer is not None:
                timer.cancel()
        self._resume()
        while self._backlog:
            self._work(math.inf)
        self._record(all=True)
        self._files.flush()
        self._files.close()

    def _work_later(self, delay: float) -> None:
        if self._working is None:
            self._working = self._bus.loop.call_later(delay, self._work_on)

    def _work_on(self) -> None:
        """Process a slice of the backlog, except in a flood: everything else is more urgent then."""
        self._working = None
        if not self._backlog:
            return
        now = self._clock()
        if self._throttle.is_flood(now) and now - self._backlog[0][0] < FLOOD_TIMEOUT:
            self._work_later(CALM)
            return
        self._work(SLICE)
        if self._backlog:
            self._work_later(BREATH)

    def _work(self, size: float) -> None:
        """Process at least `size` bytes of the backlog."""
        while self._backlog and size > 0:
            at, kind, data = self._backlog.popleft()
            size -= len(data)
            text = self._decoder.decode(data) if kind == "o" else data.decode()
            self._stream.put(CastEvent(max(at - self._files.origin, 0.0), kind, text))
        if self._stream.held >= SLICE:
            self._record()

    def _record(self, *, all: bool = False) -> None:
        """Write the events that may be written now; start another part if this one is full."""
        if self._files.record(self._stream.take(self._clock() - self._files.origin, all=all)):
            self._start_over()

    def _resume(self) -> None:
        """Resume after a flood, with the current screen."""
        if not (self._throttle.left_out and self._files.open):
            return
        if (screen := self._terminal.repaint()) is None:
            return
        now = self._clock()
        self._backlog.append((now, "m", gap_marker(self._throttle.left_out).encode()))
        self._backlog.append((now, "o", _AFRESH + screen))
        self._throttle.resume()
        self._work_later(BREATH)

    def _start_over(self) -> None:
        """Start another part with the screen, which already shows the backlog."""
        self._backlog.clear()
        self._stream = StreamRedactor(self._redactor, *self._size)
        self._decoder.reset()
        self._files.begin(self._size)
        if self._files.open:
            self._backlog.append((self._clock(), "o", _AFRESH + (self._terminal.repaint() or b"")))
            self._throttle.resume()
            self._work_later(BREATH)
            self._flush_later()

    def _flush_later(self) -> None:
        if self._flushing is None:
            self._flushing = self._bus.loop.call_later(FLUSH, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        now = self._clock()
        if not self._throttle.is_flood(now):
            self._work(SLICE)
        if self._throttle.has_slowed() or self._throttle.is_calm(now):
            self._resume()
        busy = bool(self._backlog)  # it is written within a second
        if not busy:
            self._record()
            self._files.flush()
        waits = self._stream.held and now - self._throttle.last < QUIET
        if busy or self._throttle.left_out or waits:
            self._flush_later()


def _sweep(loop: asyncio.AbstractEventLoop, folder: Path, settings: Settings) -> None:
    """Delete recordings that are too old or too many, in a thread, now and every SWEEP_EVERY seconds."""
    loop.call_later(SWEEP_EVERY, _sweep, loop, folder, settings)
    loop.run_in_executor(None, _swept, folder, settings)


def _swept(folder: Path, settings: Settings) -> None:
    total = settings.record_total_megabytes * _MEGABYTE
    try:
        store.sweep(folder, days=settings.record_days, total=total)
    except OSError as error:
        _log.warning("old recordings were not cleaned up: %s", error)
