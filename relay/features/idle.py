"""Notices that the agent is idle, for handlers (`idle`) and for its supervision (an idle incident)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from relay.clock import Clock
from relay.eventbus import EventBus, answers, handles
from relay.hooks.events import Idle
from relay.injection.events import Inject, Occupied, Withdraw
from relay.injection.injection import Injection
from relay.lifecycle import Describe, SessionBegan
from relay.messaging.events import MessageGiven
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted, StateChanged
from relay.state.readiness import Readiness
from relay.state.states import AgentState
from relay.supervision.events import Incident
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, KeysTyped, Notify, OutputRead
from relay.text import count

SHORTEST = 1.0
"""Minimum seconds between two `idle` events, however short a quiet period the settings ask for."""

SHORTEST_GRACE = 0.5
"""Minimum seconds between two incidents, however short a grace period the policy asks for."""


class IdleWatch:
    """Publishes `idle` once for each period of quiet, and limits the handlers of `idle`.

    seconds: the length of quiet that makes a period.
    most: periods in a row in which handlers may inject something: an agent that answers a nudge becomes idle
        again, and so on. Later injections are dropped until the user submits a prompt, or a message begins a
        turn.
    """

    def __init__(self, bus: EventBus, terminal: AgentTerminal, seconds: float, *, most: int) -> None:
        self._bus = bus
        self._terminal = terminal
        self._seconds = seconds
        self._most = most
        self._timed = False  # a look is scheduled; if not, `idle` was published, and output begins a period
        self._counted = False  # this period is one of those below
        self._periods = self._dropped = 0

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._look_after(self._seconds)

    @handles(OutputRead)
    def resume(self, _: OutputRead) -> None:
        if not self._timed:
            self._look_after(max(self._seconds, SHORTEST))

    def _look_after(self, seconds: float) -> None:
        self._timed = True
        self._bus.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        quiet = time.monotonic() - self._terminal.last_output()
        if quiet < self._seconds:
            self._look_after(self._seconds - quiet)
            return
        self._timed = False
        self._bus.publish(Idle(seconds=quiet))

    @handles(Idle)
    def idle(self, _: Idle) -> None:
        self._counted = False

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        if not _of_idle(event.injection):
            return
        if not self._counted:
            self._counted = True
            self._periods += 1
        if self._periods <= self._most:
            return
        self._dropped += 1
        self._bus.publish(Withdraw(event.injection.id))
        if self._dropped == 1:
            text = (
                f"idle handlers have injected something {count(self._most, 'time')} in a row, with no other "
                "input. relay drops their injections until you submit a prompt or a message arrives."
            )
            self._bus.publish(Notify(text))

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if event.by_user:
            self._periods = self._dropped = 0

    @handles(MessageGiven)
    def given(self, event: MessageGiven) -> None:
        if event.begins:
            self._periods = self._dropped = 0

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return {"idle_dropped": self._dropped} if self._dropped and not question.brief else None


class IdleGrace:
    """Publishes an incident each time the agent is ready for `seconds`, with nothing waiting for it."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        state: AgentState,
        seconds: float,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._state = state
        self._seconds = max(seconds, SHORTEST_GRACE)
        self._clock = clock or Clock()
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    @handles(SessionBegan, StateChanged, PromptSubmitted, KeysTyped)
    def restart(self, _: object) -> None:
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
        if self._state.look() == Readiness.READY and self._timer is timer:
            self._tasks.spawn(self._ask(timer), "idle")

    async def _ask(self, timer: asyncio.TimerHandle) -> None:
        if not await self._bus.ask(Occupied()) and self._timer is timer:
            self._bus.publish(Incident("idle"))


def _of_idle(injection: Injection) -> bool:
    # What a handler injects after it has returned has no event, but still the handler's name.
    return injection.kind == "hook" and (injection.event == Idle.name or "(on idle)" in injection.source)
