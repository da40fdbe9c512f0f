"""The view of the agent's terminal: a snapshot of it, apart from what relay itself has typed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from relay.agents.profile import Profile
from relay.injection.draft import BORDER
from relay.injection.layout import Style
from relay.state import process_wait
from relay.state.detection import ScreenSnapshot, detect
from relay.state.port import Port
from relay.state.process_wait import Wait
from relay.state.readiness import TerminalSnapshot

_ENDS = 64  # marks that are kept: more than fit on a screen, one a row


class View:
    """Takes snapshots of the terminal behind `port`. Report to it what is typed, in order."""

    def __init__(self, port: Port, profile: Profile, clock: Callable[[], float]) -> None:
        self._port = port
        self._profile = profile
        self._clock = clock
        self._text = ""  # what is being typed now, its blanks collapsed
        self._ends: deque[str] = deque(maxlen=_ENDS)  # the ends of texts that were given to the agent
        self._nap: tuple[int, int] | None = None  # the sleep in which the last text found the program
        self._typed = clock()  # when something was last typed

    def given(self, end: str) -> None:
        """Note that the agent gets a text that ends in `end`."""
        self._ends.append(end)

    def gave(self, text: str) -> bool:
        """Return True if `text` is one that was given lately, from its first mark to its last."""
        text = text.strip()
        return any(text.endswith(end) and text.startswith(end.replace("/", "")[:-1]) for end in self._ends)

    def typing(self, text: str, nap: tuple[int, int] | None) -> None:
        """Note that `text` is about to be typed; `nap` is that of the program (TerminalSnapshot.nap)."""
        self._text = " ".join(text.split())
        self._nap = nap

    def typed(self) -> None:
        """Note the end of the typing."""
        self._text = ""
        self._typed = self._clock()

    def quiet(self) -> float:
        """Return the seconds since the program's last output and since the last typing."""
        return self._clock() - max(self._port.last_output(), self._typed)

    def look(self) -> TerminalSnapshot:
        """Return a snapshot of the terminal."""
        port = self._port
        tty = port.tty()
        # The kernel is asked first: what the program printed before it slept is then either analysed or
        # pending. A program that prints, or is not in the foreground, needs no such question.
        looked = process_wait.UNKNOWN
        if (
            tty.foreground == tty.agent_group
            and self._profile.inject != "never"
            and not port.output_pending()
        ):
            looked = process_wait.look(tty.foreground)
        drawn = port.screen_text()
        return TerminalSnapshot(
            tty=tty,
            wait=looked.wait,
            same=looked.nap is not None and looked.nap == self._nap,
            quiet=self.quiet(),
            output_pending=port.output_pending(),
            unwritten=port.unwritten(),
            bracketed_paste=port.bracketed_paste(),
            alternate=port.alternate(),
            unfinished=next(iter(self._others([port.unfinished()])), ""),
            rows=tuple(self._others(drawn)),
            nap=looked.nap if looked.wait is Wait.READ else None,
            drawn=tuple(drawn),
            title=port.title(),
            evidence=port.evidence(),
        )

    @property
    def ruled(self) -> bool:
        """True if the profile has a rule for an agent that is ready."""
        return any(rule.state == "ready" for rule in self._profile.states)

    def state(self) -> str | None:
        """Return the state that the profile's rules see on the screen; None if no rule holds."""
        found = detect(ScreenSnapshot(tuple(self._port.screen_text()), self._port.title()), self._profile)
        return found.state if found else None

    def _others(self, rows: list[str]) -> list[str]:
        """Return `rows` without those that show what relay typed: a question in it is not the program's.

        While a text is being typed that is every row of it, later only one that ends in its mark: a peer's
        text must not hide a dialog that reads the same.
        """
        text, ends = self._text, tuple(self._ends)
        return [
            row
            for row in rows
            if not row.rstrip(BORDER).endswith(ends)
            and not (text and row.strip(BORDER) and " ".join(row.strip(BORDER).split()) in text)
        ]


def style_of(sight: TerminalSnapshot) -> Style:
    """Return the style in which the program takes text."""
    if sight.tty.canonical:
        return Style.LINES
    return Style.PASTE if sight.bracketed_paste else Style.KEYS
