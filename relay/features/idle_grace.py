"""Publishes that the agent has been idle: ready for a while without a break, with nothing waiting for it."""

from __future__ import annotations

import asyncio

from relay.clock import Clock
from relay.eventbus import EventBus, handles
from relay.injection.events import Occupied
from relay.lifecycle import SessionBegan
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted, StateChanged
from relay.state.readiness import Readiness
from relay.state.states import AgentState
from relay.supervision.events import Incident
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, KeysTyped

SHORTEST = 0.5
"""Minimum seconds between two incidents, however short a grace period the policy asks for."""


class IdleGrace:
    """Publishes an idle incident after each `seconds` for which the agent is idle."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        terminal: AgentTerminal,
        state: AgentState,
        seconds: float,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._terminal = terminal
        self._state = state
        self._seconds = max(seconds, SHORTEST)
        self._clock = clock or Clock()
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    @handles(SessionBegan, StateChanged, PromptSubmitted, KeysTyped)
    def begin_anew(self, _: object) -> None:
        """Restart the grace period."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._over:
            self._timer = self._clock.later(self._seconds, self._look)

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._clock.later(self._seconds, self._look)
        timer = self._timer
        # If the look finds another state, StateChanged sets another timer.
        if self._state.look() == Readiness.READY and self._timer is timer and not self._terminal.replaying:
            self._tasks.spawn(self._ask(timer), "idle")

    async def _ask(self, timer: asyncio.TimerHandle) -> None:
        if not await self._bus.ask(Occupied()) and self._timer is timer:
            self._bus.publish(Incident("idle"))
