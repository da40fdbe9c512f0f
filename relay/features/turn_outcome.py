"""Publishes how each turn ended, once the agent's state has settled: a failure may be noticed late."""

from __future__ import annotations

from relay.clock import Clock
from relay.eventbus import EventBus, handles
from relay.state.events import PromptSubmitted, StateChanged, StateJudged, TurnBegan, TurnOver
from relay.state.readiness import Readiness
from relay.supervision.events import Incident
from relay.terminal.events import AgentExited

SETTLES = 2.0
"""Seconds that an agent must be at its input before its turn counts as over: a failure that only the screen
shows is published after about one."""


class TurnOutcome:
    """Follows the turns of one agent. known: relay knows how it shows work; another program may show none."""

    def __init__(self, bus: EventBus, *, known: bool, clock: Clock | None = None) -> None:
        self._bus = bus
        self._known = known
        self._clock = clock or Clock()
        self._began = self._failed = False
        self._timer: object = None

    @handles(PromptSubmitted, TurnBegan)
    def begin(self, _: object) -> None:
        self._began, self._failed = True, False

    @handles(Incident)
    def incident(self, event: Incident) -> None:
        self._failed = self._failed or event.name == "error"

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        self._timer = None
        self._failed = self._failed or event.after == Readiness.FAILED
        if self._began and event.after in {Readiness.READY, Readiness.FAILED}:
            self._settle()

    @handles(StateJudged)
    def judged(self, event: StateJudged) -> None:
        ready = event.verdict.state is Readiness.READY
        if ready and self._began and not self._known and self._timer is None:
            self._settle()

    def _settle(self) -> None:
        self._timer = timer = object()
        self._clock.later(SETTLES, lambda: self._end(timer))

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._timer = None

    def _end(self, timer: object) -> None:
        if self._timer is timer:
            self._timer, self._began = None, False
            self._bus.publish(TurnOver(well=not self._failed))
