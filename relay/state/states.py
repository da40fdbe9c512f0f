"""What the agent does, and since when: a table of states, and the transitions between them.

    starting → working ⇄ ready | prompting | unsafe | failed     from the injector's verdict
               any ⇄ stopped                                     Ctrl-Z, and fg
               any → exited                                      the agent has ended

Nobody tells when a program falls quiet, so the state is looked at whenever output has just stopped, whenever
the agent's own hooks or its status reports say something, and whenever somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from relay.agents.profile import PromptKind
from relay.state.readiness import Readiness, Verdict

STARTING, STOPPED, EXITED = "starting", "stopped", "exited"

_JUDGED = frozenset(map(str, Readiness))
_ANY = _JUDGED | {STOPPED, EXITED}

TRANSITIONS: dict[str, frozenset[str]] = {
    STARTING: _ANY,
    **{state: _ANY - {state} for state in _JUDGED},
    STOPPED: _ANY - {STOPPED},
    EXITED: frozenset(),
}
"""The states that may follow each one. Nothing starts twice, and what has ended stays so."""


@dataclass(frozen=True, slots=True)
class Change:
    """One transition. `verdict` is what decided, None where the system did."""

    before: str
    after: str
    verdict: Verdict | None = None


class AgentState:
    """The state of one agent.

    verdict:   whether it may be typed into now, and why; quiet: seconds since its last output.
    on_look:   told of every verdict; on_change: of every transition, and of another kind of prompt.
    suspended, ended: what the system has said of its process.
    """

    def __init__(
        self,
        verdict: Callable[[], Verdict],
        quiet: Callable[[], float],
        *,
        on_look: Callable[[Verdict], None] = lambda verdict: None,
        on_change: Callable[[Change], None] = lambda change: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.suspended = False
        self.ended = False
        self._verdict = verdict
        self._quiet = quiet
        self._on_look = on_look
        self._on_change = on_change
        self._clock = clock
        self._decided: Verdict | None = None
        self.name = STARTING
        self.since = clock()

    def look(self) -> str:
        """The state's name now; `since` is when it was entered (seconds since the epoch)."""
        verdict = None if self.ended or self.suspended else self._verdict()
        name = EXITED if self.ended else STOPPED if verdict is None else str(verdict.state)
        before, kind = self.name, self.prompt
        self._decided = verdict
        if name != before:
            assert name in TRANSITIONS[before], f"{before} cannot become {name}"
            self.name = name
            fell_quiet = verdict is not None and verdict.state is not Readiness.WORKING
            self.since = self._clock() - (self._quiet() if fell_quiet else 0)
        if verdict is not None:
            self._on_look(verdict)
        if name != before or self.prompt is not kind:
            self._on_change(Change(before, name, verdict))
        return name

    @property
    def verdict(self) -> Verdict | None:
        """What decided at the last look; None where the system did."""
        return self._decided

    @property
    def prompt(self) -> PromptKind | None:
        """What it asked for at the last look."""
        decided = self._decided
        if decided is None or decided.state is not Readiness.PROMPTING:
            return None
        return decided.kind or PromptKind.OTHER

    @property
    def reason(self) -> str:
        """Why it counts as that, for a person."""
        if self.ended:
            return "it has ended; what it said last is still acted on"
        if self.suspended:
            return "it was suspended with Ctrl-Z; `fg` in its terminal brings it back"
        return self._verdict().reason
