"""The event bus of one session: typed, frozen events, delivered in order to the features that handle them.

    class Recorder:
        @handles(OutputRead)                            publish: every handler, one after another, at once
        def output(self, event: OutputRead) -> None: ...

        @answers(Explain)                               ask: awaited, and each sees the answers before its own
        async def explain(self, question: Explain, earlier: Sequence[Facts]) -> Facts | None: ...

Handlers run in the order in which their features were added.  An event that is published while another one is
being delivered waits its turn, so that all features see all events in the same order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from relay.text import one_line

_log = logging.getLogger(__name__)

_HANDLES, _ANSWERS = "_handled_events", "_answered_questions"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened, or a command to the features that can carry it out."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """Something that features are asked; each may give one answer of type T."""


@dataclass(frozen=True, slots=True)
class HandlerFailed(Event):
    """A handler raised. `error` is one line; the traceback is in the session's log."""

    error: str


S = TypeVar("S")
E = TypeVar("E", bound=Event)
Q = TypeVar("Q", bound=Question[Any])


def handles(*kinds: type[E]) -> Callable[[Callable[[S, E], None]], Callable[[S, E], None]]:
    """Mark a method as a handler of these kinds of events."""

    def mark(method: Callable[[S, E], None]) -> Callable[[S, E], None]:
        setattr(method, _HANDLES, kinds)
        return method

    return mark


Answer = Callable[[S, Q, Sequence[Any]], Awaitable[Any]]


def answers(kind: type[Q]) -> Callable[[Answer[S, Q]], Answer[S, Q]]:
    """Mark a coroutine method `(question, earlier answers)` as one that answers a kind of question.

    None is no answer.
    """

    def mark(method: Answer[S, Q]) -> Answer[S, Q]:
        setattr(method, _ANSWERS, kind)
        return method

    return mark


class EventBus:
    """Belongs to one event loop, and to its thread; only `post` may be called from others.

    loop: the one that it belongs to; by default the one that runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self._handlers: dict[type[Event], list[Callable[[Any], None]]] = {}
        self._answerers: dict[type[Question[Any]], list[Callable[[Any, Any], Awaitable[Any]]]] = {}
        self._waiting: deque[Event] = deque()
        self._delivering = False

    def add(self, feature: object) -> None:
        """Have the marked methods of `feature` handle events and answer questions, after those added before."""
        for name in dir(type(feature)):
            method = getattr(type(feature), name, None)
            for kind in getattr(method, _HANDLES, ()):
                self._handlers.setdefault(kind, []).append(getattr(feature, name))
            if (kind := getattr(method, _ANSWERS, None)) is not None:
                self._answerers.setdefault(kind, []).append(getattr(feature, name))

    def handled(self, kind: type[Event]) -> bool:
        """Return True if a feature handles events of this kind."""
        return kind in self._handlers

    def publish(self, event: Event) -> None:
        """Deliver `event` to its handlers; at once, or after the event that is being delivered.

        A handler that raises is logged and published as HandlerFailed; the others get the event all the same.
        """
        self._waiting.append(event)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._waiting:
                self._deliver(self._waiting.popleft())
        finally:
            self._delivering = False

    def post(self, event: Event) -> None:
        """Publish `event` from any thread, as soon as the loop has time."""
        self.loop.call_soon_threadsafe(self.publish, event)

    async def ask(self, question: Question[T]) -> list[T]:
        """Return the answers to `question`, in the order of the features; raise what one of them raises."""
        found: list[T] = []
        for answerer in self._answerers.get(type(question), ()):
            if (answer := await answerer(question, tuple(found))) is not None:
                found.append(answer)
        return found

    def _deliver(self, event: Event) -> None:
        for handler in self._handlers.get(type(event), ()):
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001 (logged with its traceback, published, contained)
                _log.exception("a handler of %s", type(event).__name__)
                if not isinstance(event, HandlerFailed):
                    what = one_line(f"{type(error).__name__}: {error}", 200)
                    self._waiting.append(HandlerFailed(f"{type(event).__name__} was not handled ({what})"))
