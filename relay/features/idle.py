"""Publishes `idle` for handlers when the agent falls quiet."""

from __future__ import annotations

import time

from relay.eventbus import EventBus, handles
from relay.hooks.events import Idle
from relay.lifecycle import SessionBegan
from relay.state.agent_terminal import AgentTerminal
from relay.terminal.events import OutputRead

SHORTEST = 1.0
"""Minimum seconds between two `idle` events, however short a quiet period the settings ask for."""


class IdleWatch:
    """Publishes `idle` once for each quiet period. seconds: the length of quiet that makes one."""

    def __init__(self, bus: EventBus, terminal: AgentTerminal, seconds: float) -> None:
        self._bus = bus
        self._terminal = terminal
        self._seconds = seconds
        self._timed = False  # a look is scheduled; if not, `idle` was published, and output begins a period

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
