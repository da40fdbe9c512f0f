"""The view of the agent's terminal: a snapshot that separates the program's output from relay's typing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from relay.agents.profile import Profile
from relay.shim import process_wait
from relay.shim.process_wait import Wait
from relay.state.agent_terminal import INPUT_BORDER, AgentTerminal
from relay.state.detection import ScreenSnapshot, detect
from relay.state.evidence import Evidence, reported
from relay.state.hook_state import HookState
from relay.state.readiness import Readiness, TerminalSnapshot, Verdict, judge
from relay.terminal.status import StatusRecords

_ENDS = 64  # marks to remember: more than a screen has rows


class KnownEvidence:
    """The evidence of an agent's state from sources other than its screen. clock: in seconds."""

    def __init__(self, hooks: HookState, status: StatusRecords, clock: Callable[[], float]) -> None:
        self._hooks = hooks
        self._status = status
        self._clock = clock

    def current(self) -> tuple[Evidence, ...]:
        """Return the latest evidence of each source, but the hooks' only while they are alive."""
        hooks = self._hooks.evidence() if self._hooks.alive else None
        found = (hooks, reported(self._status.root(), self._clock()))
        return tuple(each for each in found if each is not None)


class AgentView:
    """Judges whether relay may type into the agent. The typist reports what it types.

    held: the verdict that forbids all typing, for the reason `never` or that of `forbid`; None without one.
    untouched: no key of the user's can have put anything into the agent's input.
    edited:    a key of the user's may have changed what the next keys mean to a line editor.
    """

    def __init__(
        self,
        terminal: AgentTerminal,
        profile: Profile,
        evidence: KnownEvidence,
        *,
        never: str = "",
    ) -> None:
        self.profile = profile
        self._terminal = terminal
        self.held = Verdict(Readiness.UNSAFE, never) if never else None
        self.untouched = True
        self.edited = False
        self._evidence = evidence
        self._text = ""  # the text being typed now, its blanks collapsed
        self._ends: deque[str] = deque(maxlen=_ENDS)  # the closing marks of the last texts typed
        self._nap: tuple[int, int] | None = None  # the program's sleep when the last text was typed
        self._typed = time.monotonic()  # the time of the last typing
        self._seen: tuple[object, tuple[str, ...]] = (None, ())  # the last screen, and its `_others`

    @property
    def verdict(self) -> Verdict:
        """The agent's state now; only *ready* allows typing."""
        return self.held or judge(self.look(), self.profile)

    @property
    def hooks(self) -> Evidence | None:
        """The report of the agent's own hooks; None if they are silent, or have reported no turn yet."""
        return next((each for each in self._evidence.current() if each.source == "hooks"), None)

    def forbid(self, why: str) -> None:
        """Forbid all typing from now on, also the Enter of a text that is being typed."""
        self.held = Verdict(Readiness.UNSAFE, why)

    def given(self, end: str) -> None:
        """Record that the agent is given a text that ends with the mark `end`."""
        self._ends.append(end)

    def gave(self, text: str) -> bool:
        """Return True if `text` is exactly one of the last texts given, from its first mark to its last."""
        text = text.strip()
        return any(text.endswith(end) and text.startswith(end.replace("/", "")[:-1]) for end in self._ends)

    def typing(self, text: str, nap: tuple[int, int] | None) -> None:
        """Record that `text` is about to be typed. nap: the program's sleep (TerminalSnapshot.nap)."""
        self._text = " ".join(text.split())
        self._nap = nap

    def typed(self) -> None:
        self._text = ""
        self._typed = time.monotonic()

    def quiet(self) -> float:
        """Return the seconds since the program's last output or the last typing, whichever is later."""
        return time.monotonic() - max(self._terminal.last_output(), self._typed)

    def output_quiet(self) -> float:
        """Return the seconds since the program's last output."""
        return time.monotonic() - self._terminal.last_output()

    def look(self) -> TerminalSnapshot:
        port = self._terminal
        tty = port.tty()
        # Ask the kernel first: what the program printed before it slept is then either analysed or
        # pending. Skip this if the program prints or is not in the foreground.
        looked = process_wait.UNKNOWN
        if tty.foreground == tty.agent_group and self.profile.inject != "never" and not port.output_pending():
            looked = port.looks(tty.foreground)
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
            rows=self._rows(drawn),
            nap=looked.nap if looked.wait is Wait.READ else None,
            drawn=tuple(drawn),
            title=port.title(),
            cursor=port.cursor(),
            suggested=self._suggested,
            evidence=self._evidence.current(),
        )

    @property
    def ruled(self) -> bool:
        """True if the profile has a rule for an agent that is ready."""
        return self.profile.says_ready

    def state(self) -> str | None:
        """Return the state that the profile's rules detect on the screen now, or None if no rule holds."""
        port = self._terminal
        rows = tuple(port.screen_text())
        screen = ScreenSnapshot(rows, port.title(), port.cursor(), suggested=self._suggested)
        return found.state if (found := detect(screen, self.profile)) else None

    @property
    def _suggested(self) -> bool:
        return self.untouched or self._terminal.suggests()

    def _rows(self, drawn: list[str]) -> tuple[str, ...]:
        """Return `_others(drawn)`, cached because the screen often stays the same between looks."""
        screen = (drawn, self._text, tuple(self._ends))
        if screen != self._seen[0]:
            self._seen = screen, tuple(self._others(drawn))
        return self._seen[1]

    def _others(self, rows: list[str]) -> list[str]:
        """Return `rows` without those that show relay's typing, which may read like a question.

        While relay types a text, drop every row of it; later, the rows from its first mark to its last, or
        only the last one: a peer's text must not hide a dialog that reads the same.
        """
        text, ends = self._text, tuple(self._ends)
        if not text and not ends:
            return rows
        found: list[str] = []
        for row in rows:
            bare = row.rstrip(INPUT_BORDER)
            end = bare[bare.rfind("[") :] if "[" in bare else ""  # a closing mark
            if end in ends:
                begin = end.replace("/", "")[:-1] + " "
                first = next((y for y in range(len(found) - 1, -1, -1) if begin in found[y]), len(found))
                del found[first:]
            elif not text or not _is_part(row, text):
                found.append(row)
        return found


def _is_part(row: str, text: str) -> bool:
    words = row.strip(INPUT_BORDER).split()
    return bool(words) and " ".join(words) in text
