"""The texts carried by a reply to the agent's own hook, from when they are taken until their end is known.

InjectionQueue ─ take ─→ [message] [hooks' texts, as one] [message] ─ render ─→ a reply
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from relay.dataclass import dataclass
from relay.injection import layout
from relay.injection.injection import Injection
from relay.injection.queue import InjectionQueue
from relay.message import Priority
from relay.state.view import AgentView

TYPED = frozenset({"closing", "task", "nudge"})
"""Kinds of texts that are only ever typed: they are worth their own turn."""

_BETWEEN = "\n"  # separates the texts of one reply


@dataclass(frozen=True, slots=True)
class _Taken:
    """A text from layout.clean; the texts of several hooks share one `mark`."""

    injection: Injection
    text: str
    mark: str


class ReplyDelivery:
    """The texts carried by the reply in progress, if any."""

    def __init__(self, queue: InjectionQueue, view: AgentView, directive: re.Pattern[str]) -> None:
        self._queue = queue
        self._view = view
        self._directive = directive
        self._taken: list[_Taken] = []
        self._taking = False

    def __len__(self) -> int:
        return len(self._taken)

    def __bool__(self) -> bool:
        """True while a reply carries texts or is about to: nothing else may be delivered."""
        return bool(self._taken) or self._taking

    @property
    def injections(self) -> list[Injection]:
        """The injections that were taken and have not ended yet."""
        return [taken.injection for taken in self._taken]

    async def take(self, room: int, *, extends: bool, messages: bool, tool: bool = False) -> list[Injection]:
        """Take the waiting texts, in order, that fit in `room` bytes of UTF-8. The caller holds `beginning`.

        extends:  the reply makes the agent continue a turn that it would end: only for a text that wakes,
                  and not before an urgent one that no reply has room for, which must be typed.
        messages: True if this reply may also carry messages, and other words of other agents.
        tool:     the agent waits for a message: like `extends`, but also for texts of low priority.

        Report each with `end`; until then, nothing behind it moves.  A text that no reply has room for only
        blocks its own priority.  Closing prompts are typed; a text of low priority waits until it is idle.
        """
        riding = [
            each
            for each in self._queue.due()
            if _rides(each, low=tool) and (messages or not each.quotes_others)
        ]
        if self._taken or ((extends or tool) and not any(each.wakes for each in riding)):
            return []
        self._taking = True
        try:
            await self._take(riding, room, extends=extends)
        finally:
            self._taking = False
        return self.injections

    async def _take(self, riding: Sequence[Injection], room: int, *, extends: bool) -> None:
        done, last = 0, list[_Taken]()  # bytes of the texts before the last one, which may still grow
        too_long = set[Priority]()
        for injection in riding:
            if injection.priority in too_long:
                continue
            together = bool(last) and injection.kind == last[0].injection.kind == "hook"
            mark = last[0].mark if together else layout.mark_of(injection)
            new = _Taken(injection, layout.clean(injection, self._directive), mark)
            if _size([new]) > room:
                if extends and injection.priority is Priority.URGENT:
                    break
                too_long.add(injection.priority)
                continue
            before, grown = (done, [*last, new]) if together else (done + _size(last), [new])
            if before + _size(grown) > room or self._queue.refused(injection):
                break
            if await self._queue.begin(injection, begins=False):
                done, last = before, grown
                self._taken.append(new)
                if not together:
                    self._view.given(layout.closing_mark(mark))
            elif self._queue.refused(injection):
                break

    def render(self, injections: Sequence[Injection]) -> str:
        """Return the text of those `injections` that were taken."""
        return _render(taken for taken in self._taken if taken.injection in injections)

    def end(self, injection: Injection) -> bool:
        """Record that `injection` has ended; return False if it was not taken, or had already ended."""
        before = len(self._taken)
        self._taken = [taken for taken in self._taken if taken.injection is not injection]
        return len(self._taken) < before


def _rides(injection: Injection, *, low: bool) -> bool:
    return injection.kind not in TYPED and (low or injection.priority is not Priority.LOW)


def _render(taken: Iterable[_Taken]) -> str:
    """Return the texts of one reply; hooks' texts with the same mark become one text."""
    return _BETWEEN.join(
        layout.enclose([(each.injection, each.text) for each in together], mark)
        for mark, together in groupby(taken, key=lambda each: each.mark)
    )


def _size(taken: Sequence[_Taken]) -> int:
    """Return the bytes of UTF-8 that `taken` needs in a reply."""
    return len((_render(taken) + _BETWEEN).encode()) if taken else 0
