"""The injection queue of one agent: the injections waiting for it, in the order of delivery.

Closing prompts come first, then injections of urgent, normal and low priority.  Within each rank, the senders
of messages take turns (round robin), each sender's messages go first in, first out, and other kinds go in the
current turn.  `begin` asks for permission to deliver, which may be refused permanently or temporarily; an
injection refused temporarily keeps its place, and nothing behind it is delivered first.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from relay import names
from relay.backoff import Backoff
from relay.dataclass import dataclass
from relay.errors import MessageRefused, RelayError
from relay.eventbus import EventBus
from relay.injection import layout
from relay.injection.events import InjectionDeferred, InjectionEnded, MayBegin
from relay.injection.injection import Injection, Outcome, Result
from relay.message import Priority
from relay.terminal.events import Notify

RETRY = Backoff(0.5, 15.0)
"""The waits between two attempts to begin a temporarily refused injection."""

HASTY = 8
"""Urgent messages of one sender that may wait ahead of everything not urgent; further ones take the sender's
turns among the normal messages."""


HELD = "messages of other agents wait until you set it to accept"
"""Said of the setting of the user's that holds them."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """`injection` was refused for `reason`, `failures` times in a row; the queue retries it at `until`."""

    injection: Injection
    reason: str
    failures: int
    until: float


class InjectionQueue:
    """The waiting injections. Only the event loop's thread may call its methods.

    held:      names the user's setting that makes the messages of other agents wait, or returns "".
    beginning: a lock for the caller of `begin`, so two never take from the queue at once.
    closed:    nothing more is delivered.
    """

    def __init__(
        self, bus: EventBus, clock: Callable[[], float], held: Callable[[], str] = lambda: ""
    ) -> None:
        self.held = held
        self.beginning = asyncio.Lock()
        self.closed = False
        self._bus = bus
        self._clock = clock
        self._waiting: list[Injection] = []
        self._places: dict[str, tuple[int, int]] = {}  # by id: the rank, and the turn of its delivery
        self._turns: dict[int, int] = {}  # by rank: the current turn
        self._last: dict[tuple[int, str], int] = {}  # by rank and sender: the turn of its latest message
        self._refusal: Refusal | None = None
        self._hold_told = False  # the user knows that a setting of theirs makes messages wait
        self._expected: set[str] = set()  # the ids of injections that go before all others of their rank

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Injection]:
        return iter(tuple(self._waiting))

    def due(self) -> list[Injection]:
        """Return those that wait, without what a setting of the user's holds."""
        held = any(each.by_agent for each in self._waiting) and bool(self.held())
        return [each for each in self._waiting if not (held and each.by_agent)]

    def submit(self, injection: Injection) -> bool:
        """Queue `injection` in its rank; return False if it ends at once instead."""
        if self.closed:
            self.end(injection, Outcome(Result.UNTYPED, "the session has ended"))
            return False
        if not self.fits(injection):
            return False
        rank = _rank(injection)
        rank += self._is_hasty(injection)
        turn = self._turns.get(rank, 0)
        if injection.kind == "message":
            flow = rank, names.key(injection.source)
            turn = self._last[flow] = max(turn, self._last.get(flow, -1) + 1)
        if injection.id in self._expected:
            self._expected.discard(injection.id)
            turn = -1
        self._places[injection.id] = rank, turn
        self._waiting.insert(bisect_right(self._waiting, (rank, turn), key=self._place), injection)
        if injection.by_agent and not self._hold_told and (setting := self.held()):
            self._hold_told = True
            self._bus.publish(Notify(f"{setting}: {HELD}. One from {injection.source} does now."))
        return True

    def expect(self, injections: Sequence[Injection]) -> None:
        """Put `injections`, which were about to be delivered, before all others once they are submitted."""
        self._expected.update(each.id for each in injections)

    def fits(self, injection: Injection) -> bool:
        """Return True if `injection` can be delivered at all; else reject it."""
        try:
            layout.check(injection)
        except MessageRefused as error:
            self.end(injection, Outcome(Result.REJECTED, str(error)))
            return False
        return True

    def withdraw(self, id: str) -> bool:
        """End the injection `id` as withdrawn; return False if it is not waiting."""
        found = next((each for each in self._waiting if each.id == id), None)
        return found is not None and self.discard(found, Outcome(Result.WITHDRAWN))

    def discard(self, injection: Injection, outcome: Outcome) -> bool:
        """End `injection` with `outcome`; return False if it is not waiting."""
        if injection not in self._waiting:
            return False
        self._waiting.remove(injection)
        self.end(injection, outcome)
        return True

    async def begin(self, injection: Injection, *, begins: bool) -> bool:
        """Take `injection` out to deliver it now; return False if it is gone, rejected or refused for now.

        begins: it begins its own turn. The caller holds `beginning`.
        """
        if injection not in self._waiting:
            return False
        self._waiting.remove(injection)
        try:
            await self._bus.ask(MayBegin(injection, begins))
        except MessageRefused as error:
            self.end(injection, Outcome(Result.REJECTED, str(error)))
            return False
        except RelayError as error:
            failures = 1
            if self._refusal is not None and self._refusal.injection is injection:
                failures += self._refusal.failures
            until = self._clock() + RETRY.wait(failures)
            self._refusal = Refusal(injection, str(error), failures, until)
            self.defer([injection])  # whatever was recorded before it was refused
            return False
        except BaseException:  # cancelled: it was not delivered, whatever was recorded meanwhile
            self.defer([injection])
            raise
        self._refusal = None
        rank, turn = self._place(injection)
        if injection.kind != "message":
            turn += 1  # else hooks that answer hooks would starve all other injections
        self._turns[rank] = max(self._turns.get(rank, 0), turn)
        return True

    def refused(self, injection: Injection) -> Refusal | None:
        """Return why `injection` is not retried yet, or None if it may be tried."""
        refusal = self._refusal
        if refusal is None or refusal.injection is not injection or refusal.until <= self._clock():
            return None
        return refusal

    def retry(self) -> None:
        """Retry the temporarily refused injection at once."""
        self._refusal = None

    def defer(self, injections: Sequence[Injection]) -> None:
        """Put `injections`, which were begun or about to begin, back in their places."""
        for injection in reversed(injections):
            self._bus.publish(InjectionDeferred(injection))
            self._put_back(injection)

    def end(self, injection: Injection, outcome: Outcome) -> None:
        """Publish the outcome of `injection`, which is no longer waiting."""
        if all(each.id != injection.id for each in self._waiting):  # handlers may use an id twice
            self._places.pop(injection.id, None)
        self._bus.publish(InjectionEnded(injection, outcome))

    def close(self) -> None:
        """Stop delivering: what is waiting ends as not typed."""
        self.closed = True
        waited, self._waiting = self._waiting, []
        for injection in waited:
            self._put_back(injection)

    def _is_hasty(self, injection: Injection) -> bool:
        """Return True for an urgent message that counts as normal because of its sender's earlier ones."""
        if injection.kind != "message" or injection.priority is not Priority.URGENT:
            return False
        own = [
            self._place(each)
            for each in self._waiting
            if each.kind == "message"
            and each.priority is Priority.URGENT
            and names.same(each.source, injection.source)
        ]
        return len(own) >= HASTY or any(rank > _rank(injection) for rank, _ in own)

    def _put_back(self, injection: Injection) -> None:
        if self.closed:
            self.end(injection, Outcome(Result.UNTYPED, "the session ended first"))
            return
        self._waiting.insert(bisect_left(self._waiting, self._place(injection), key=self._place), injection)

    def _place(self, injection: Injection) -> tuple[int, int]:
        present = _rank(injection), self._turns.get(_rank(injection), 0)
        return self._places.get(injection.id, present)


def _rank(injection: Injection) -> int:
    return 0 if injection.kind == "closing" else 1 + injection.priority.rank
