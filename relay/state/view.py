"""The view of the agent's terminal: what it shows at one moment, apart from what relay itself has typed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from relay.agents.profile import Profile
from relay.state import process_wait
from relay.state.agent_terminal import AgentTerminal
from relay.state.detection import ScreenSnapshot, detect
from relay.state.evidence import Evidence, reported
from relay.state.hook_state import HookState
from relay.state.process_wait import Wait
from relay.state.readiness import Readiness, TerminalSnapshot, Verdict, judge
from relay.terminal.status import StatusRecords

INPUT_BORDER = " \t│┃|║▏▕>❯›»"
"""Characters that input boxes draw around a text."""

_ENDS = 64  # marks remembered: more than fit on a screen, one a row


class KnownEvidence:
    """All that is known of an agent's state beside its screen. Times are those of `clock`, in seconds."""

    def __init__(self, hooks: HookState, status: StatusRecords, clock: Callable[[], float]) -> None:
        self._hooks = hooks
        self._status = status
        self._clock = clock

    def current(self) -> tuple[Evidence, ...]:
        """Return the last word of each source that has one; of hooks only while they are alive."""
        hooks = self._hooks.evidence() if self._hooks.alive else None
        found = (hooks, reported(self._status.root(), self._clock()))
        return tuple(each for each in found if each is not None)


class AgentView:
    """Looks at the agent's terminal and judges whether it may be typed into. It is told what is typed.

    never: why nothing is ever typed into this terminal; "" where something may be.
    """

    def __init__(
        self,
        terminal: AgentTerminal,
        profile: Profile,
        evidence: KnownEvidence,
        *,
        never: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.profile = profile
        self._terminal = terminal
        self._evidence = evidence
        self._never = Verdict(Readiness.UNSAFE, never) if never else None
        self._clock = clock
        self._text = ""  # what is being typed now, its blanks collapsed
        self._ends: deque[str] = deque(maxlen=_ENDS)  # how the texts given to the agent ended
        self._nap: tuple[int, int] | None = None  # the sleep in which the last text found the program
        self._typed = clock()  # when something was last typed

    @property
    def verdict(self) -> Verdict:
        """Whether the agent can be typed into now, and why."""
        return self._never or judge(self.look(), self.profile)

    @property
    def held(self) -> Verdict | None:
        """The reason for which nothing is ever typed here, if there is one."""
        return self._never

    def given(self, end: str) -> None:
        """Note that a text which ends in `end` is given to the agent."""
        self._ends.append(end)

    def gave(self, text: str) -> bool:
        """Return True if `text` is one that was given lately, from its first mark to its last, alone."""
        text = text.strip()
        return any(text.endswith(end) and text.startswith(end.replace("/", "")[:-1]) for end in self._ends)

    def typing(self, text: str, nap: tuple[int, int] | None) -> None:
        """Note that `text` is about to be typed; `nap`: the sleep in which it finds the program (TerminalSnapshot.nap)."""
        self._text = " ".join(text.split())
        self._nap = nap

    def typed(self) -> None:
        """Note that the typing has come to its end."""
        self._text = ""
        self._typed = self._clock()

    def quiet(self) -> float:
        """Return the seconds since the program's last output and since the last typing."""
        return self._clock() - max(self._terminal.last_output(), self._typed)

    def output_quiet(self) -> float:
        """Return the seconds since the program's last output."""
        return self._clock() - self._terminal.last_output()

    def look(self) -> TerminalSnapshot:
        """Return what the terminal shows now."""
        port = self._terminal
        tty = port.tty()
        # The kernel's word comes first: what the program printed before it slept is then either
        # analysed or pending. A program that prints, or is not in the foreground, needs no such look.
        looked = process_wait.UNKNOWN
        if tty.foreground == tty.agent_group and self.profile.inject != "never" and not port.output_pending():
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
            evidence=self._evidence.current(),
        )

    @property
    def ruled(self) -> bool:
        """True if the profile has a rule for an agent that is ready."""
        return any(rule.state == "ready" for rule in self.profile.states)

    def state(self) -> str | None:
        """Return the state that the profile's rules see on the screen now."""
        found = detect(
            ScreenSnapshot(tuple(self._terminal.screen_text()), self._terminal.title()), self.profile
        )
        return found.state if found else None

    def _others(self, rows: list[str]) -> list[str]:
        """Return `rows` without those that show what relay typed: a question in it is not the program's.

        While a text is being typed that is every row of it, later only one that ends in its mark: what a
        peer wrote must not make a dialog that reads the same invisible.
        """
        text, ends = self._text, tuple(self._ends)
        return [
            row
            for row in rows
            if not row.rstrip(INPUT_BORDER).endswith(ends)
            and not (text and row.strip(INPUT_BORDER) and " ".join(row.strip(INPUT_BORDER).split()) in text)
        ]
