"""The player: its position in a recording, its speed, and what each key does.

The caller owns the clock: `advance` takes the seconds that have passed, and `due` returns the seconds until
there is something new to see. A pause longer than `idle` seconds is shortened to `idle`.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.recording.asciicast import Cast, CastEvent
from relay.replay.search import Hit, Search
from relay.replay.seekable_screen import SeekableScreen
from relay.replay.timeline import Moment, Timeline
from relay.text import count, one_line

JUMP = 5.0
"""Seconds that the arrow keys skip."""

SLOWEST, FASTEST = 1 / 64, 1024.0
"""The limits of the speed that the keys + and - set."""

AT_ONCE = 1 << 20
"""Maximum bytes played at once, so that keys are read even at a high speed."""

_MOMENT = 1e-4  # seconds within which two times are the same


class Player:
    """Plays one recording.

    seekable: its screen at the current time.
    paused:   time stands still.
    message:  for the user, in the status line until the next key.
    quit:     the user wants to leave.
    search:   the search for a text.
    seconds:  the time of the last event or moment, whichever is later.
    """

    def __init__(
        self,
        cast: Cast,
        timeline: Timeline,
        *,
        speed: float = 1.0,
        idle: float = 2.0,
        at: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start at `at` seconds. A search polls `stopped`, and gives up once it returns True."""
        self.seekable = SeekableScreen(cast)
        self.timeline = timeline
        self.speed = speed
        self.idle = idle
        self.paused = False
        self.message = ""
        self.quit = False
        self.search = Search(cast, stopped)
        self.seconds = max(cast.seconds, timeline.seconds)
        self._waited = 0.0  # seconds played since the last event or jump
        self._from = 0.0  # the time of that event or jump
        if at > 0:
            self.go(at)

    @property
    def position(self) -> float:
        """The current time of the recording, in seconds."""
        return self._from + self._waited

    @property
    def ended(self) -> bool:
        """True once all events have been played."""
        return self.seekable.upcoming is None

    @property
    def due(self) -> float | None:
        """Seconds until the next event is due; None while paused, and at the end."""
        if self.paused or self.seekable.upcoming is None:
            return None
        return max(0.0, (self._gap(self.seekable.upcoming) - self._waited) / self.speed)

    def advance(self, seconds: float) -> None:
        """Let `seconds` of the user's time pass."""
        left = seconds * self.speed
        played = 0
        while not self.paused and (upcoming := self.seekable.upcoming) is not None and played < AT_ONCE:
            wait = self._gap(upcoming) - self._waited
            if left < wait:
                self._waited += left
                return
            left -= max(0.0, wait)
            played += len(event.data) if (event := self._step()) else 0

    def go(self, time: float) -> None:
        """Go to `time`, at most to the end."""
        self._from = min(max(0.0, time), self.seconds)
        self._waited = 0.0
        self.seekable.seek(self._from)

    def press(self, key: str) -> None:
        self.message = ""
        if self.search.typing is not None:
            if (text := self.search.type(key)) is None:
                return
            if not self.search.run(text):
                self.message = "search stopped"
                return
            key = "n"
        match key:
            case " ":
                self.paused = not self.paused
            case ".":
                self.paused = True
                while (event := self._step()) is not None and event.kind != "o":
                    pass
            case "+" | "=":
                self.speed = min(self.speed * 2, FASTEST)
            case "-":
                self.speed = max(self.speed / 2, SLOWEST)
            case "left":
                self.go(self.position - JUMP)
            case "right":
                self.go(self.position + JUMP)
            case "[":
                self._to(self.timeline.before(self.position - _MOMENT), "earlier")
            case "]":
                self._to(self.timeline.after(self.position + _MOMENT), "later")
            case "/":
                self.search.typing = ""
            case "n":
                self._show(self.search.after(self.position + _MOMENT), "later")
            case "N":
                self._show(self.search.before(self.position - _MOMENT), "earlier")
            case "q":
                self.quit = True

    def close(self) -> None:
        self.seekable.close()

    def _gap(self, upcoming: float) -> float:
        return min(upcoming - self._from, self.idle)

    def _step(self) -> CastEvent | None:
        event = self.seekable.step()
        if event is not None:
            self._from, self._waited = max(event.time, self._from), 0.0
        return event

    def _to(self, moment: Moment | None, which: str) -> None:
        if moment is None:
            self.message = f"no {which} event"
        else:
            self.go(moment.at)
            self.message = moment.label

    def _show(self, hit: Hit | None, which: str) -> None:
        if hit is not None:
            self.paused = True
            self.go(hit.time)
            self.message = one_line(hit.line.strip(), 200)
        elif self.search.found:
            self.message = f"nothing {which} ({count(len(self.search.found), 'place')} in all)"
        else:
            self.message = "not found"
