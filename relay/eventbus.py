"""The event bus of one session: typed, frozen events, delivered in order to the features that handle them.

    class Recorder:
        @handles(OutputRead)                            publish: runs every handler now, one after another
        def output(self, event: OutputRead) -> None: ...

        @answers(Explain)                               ask: awaited; each sees the answers before its own
        async def explain(self, question: Explain, earlier: Sequence[Facts]) -> Facts | None: ...

Handlers run in the order in which their features were added.  An event published while another is being
delivered waits its turn: all features see all events in the same order.

While a session restores what an earlier one knew, events reach only the parts that are restored.  When it is
done, the others get the last event of each lasting kind, and everything that follows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, dataclass_transform

from relay.dataclass import dataclass
from relay.text import one_line

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_log = logging.getLogger(__name__)

_HANDLES, _ANSWERS = "_handled_events", "_answered_questions"


@dataclass_transform(frozen_default=True)
class _Frozen(type):
    """Makes a class, and each class derived from it, a frozen dataclass."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        made = super().__new__(cls, name, bases, namespace)
        return made if "__slots__" in namespace else dataclass(frozen=True, slots=True)(made)


class Event(metaclass=_Frozen):
    """A fact, or a command to the features that can carry it out. lasting: it describes the current state."""

    lasting: ClassVar[bool] = False


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Question(Generic[T_co], metaclass=_Frozen):
    """A question to the features; each may give one answer of type T_co."""


class HandlerFailed(Event):
    """A handler has raised an exception. `error` is one line; the traceback is in the session's log."""

    lasting: ClassVar[bool] = True

    error: str


_Handler = tuple[Callable[[Any], None], bool]
"""A handler, and True if it belongs to a part that is restored."""

_Receivers = Literal["all", "restored", "others"]

S = TypeVar("S")
E = TypeVar("E", bound=Event)
Q = TypeVar("Q", bound=Question[Any])


def handles(*kinds: type[E]) -> Callable[[Callable[[S, E], None]], Callable[[S, E], None]]:
    """Mark a method as a handler for these kinds of events."""

    def mark(method: Callable[[S, E], None]) -> Callable[[S, E], None]:
        setattr(method, _HANDLES, kinds)
        return method

    return mark


Answer = Callable[[S, Q, Sequence[Any]], Awaitable[Any]]


def answers(kind: type[Q]) -> Callable[[Answer[S, Q]], Answer[S, Q]]:
    """Mark a coroutine method `(question, earlier answers)` as answering a question; None is no answer."""

    def mark(method: Answer[S, Q]) -> Answer[S, Q]:
        setattr(method, _ANSWERS, kind)
        return method

    return mark


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods of `kind` that somebody has marked, by name. `dir` would name five times as many."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__[:-1]):
        found.update(vars(each))
    for name in sorted(found):
        if getattr(found[name], "__dict__", None):
            yield name, found[name]


class EventBus:
    """Delivers events and questions on one event loop. Only `post` may be called from other threads.

    loop:      the event loop; by default the running one.
    restoring: events reach only the parts that are restored, until `restored`.
    """

    def __init__(self, loop: AbstractEventLoop | None = None, *, restoring: bool = False) -> None:
        if loop is None:
            from asyncio import get_running_loop  # 15 ms, which commands that start no loop need not spend

            loop = get_running_loop()
        self.loop = loop
        self.restoring = restoring
        self._handlers: dict[type[Event], list[_Handler]] = {}
        self._answerers: dict[type[Question[Any]], list[Callable[[Any, Any], Awaitable[Any]]]] = {}
        self._waiting: deque[tuple[Event, _Receivers]] = deque()
        self._lasting: dict[type[Event], Event] = {}  # of the time of restoring
        self._delivering = False

    def add(self, feature: object, *, restored: bool = False) -> None:
        """Register the marked methods of `feature`, after those of features added earlier."""
        for name, method in methods(type(feature)):
            for kind in getattr(method, _HANDLES, ()):
                self._handlers.setdefault(kind, []).append((getattr(feature, name), restored))
            if (kind := getattr(method, _ANSWERS, None)) is not None:
                self._answerers.setdefault(kind, []).append(getattr(feature, name))

    def publish(self, event: Event) -> None:
        """Deliver `event` to its handlers: now, or after the event that is being delivered.

        Log an exception in a handler and publish it as HandlerFailed; the other handlers still get the event.
        """
        if self.restoring and event.lasting:
            self._lasting.pop(type(event), None)
            self._lasting[type(event)] = event  # in the order of the last ones
        self._waiting.append((event, "restored" if self.restoring else "all"))
        self._empty()

    def restored(self) -> None:
        self.restoring = False
        self._waiting.extend((event, "others") for event in self._lasting.values())
        self._lasting.clear()
        self._empty()

    def _empty(self) -> None:
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._waiting:
                self._deliver(*self._waiting.popleft())
        finally:
            self._delivering = False

    def post(self, event: Event) -> None:
        """Publish `event` on the event loop's thread. May be called from any thread."""
        self.loop.call_soon_threadsafe(self.publish, event)

    async def ask(self, question: Question[T]) -> list[T]:
        """Return the features' answers to `question`, in order. Let an exception in one of them propagate."""
        found: list[T] = []
        for answerer in self._answerers.get(type(question), ()):
            if (answer := await answerer(question, tuple(found))) is not None:
                found.append(answer)
        return found

    async def ask_all(self, question: Question[T]) -> list[T]:
        """Do as `ask`, but log an exception, publish it as HandlerFailed, and still ask the others."""
        found: list[T] = []
        for answerer in self._answerers.get(type(question), ()):
            try:
                answer = await answerer(question, tuple(found))
            except Exception as error:  # noqa: BLE001 (logged with its traceback, published, contained)
                self._failed(f"{type(question).__name__} was not answered", error)
            else:
                found += [] if answer is None else [answer]
        return found

    async def gather(self, question: Question[Collection[T]]) -> list[T]:
        """Return the elements of all answers to `question`, in the order of `ask`."""
        return [each for answer in await self.ask(question) for each in answer]

    def _deliver(self, event: Event, to: _Receivers) -> None:
        for handler, restored in self._handlers.get(type(event), ()):
            if to != "all" and restored != (to == "restored"):
                continue
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001 (logged with its traceback, published, contained)
                self._failed(f"{type(event).__name__} was not handled", error)

    def _failed(self, what: str, error: Exception) -> None:
        _log.error(what, exc_info=error)
        if not what.startswith(HandlerFailed.__name__):  # otherwise it could loop forever
            self.publish(HandlerFailed(f"{what} ({one_line(f'{type(error).__name__}: {error}', 200)})"))
