"""The player: its place in a recording, its speed, and what each key does.

The caller has the clock: `advance` takes the seconds that have passed, and `due` says in how many there is
something new to see.  A pause longer than `idle` seconds is played as one of `idle`.
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
"""Bytes played in one go: at a high speed keys are read in between."""

_MOMENT = 1e-4  # seconds within which two times are the same


class Player:
    """Plays one recording.

    seekable: its screen at the current time.
    paused:   time stands still.
    message:  for the user, in the status line until the next key.
    quit:     the user wants to leave.
    search:   the text that is searched for.
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
        """Begin at `at` seconds. `stopped` is asked during a search whether to give up."""
        self.seekable = SeekableScreen(cast)
        self.timeline = timeline
        self.speed = speed
        self.idle = idle
        self.paused = False
        self.message = ""
        self.quit = False
        self.search = Search(cast, stopped)
        self._seconds = max(cast.seconds, timeline.seconds)
        self._waited = 0.0  # seconds played since the last event, or since the time that was gone to
        self._from = 0.0  # that time
        if at > 0:
            self.go(at)

    @property
    def position(self) -> float:
        """Seconds of the recording."""
        return self._from + self._waited

    @property
    def seconds(self) -> float:
        """The time of the last event or moment, whichever is later."""
        return self._seconds

    @property
    def ended(self) -> bool:
        """True once all events were played."""
        return self.seekable.upcoming is None

    @property
    def due(self) -> float | None:
        """Seconds until the next event is due; None while nothing goes on."""
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
        """Act on a key."""
        self.message = ""
        if self.search.typing is not None:
            if (text := self.search.type(key)) is not None:
                self._search(text)
        elif (action := _KEYS.get(key)) is not None:
            action(self)

    def close(self) -> None:
        self.seekable.close()

    def _gap(self, upcoming: float) -> float:
        return min(upcoming - self._from, self.idle)

    def _step(self) -> CastEvent | None:
        event = self.seekable.step()
        if event is not None:
            self._from, self._waited = max(event.time, self._from), 0.0
        return event

    def _pause(self) -> None:
        self.paused = not self.paused

    def _next_output(self) -> None:
        self.paused = True
        while (event := self._step()) is not None and event.kind != "o":
            pass

    def _faster(self) -> None:
        self.speed = min(self.speed * 2, FASTEST)

    def _slower(self) -> None:
        self.speed = max(self.speed / 2, SLOWEST)

    def _back(self) -> None:
        self.go(self.position - JUMP)

    def _forward(self) -> None:
        self.go(self.position + JUMP)

    def _previous_moment(self) -> None:
        self._to(self.timeline.before(self.position - _MOMENT), "earlier")

    def _next_moment(self) -> None:
        self._to(self.timeline.after(self.position + _MOMENT), "later")

    def _to(self, moment: Moment | None, which: str) -> None:
        if moment is None:
            self.message = f"no {which} event"
        else:
            self.go(moment.at)
            self.message = moment.label

    def _begin_search(self) -> None:
        self.search.begin()

    def _quit(self) -> None:
        self.quit = True

    def _search(self, text: str) -> None:
        if self.search.run(text):
            self._next_hit()
        else:
            self.message = "search stopped"

    def _next_hit(self) -> None:
        self._show(self.search.after(self.position + _MOMENT), "later")

    def _previous_hit(self) -> None:
        self._show(self.search.before(self.position - _MOMENT), "earlier")

    def _show(self, hit: Hit | None, which: str) -> None:
        if hit is not None:
            self.paused = True
            self.go(hit.time)
            self.message = one_line(hit.line.strip(), 200)
        elif self.search.found:
            self.message = f"nothing {which} ({count(len(self.search.found), 'place')} in all)"
        else:
            self.message = "not found"


_KEYS: dict[str, Callable[[Player], None]] = {
    " ": Player._pause,
    ".": Player._next_output,
    "+": Player._faster,
    "=": Player._faster,
    "-": Player._slower,
    "left": Player._back,
    "right": Player._forward,
    "[": Player._previous_moment,
    "]": Player._next_moment,
    "/": Player._begin_search,
    "n": Player._next_hit,
    "N": Player._previous_hit,
    "q": Player._quit,
}
