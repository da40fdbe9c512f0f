"""Publishes `idle` for handlers when the agent falls quiet."""

from __future__ import annotations

import time

from relay.eventbus import EventBus, handles
from relay.hooks.events import Idle
from relay.lifecycle import SessionBegan
from relay.state.agent_terminal import AgentTerminal


class IdleWatch:
    """Publishes `idle` once for each quiet period. seconds: the length of quiet that makes one."""

    def __init__(self, bus: EventBus, terminal: AgentTerminal, seconds: float) -> None:
        self._bus = bus
        self._terminal = terminal
        self._seconds = seconds
        self._published = 0.0  # the time of the last output before the last published quiet period

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._bus.loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        last = self._terminal.last_output()
        quiet = time.monotonic() - last
        if quiet >= self._seconds and self._published != last:
            self._published = last
            self._bus.publish(Idle(seconds=quiet))
        self._bus.loop.call_later(max(self._seconds - quiet, 1.0), self._look)
