"""The backlog: the waiting injections, in the order in which the agent gets them.

Closing prompts come first, then urgent, normal and low priority, each first in, first out.  `begin` announces
that an injection is about to be given, which may be refused, for good or for now; one that is refused for now
keeps its place, and none behind it overtakes it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relay.errors import MessageRefused, RelayError
from relay.injection.injection import Injection, Outcome, Result

FIRST_RETRY, LAST_RETRY = 0.5, 15.0
"""Seconds between two attempts to begin an injection that was refused for now, doubled each time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of `injection` for now; the next attempt is after `delay` seconds, at `until`."""

    injection: Injection
    reason: str
    delay: float
    until: float


class Backlog:
    """The waiting injections of one agent.

    on_begin, on_outcome: `on_typing` and `on_outcome` of Injector.
    """

    def __init__(
        self,
        on_begin: Callable[[Injection], None],
        on_outcome: Callable[[Injection, Outcome], None],
        clock: Callable[[], float],
    ) -> None:
        self._on_begin = on_begin
        self._on_outcome = on_outcome
        self._clock = clock
        self._waiting: list[Injection] = []
        self._refusal: Refusal | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Injection]:
        return iter(tuple(self._waiting))

    def add(self, injection: Injection) -> None:
        """Add `injection` behind the others of its rank."""
        self._waiting.insert(bisect_right(self._waiting, _rank(injection), key=_rank), injection)

    def put_back(self, injection: Injection) -> None:
        """Put `injection` back as the first of its rank."""
        self._waiting.insert(bisect_left(self._waiting, _rank(injection), key=_rank), injection)

    def remove(self, id: str) -> Injection | None:
        """Remove and return the injection `id`; None if it does not wait."""
        found = next((each for each in self._waiting if each.id == id), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def clear(self) -> list[Injection]:
        """Remove and return all injections."""
        waited, self._waiting = self._waiting, []
        return waited

    def begin(self, injection: Injection) -> bool:
        """Take out `injection` to give it now. Return False if it is rejected, or refused for now."""
        self._waiting.remove(injection)
        try:
            self._on_begin(injection)
        except MessageRefused as error:
            self._on_outcome(injection, Outcome(Result.REJECTED, str(error)))
            return False
        except RelayError as error:
            last = self._refusal
            again = last is not None and last.injection is injection
            delay = min(2 * last.delay, LAST_RETRY) if last is not None and again else FIRST_RETRY
            self._refusal = Refusal(injection, str(error), delay, self._clock() + delay)
            self.put_back(injection)
            return False
        self._refusal = None
        return True

    def refused(self, injection: Injection) -> Refusal | None:
        """Return the refusal for which `injection` still waits; None if it may be tried."""
        refusal = self._refusal
        if refusal is None or refusal.injection is not injection or refusal.until <= self._clock():
            return None
        return refusal


def _rank(injection: Injection) -> int:
    """Return the rank of an injection, 0 for the first."""
    return 0 if injection.kind == "closing" else 1 + injection.priority.rank
