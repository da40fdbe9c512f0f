"""The injections in the reply to an agent's own hook, from when they are taken to the end of the reply.

Backlog ─ take ─→ [message] [hooks' texts, as one] [message] ─ render ─→ a reply
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from relay.injection import layout
from relay.injection.backlog import Backlog
from relay.injection.injection import Injection
from relay.messaging.message import Priority

_BETWEEN = "\n"  # the texts of one reply


@dataclass(frozen=True, slots=True)
class _Taken:
    """A text from `clean`; the texts of several hooks share one `mark`."""

    injection: Injection
    text: str
    mark: str


class Ride:
    """The injections in one reply at a time. on_mark: called with the end of each marked text in it."""

    def __init__(self, waiting: Backlog, directive: re.Pattern[str], on_mark: Callable[[str], None]) -> None:
        self._waiting = waiting
        self._directive = directive
        self._on_mark = on_mark
        self._taken: list[_Taken] = []

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def injections(self) -> list[Injection]:
        return [taken.injection for taken in self._taken]

    def take(self, room: int, *, extends: bool, messages: bool) -> list[Injection]:
        """Take the injections that fit, as `Injector.take` does."""
        riding = [each for each in self._waiting if _rides(each) and (messages or each.kind != "message")]
        if self._taken or (extends and not any(each.wakes for each in riding)):
            return []
        done, last = 0, list[_Taken]()  # bytes of the texts before the last one, which may still grow
        too_long = set[Priority]()
        for injection in riding:
            if injection.priority in too_long:
                continue
            together = bool(last) and injection.kind == last[0].injection.kind == "hook"
            mark = last[0].mark if together else layout.nonce()
            new = _Taken(injection, layout.clean(injection, self._directive), mark)
            if _size([new]) > room:
                if extends and injection.priority is Priority.URGENT:
                    break
                too_long.add(injection.priority)
                continue
            before, grown = (done, [*last, new]) if together else (done + _size(last), [new])
            if before + _size(grown) > room or self._waiting.refused(injection):
                break
            if self._waiting.begin(injection):
                done, last = before, grown
                self._taken.append(new)
                if not together:
                    self._on_mark(layout.closing_mark(mark))
            elif self._waiting.refused(injection):
                break
        return self.injections

    def render(self, injections: Sequence[Injection]) -> str:
        """Return the text of those of `injections` that are in the reply."""
        return _render(taken for taken in self._taken if taken.injection in injections)

    def end(self, injection: Injection) -> bool:
        """Take `injection` out of the reply; False if it was not in it."""
        for place, taken in enumerate(self._taken):
            if taken.injection is injection:
                del self._taken[place]
                return True
        return False


def _rides(injection: Injection) -> bool:
    """Return True if a reply to a hook may carry it."""
    return injection.kind != "closing" and injection.priority is not Priority.LOW


def _render(taken: Iterable[_Taken]) -> str:
    """Return the texts as one; those of hooks with one mark share a frame."""
    return _BETWEEN.join(
        layout.enclose([(each.injection, each.text) for each in together], mark)
        for mark, together in groupby(taken, key=lambda each: each.mark)
    )


def _size(taken: Sequence[_Taken]) -> int:
    """Return the bytes of UTF-8 that they take in a reply."""
    return len((_render(taken) + _BETWEEN).encode()) if taken else 0
