"""What the screen shows the agent say: published at once, or kept while its own record should have it.

Reading ─→ take ─→ AgentSaid, DirectiveRead, DirectivePassedOver
             └ kept ─→ settled: the record has it │ released: it does not
"""

from __future__ import annotations

from collections import deque

from relay.directives.directive import Directive
from relay.directives.events import AgentSaid, DirectivePassedOver, DirectiveRead, said
from relay.directives.pipeline import Reading
from relay.eventbus import Event
from relay.place import TRANSCRIPT
from relay.readers.line import Line

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
        # What the record has of this turn, without the marks that are not drawn, or drawn otherwise.
        self._words = ""
        self._directives: deque[tuple[str, str, str]] = deque(maxlen=MOST)  # those not seen on the screen

    def take(self, reading: Reading, *, again: bool) -> list[Event]:
        """Return the events for `reading`. again: an earlier session has read it."""
        if not (reading.lines or reading.directives or reading.passed_over):
            return []
        if self.keeps:
            self._kept.append((reading, again))
            return []
        new = self._new(reading)
        found = said(new.lines, new.directives, self._prefix, again=again)
        return found + [DirectivePassedOver(passed) for passed in ([] if again else new.passed_over)]

    def forget(self, *, keeps: bool) -> None:
        """Forget what was kept; keeps: keep what is read from now on."""
        self.keeps = keeps
        self._kept.clear()
        self.begin()

    def begin(self) -> None:
        """Begin a turn: what the record had of the last one may be said again."""
        self._words = ""
        self._directives.clear()

    def note(self, event: Event) -> None:
        """Note lines or a directive that the record has, while the screen's are kept."""
        match event:
            case AgentSaid(lines, place) if self.keeps and place.source == TRANSCRIPT:
                self._words += "".join(map(_bare, lines))
            case DirectiveRead(directive) if self.keeps and directive.place.source == TRANSCRIPT:
                self._directives.append(_key(directive))

    def settle(self, up_to: int) -> None:
        """Forget what was drawn in the first `up_to` bytes of output, and what else the record has."""
        self.since = up_to
        new = [(self._new(reading), again) for reading, again in self._kept]
        self._kept.clear()
        self._kept += (each for each in new if each[0].directives or each[0].lines or each[0].passed_over)

    def release(self) -> list[Event]:
        """Keep nothing any more; return the events for what was kept."""
        self.keeps = False
        kept = list(self._kept)
        self._kept.clear()
        return [event for reading, again in kept for event in self.take(reading, again=again)]

    def _new(self, reading: Reading) -> Reading:
        """Return `reading` without what counts no more, and what the record has."""
        if not (self.since or self._words or self._directives):
            return reading
        directives = [each for each in reading.directives if not self._has(each)]
        lines = [line for line in reading.lines if self._counts(line) and not self._said(line)]
        passed_over = [each for each in reading.passed_over if self._counts(each.line)]
        return Reading(lines, [each for each in directives if each.place.offset > self.since], passed_over)

    def _counts(self, line: Line) -> bool:
        return line.place.offset > self.since

    def _said(self, line: Line) -> bool:
        bare = _bare(line.text)
        return bare != "" and bare in self._words

    def _has(self, directive: Directive) -> bool:
        """Return True if the record has `directive`, which may be said again later."""
        *to, body = key = _key(directive)
        if key not in self._directives and body:  # the screen may show its beginning only
            longer = (each for each in self._directives if [*each[:2]] == to and each[2].startswith(body))
            key = next(longer, key)
        if key not in self._directives:
            return False
        self._directives.remove(key)
        return True


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _key(directive: Directive) -> tuple[str, str, str]:
    return directive.namespace, directive.target, _bare(directive.body)
