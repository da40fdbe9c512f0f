"""The texts that ride on a reply to the agent's own hook, from when they are taken until their end is known.

InjectionQueue ─ take ─→ [message] [hooks' texts, as one] [message] ─ render ─→ a reply
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from relay.injection import layout
from relay.injection.injection import Injection
from relay.injection.queue import InjectionQueue
from relay.message import Priority
from relay.state.view import AgentView

_BETWEEN = "\n"  # the texts of one reply


@dataclass(frozen=True, slots=True)
class _Taken:
    """A text as layout.clean returns it; the texts of several hooks share one `mark`."""

    injection: Injection
    text: str
    mark: str


class ReplyDelivery:
    """What one reply carries at a time."""

    def __init__(self, queue: InjectionQueue, view: AgentView, directive: re.Pattern[str]) -> None:
        self._queue = queue
        self._view = view
        self._directive = directive
        self._taken: list[_Taken] = []
        self._taking = False

    def __len__(self) -> int:
        return len(self._taken)

    def __bool__(self) -> bool:
        """True while something rides or is about to: nothing else may be given."""
        return bool(self._taken) or self._taking

    @property
    def injections(self) -> list[Injection]:
        """What was taken and whose end is not known yet."""
        return [taken.injection for taken in self._taken]

    async def take(self, room: int, *, extends: bool, messages: bool) -> list[Injection]:
        """Take what waits, in its order, and fits in `room` bytes of UTF-8. The caller holds `beginning`.

        extends: the reply has the agent go on with a turn that it would end. That is only done for a text
        that is worth a turn, and not before an urgent one that no reply has room for, which is to be typed.
        messages: they may ride on this reply; else only what is no message.

        Each is to be reported with `end`; until then nothing that is behind it moves, so that nothing
        overtakes.  What no reply has room for holds back its own priority only.  A closing prompt, and what
        is of low priority, is only ever typed.
        """
        riding = [each for each in self._queue if _rides(each) and (messages or each.kind != "message")]
        if self._taken or (extends and not any(each.wakes for each in riding)):
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
            mark = last[0].mark if together else layout.nonce()
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
        """Return the text of those of `injections` that were taken."""
        return _render(taken for taken in self._taken if taken.injection in injections)

    def end(self, injection: Injection) -> bool:
        """Note that the end of `injection` is known; return False if it was not taken, or its end was known."""
        for place, taken in enumerate(self._taken):
            if taken.injection is injection:
                del self._taken[place]
                return True
        return False


def _rides(injection: Injection) -> bool:
    """True if a reply to a hook may carry it."""
    return injection.kind != "closing" and injection.priority is not Priority.LOW


def _render(taken: Iterable[_Taken]) -> str:
    """Join them; those of hooks with one mark are one text."""
    return _BETWEEN.join(
        layout.enclose([(each.injection, each.text) for each in together], mark)
        for mark, together in groupby(taken, key=lambda each: each.mark)
    )


def _size(taken: Sequence[_Taken]) -> int:
    """Return the bytes of UTF-8 that they take in a reply."""
    return len((_render(taken) + _BETWEEN).encode()) if taken else 0
