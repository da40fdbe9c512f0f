"""Searches what the screen of a recording showed.

The screen is sampled as often as people can see it change; rows that scrolled off between two samples count,
and a wrapped line is one line. Case is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from relay.dataclass import dataclass
from relay.recording.asciicast import Cast
from relay.replay.seekable_screen import SeekableScreen
from relay.terminal.screen import Row

FRAME = 0.1
"""Seconds of the recording between two samples: nobody reads text shown for less time, unless it scrolls."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One appearance of the text. time: seconds of the recording; line: the one that contains the text."""

    time: float
    line: str


class Search:
    """The search of a player: a text that is being typed, and where it was found.

    typing: the text typed so far, None while the user is not typing.
    found:  its appearances, in order.
    """

    def __init__(self, cast: Cast, stopped: Callable[[], bool]) -> None:
        """A search polls `stopped`, and gives up once it returns True."""
        self.typing: str | None = None
        self.found: list[Hit] = []
        self._cast = cast
        self._stopped = stopped
        self._text = ""

    def type(self, key: str) -> str | None:
        """Handle a key; return the text once Enter has completed it."""
        text = self.typing or ""
        if key == "enter":
            self.typing = None
            return text
        if key in {"escape", "interrupt"} or (key == "backspace" and not text):
            self.typing = None
        elif key == "backspace":
            self.typing = text[:-1]
        elif len(key) == 1:
            self.typing = text + key
        return None

    def run(self, text: str) -> bool:
        """Find `text`, "" for the previous one; return False if the search was stopped."""
        if not text or text == self._text:
            return True
        with SeekableScreen(self._cast) as seekable:
            self.found = list(hits(seekable, text, self._stopped))
            whole = seekable.upcoming is None
        self._text = text if whole else ""
        return whole

    def after(self, time: float) -> Hit | None:
        return next((hit for hit in self.found if hit.time > time), None)

    def before(self, time: float) -> Hit | None:
        return next((hit for hit in reversed(self.found) if hit.time < time), None)


def hits(seekable: SeekableScreen, text: str, stopped: Callable[[], bool] = lambda: False) -> Iterator[Hit]:
    """Yield each appearance of `text` from the current time on, once for as long as it stays on the screen.

    The search ends at the end of the recording, or as soon as `stopped()` is true.
    """
    screen = seekable.screen
    wanted = text.casefold()
    screen.collect()
    before: list[str] = []
    while seekable.upcoming is not None and not stopped():
        end = seekable.upcoming + FRAME
        while seekable.upcoming is not None and seekable.upcoming < end:
            seekable.step()
        gone = _matching(screen.drain().rows, wanted)
        shown = _matching(screen.rows(), wanted)
        now = gone + shown
        new = [line for line in now if line not in before] + [line for line in now if line in before]
        yield from (Hit(seekable.time, line) for line in new[: max(0, len(now) - len(before))])
        before = shown


def _matching(rows: list[Row], wanted: str) -> list[str]:
    """Return the lines in `rows` that contain the text `wanted`, which is casefolded."""
    lines = [""]
    for row in rows:
        lines[-1] += row.text
        if not row.wrapped:
            lines.append("")
    return [line for line in lines if wanted in line.casefold()]
