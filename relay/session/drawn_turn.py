"""The turns of an agent whose hooks do not speak: from a text that was submitted to the next ready screen."""

from __future__ import annotations

import time
from collections.abc import Callable

from relay.hooks import events

MAX_LINES = 2_000
"""Lines of one turn that are kept, the last ones."""


class DrawnTurn:
    """Collects what the agent says between a submission and the moment at which it is ready again.

    continuations, runaway: as in relay.session.turn.Turn.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.continuations = 0
        self.runaway = False
        self._clock = clock
        self._began: float | None = None
        self._lines: list[str] = []

    def submitted(self, *, by_person: bool) -> bool:
        """Something was submitted to the agent; what the person says begins a new row of continuations.

        Whether a turn begins with it.
        """
        begins = self._began is None
        if begins:
            self._began = self._clock()
            self._lines.clear()
        if by_person:
            self.continuations = 0
            self.runaway = False
        return begins

    def forget(self) -> float | None:
        """The agent is ready, and others tell of its turns: when this one began (seconds of the clock), or
        None where none had."""
        began, self._began = self._began, None
        return began

    def said(self, lines: list[str]) -> None:
        if self._began is not None:
            self._lines += lines
            del self._lines[:-MAX_LINES]

    def ended(self) -> events.AgentEnd | None:
        """The agent is ready: the event of a turn that has ended; None where none had begun."""
        if self._began is None or not self._lines:
            return None
        text = "\n".join(self._lines).strip()
        took = (self._clock() - self._began) * 1000
        self._began = None
        self._lines.clear()
        said = {"role": "assistant", "content": text}
        return events.AgentEnd(messages=(said,), last_assistant_message=text or None, duration_ms=took)
