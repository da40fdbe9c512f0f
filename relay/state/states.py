"""What the agent does, and since when: a table of states, and the transitions between them.

    starting → working ⇄ ready | prompting | unsafe       from the judgement of the agent's terminal
               working → failed → working | ready | ...   nothing fails that has not worked
               any ⇄ stopped                              Ctrl-Z, and fg
               any → exited                               the agent has ended

Nothing announces that a program falls quiet, so the state is looked at whenever output has just stopped,
whenever the agent's own hooks or its status reports say something, and whenever somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from relay.agents.profile import PromptKind
from relay.eventbus import EventBus
from relay.state.events import StateChanged, StateJudged
from relay.state.readiness import Readiness, Verdict
from relay.state.view import AgentView

STARTING, STOPPED, EXITED = "starting", "stopped", "exited"
READY, WORKING, PROMPTING, FAILED, UNSAFE = map(str, Readiness)

TRANSITIONS: dict[str, frozenset[str]] = {
    STARTING: frozenset({READY, WORKING, PROMPTING, FAILED, UNSAFE, STOPPED, EXITED}),
    WORKING: frozenset({READY, PROMPTING, FAILED, UNSAFE, STOPPED, EXITED}),
    READY: frozenset({WORKING, PROMPTING, UNSAFE, STOPPED, EXITED}),
    PROMPTING: frozenset({READY, WORKING, PROMPTING, UNSAFE, STOPPED, EXITED}),
    FAILED: frozenset({READY, WORKING, PROMPTING, UNSAFE, STOPPED, EXITED}),
    UNSAFE: frozenset({READY, WORKING, PROMPTING, STOPPED, EXITED}),
    STOPPED: frozenset({READY, WORKING, PROMPTING, UNSAFE, EXITED}),
    EXITED: frozenset(),
}
"""The states that may follow each one. Nothing starts twice, fails without having worked, or comes back to
life; a prompt may follow another prompt, of another kind."""


def path(before: str, after: str) -> tuple[str, ...]:
    """Return the states that lead from `before` to `after`, the last one `after` itself.

    Looks are samples, and an agent may work and fail between two of them: then it has worked.
    """
    if after in TRANSITIONS[before]:
        return (after,)
    assert WORKING in TRANSITIONS[before], f"{before} cannot become {after}"
    assert after in TRANSITIONS[WORKING], f"{before} cannot become {after}"
    return (WORKING, after)


class AgentState:
    """The state of one agent. `name` is the state's, `since` when it was entered (seconds since the epoch)."""

    def __init__(self, view: AgentView, bus: EventBus, *, clock: Callable[[], float] = time.time) -> None:
        self.name = STARTING
        self.since = clock()
        self._view = view
        self._bus = bus
        self._clock = clock
        self._suspended = False
        self._ended = False
        self._decided: Verdict | None = None

    @property
    def ended(self) -> bool:
        """True once the agent's process has ended."""
        return self._ended

    def suspend(self) -> None:
        """Note that the agent's process is stopped."""
        self._suspended = True
        self.look()

    def resume(self) -> None:
        """Note that the agent's process runs: it writes."""
        self._suspended = False

    def end(self) -> None:
        """Note that the agent's process has ended."""
        self._ended = True
        self.look()

    def look(self) -> str:
        """Judge the state now, publish what has changed, and return its name."""
        verdict = None if self._ended or self._suspended else self._view.verdict
        name = EXITED if self._ended else STOPPED if verdict is None else str(verdict.state)
        before, kind = self.name, self.prompt
        self._decided = verdict
        if verdict is not None:
            self._bus.publish(StateJudged(verdict))
        if name != before:
            self._enter(name, verdict)
        elif self.prompt is not kind:
            self._bus.publish(StateChanged(before, name, verdict))
        return name

    @property
    def verdict(self) -> Verdict | None:
        """What decided at the last look; None where the system did."""
        return self._decided

    @property
    def prompt(self) -> PromptKind | None:
        """What the agent asked for at the last look."""
        decided = self._decided
        if decided is None or decided.state is not Readiness.PROMPTING:
            return None
        return decided.kind or PromptKind.OTHER

    @property
    def reason(self) -> str:
        """Why the agent counts as in this state, for the user."""
        if self._ended:
            return "it has ended; what it said last is still acted on"
        if self._suspended:
            return "it was suspended with Ctrl-Z; `fg` in its terminal brings it back"
        return self._view.verdict.reason

    def _enter(self, name: str, verdict: Verdict | None) -> None:
        fell_quiet = verdict is not None and verdict.state is not Readiness.WORKING
        for step in path(self.name, name):
            before, self.name = self.name, step
            self.since = self._clock() - (self._view.output_quiet() if fell_quiet else 0)
            self._bus.publish(StateChanged(before, step, verdict if step == name else None))
