"""The player: where in a recording we are, how fast it goes on, and what each key does.

The clock is its caller's: `advance` is told how many seconds have passed, and `due` says in how many there
is something new to see.  A pause longer than `idle` seconds is played as one of `idle`.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.recording import Happening
from relay.replay.search import Hit, hits
from relay.replay.seekable_screen import Film
from relay.replay.tape import Tape
from relay.replay.timeline import Moment, Timeline
from relay.text import count, one_line

JUMP = 5.0
"""Seconds that the arrow keys go."""

SLOWEST, FASTEST = 1 / 64, 1024.0
"""The speeds that the keys + and - lead to."""

AT_ONCE = 1 << 20
"""Bytes played in one go: at a high speed keys are looked at in between."""

_MOMENT = 1e-4  # seconds within which two times are the same


class Player:
    """Plays one film.

    position: seconds of the recording.
    typing:   the text to search for as far as it is typed, None while none is.
    message:  what the person is told in the status line until the next key.
    quit:     the person has had enough.
    """

    def __init__(
        self,
        tape: Tape,
        timeline: Timeline,
        *,
        speed: float = 1.0,
        idle: float = 2.0,
        at: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stopped` is asked during a search whether to give up."""
        self.film = Film(tape)
        self.tape = tape
        self.timeline = timeline
        self.speed = speed
        self.idle = idle
        self.paused = False
        self.typing: str | None = None
        self.message = ""
        self.quit = False
        self._stopped = stopped
        self._waited = 0.0  # seconds played since the last event, or since the place we went to
        self._from = 0.0  # that event's time, or that place
        self._found: list[Hit] = []
        self._text = ""
        if at > 0:
            self.go(at)

    @property
    def position(self) -> float:
        return self._from + self._waited

    @property
    def seconds(self) -> float:
        """Of the last output or of the last event, whichever is later."""
        return max(self.tape.seconds, self.timeline.seconds)

    @property
    def ended(self) -> bool:
        return self.film.upcoming is None

    @property
    def due(self) -> float | None:
        """Seconds until the next event is due; None while nothing goes on."""
        if self.paused or self.film.upcoming is None:
            return None
        return max(0.0, (self._gap(self.film.upcoming) - self._waited) / self.speed)

    def advance(self, seconds: float) -> None:
        """Let `seconds` of the person's time pass."""
        left = seconds * self.speed
        played = 0
        while not self.paused and (upcoming := self.film.upcoming) is not None and played < AT_ONCE:
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
        self.film.seek(self._from)

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        self.message = ""
        if self.typing is not None:
            self._type(self.typing, key)
        elif (action := _KEYS.get(key)) is not None:
            action(self)

    def close(self) -> None:
        self.film.close()

    def _gap(self, upcoming: float) -> float:
        return min(upcoming - self._from, self.idle)

    def _step(self) -> Happening | None:
        event = self.film.step()
        if event is not None:
            self._from, self._waited = max(event.time, self._from), 0.0
        return event

    # What the keys do.

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
        self.typing = ""

    def _quit(self) -> None:
        self.quit = True

    # Searching.

    def _type(self, text: str, key: str) -> None:
        if key in {"escape", "interrupt"} or (key == "backspace" and not text):
            self.typing = None
        elif key == "backspace":
            self.typing = text[:-1]
        elif key == "enter":
            self.typing = None
            self._search(text)
        elif len(key) == 1:
            self.typing = text + key

    def _search(self, text: str) -> None:
        if text and text != self._text:
            with Film(self.tape) as film:
                self._found = list(hits(film, text, self._stopped))
                whole = film.upcoming is None
            self._text = text if whole else ""
            if not whole:
                self.message = "search stopped"
                return
        self._next_hit()

    def _next_hit(self) -> None:
        self._show(next((hit for hit in self._found if hit.time > self.position + _MOMENT), None), "later")

    def _previous_hit(self) -> None:
        before = (hit for hit in reversed(self._found) if hit.time < self.position - _MOMENT)
        self._show(next(before, None), "earlier")

    def _show(self, hit: Hit | None, which: str) -> None:
        if hit is not None:
            self.paused = True
            self.go(hit.time)
            self.message = one_line(hit.line.strip(), 200)
        elif self._found:
            self.message = f"nothing {which} ({count(len(self._found), 'place')} in all)"
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
