"""The view of the agent's terminal: what it shows at one moment, apart from what relay itself has typed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from relay.agents.profile import Profile
from relay.injection.draft import BORDER
from relay.injection.layout import Style
from relay.state import process_wait
from relay.state.detection import Look, detect
from relay.state.port import Port
from relay.state.process_wait import Wait
from relay.state.readiness import Sight

_ENDS = 64  # marks remembered: more than fit on a screen, one a row


class View:
    """Looks at the terminal behind `port`. It is told what is typed, in order."""

    def __init__(self, port: Port, profile: Profile, clock: Callable[[], float]) -> None:
        self._port = port
        self._profile = profile
        self._clock = clock
        self._text = ""  # what is being typed now, its blanks collapsed
        self._ends: deque[str] = deque(maxlen=_ENDS)  # how texts ended that were given to the agent
        self._nap: tuple[int, int] | None = None  # the sleep in which the last text found the program
        self._typed = clock()  # when something was last typed

    def given(self, end: str) -> None:
        """A text is given to the agent that ends in `end`."""
        self._ends.append(end)

    def gave(self, text: str) -> bool:
        """Whether `text` is one that was given lately, from its first mark to its last, and nothing else."""
        text = text.strip()
        return any(text.endswith(end) and text.startswith(end.replace("/", "")[:-1]) for end in self._ends)

    def typing(self, text: str, nap: tuple[int, int] | None) -> None:
        """`text` is about to be typed; `nap`: the sleep in which it finds the program (Sight.nap)."""
        self._text = " ".join(text.split())
        self._nap = nap

    def typed(self) -> None:
        """The typing has come to its end."""
        self._text = ""
        self._typed = self._clock()

    def quiet(self) -> float:
        """Seconds since the program's last output and since the last typing."""
        return self._clock() - max(self._port.last_output(), self._typed)

    def look(self) -> Sight:
        """What the terminal shows now."""
        port = self._port
        tty = port.tty()
        # The kernel's word comes first: what the program printed before it slept is then either
        # analysed or pending. A program that prints, or is not in the foreground, needs no such look.
        looked = process_wait.UNKNOWN
        if (
            tty.foreground == tty.agent_group
            and self._profile.inject != "never"
            and not port.output_pending()
        ):
            looked = process_wait.look(tty.foreground)
        drawn = port.screen_text()
        return Sight(
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
        """Whether the profile has a rule for an agent that is ready."""
        return any(rule.state == "ready" for rule in self._profile.states)

    def state(self) -> str | None:
        """What the profile's rules see on the screen now."""
        found = detect(Look(tuple(self._port.screen_text()), self._port.title()), self._profile)
        return found.state if found else None

    def _others(self, rows: list[str]) -> list[str]:
        """`rows` without those that show what relay typed: a question in it is not the program's.

        While a text is being typed that is every row of it, later only one that ends in its mark: what a
        peer wrote must not make a dialog that reads the same invisible.
        """
        text, ends = self._text, tuple(self._ends)
        return [
            row
            for row in rows
            if not row.rstrip(BORDER).endswith(ends)
            and not (text and row.strip(BORDER) and " ".join(row.strip(BORDER).split()) in text)
        ]


def style_of(sight: Sight) -> Style:
    """How the program takes text."""
    if sight.tty.canonical:
        return Style.LINES
    return Style.PASTE if sight.bracketed_paste else Style.KEYS
