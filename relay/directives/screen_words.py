"""What the screen shows the agent say: published at once, or kept while its own record should have it.

Reading ─→ take ─→ AgentSaid, DirectiveRead, DirectivePassedOver
             └ kept ─→ confirmed: the record has it │ released: it does not
"""

from __future__ import annotations

from collections import deque

from relay.directives.events import DirectivePassedOver, said
from relay.directives.pipeline import Reading
from relay.eventbus import Event

MOST = 2_000
"""Readings kept of one turn; the oldest go first."""


class ScreenWords:
    """prefix: the character that begins a directive.

    keeps: what is read is kept. since: the bytes of output before which nothing counts.
    """

    def __init__(self, prefix: str) -> None:
        self.keeps = False
        self.since = 0
        self._prefix = prefix
        self._kept: deque[tuple[Reading, bool]] = deque(maxlen=MOST)

    def take(self, reading: Reading, *, again: bool) -> list[Event]:
        """Return the events for `reading`. again: an earlier session has read it."""
        if not (reading.lines or reading.directives or reading.passed_over):
            return []
        if self.keeps:
            self._kept.append((reading, again))
            return []
        lines = [line for line in reading.lines if line.place.offset > self.since]
        directives = [each for each in reading.directives if each.place.offset > self.since]
        found = said(lines, directives, self._prefix, again=again)
        return found + [DirectivePassedOver(passed) for passed in ([] if again else reading.passed_over)]

    def forget(self, *, keeps: bool) -> None:
        """Forget what was kept; keeps: keep what is read from now on."""
        self.keeps = keeps
        self._kept.clear()

    def release(self) -> list[Event]:
        """Keep nothing any more; return the events for what was kept."""
        kept = list(self._kept)
        self.forget(keeps=False)
        return [event for reading, again in kept for event in self.take(reading, again=again)]
