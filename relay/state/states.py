"""The agent's state and its transitions.

    starting → working ⇄ ready | prompting | unsafe       judged from the agent's terminal
               working → failed → working | ready | ...   only an agent that worked can fail
               any ⇄ stopped                              Ctrl-Z, and fg
               any → exited                               the agent has ended

No event announces that a program has fallen quiet, so relay judges the state when output has just stopped,
when the agent's hooks or status reports have new evidence, and on request.
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
"""The possible next states of each state. An agent starts once, fails only after work, and ends for good; a
prompt may follow a prompt of another kind."""


def path(before: str, after: str) -> tuple[str, ...]:
    """Return the states to enter on the way from `before` to `after`, including `after`.

    The state is sampled: an agent may work and fail between two looks. It then enters *working* first.
    """
    if after in TRANSITIONS[before]:
        return (after,)
    assert WORKING in TRANSITIONS[before], f"{before} cannot become {after}"
    assert after in TRANSITIONS[WORKING], f"{before} cannot become {after}"
    return (WORKING, after)


class AgentState:
    """The state of one agent.

    name:    the state at the last look.
    since:   when the agent entered it, in seconds since the epoch.
    verdict: the verdict at the last look; None if the agent's process was stopped or had ended.
    """

    def __init__(self, view: AgentView, bus: EventBus, *, clock: Callable[[], float] = time.time) -> None:
        self.name = STARTING
        self.since = clock()
        self.verdict: Verdict | None = None
        self._ended = False
        self._view = view
        self._bus = bus
        self._clock = clock
        self._suspended = False

    def suspend(self) -> None:
        """Record that the agent's process is stopped."""
        self._suspended = True
        self.look()

    def resume(self) -> None:
        """Record that the agent's process runs again; the next look judges it."""
        self._suspended = False

    def blind(self, why: str) -> None:
        """Record that the screen can no longer be read: nothing may be typed any more."""
        self._view.forbid(why)
        self.look()

    def end(self) -> None:
        self._ended = True
        self.look()

    def look(self) -> str:
        """Judge the state now, publish any change, and return the state's name."""
        if self._bus.restoring and not (self._ended or self._suspended):
            return self.name  # the screen shows the past
        verdict = None if self._ended or self._suspended else self._view.verdict
        name = EXITED if self._ended else STOPPED if verdict is None else str(verdict.state)
        before, kind = self.name, self.prompt
        self.verdict = verdict
        if verdict is not None:
            self._bus.publish(StateJudged(verdict))
        if name != before:
            self._enter(name, verdict)
        elif self.prompt is not kind:
            self._bus.publish(StateChanged(before, name, verdict))
        return name

    @property
    def prompt(self) -> PromptKind | None:
        """The kind of prompt that the agent showed at the last look, or None."""
        if self.verdict is None or self.verdict.state is not Readiness.PROMPTING:
            return None
        return self.verdict.kind or PromptKind.OTHER

    @property
    def reason(self) -> str:
        """The reason for the state at the last look, to show to the user."""
        if self._ended:
            return "it has ended; relay is still acting on its last output"
        if self._suspended:
            return "it was suspended with Ctrl-Z; continue it with `fg` in its terminal"
        if self.verdict is None:
            return "relay is still reading what it has drawn"
        return self.verdict.reason

    def _enter(self, name: str, verdict: Verdict | None) -> None:
        fell_quiet = verdict is not None and verdict.state is not Readiness.WORKING
        for step in path(self.name, name):
            before, self.name = self.name, step
            self.since = self._clock() - (self._view.output_quiet() if fell_quiet else 0)
            self._bus.publish(StateChanged(before, step, verdict if step == name else None))
