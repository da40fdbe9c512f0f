"""A session's bus and a clock that the test moves, for features that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from relay.clock import WallClock
from relay.eventbus import Event, EventBus
from relay.home import Home
from relay.state.agent_terminal import AgentTerminal
from relay.supervision.notebook import Notebook
from relay.tasks import Tasks

T = TypeVar("T")


class Timer:
    """A timer of a Timers clock."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Timers(WallClock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.timers: list[Timer] = []

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[[], object]) -> Any:
        self.timers.append(Timer(self.time + seconds, call))
        return self.timers[-1]

    def passes(self, seconds: float) -> None:
        """Let time pass, and run each timer when it is due."""
        end = self.time + seconds
        while due := sorted((a for a in self.timers if a.at <= end and not a.cancelled), key=lambda a: a.at):
            self.timers.remove(due[0])
            self.time = max(self.time, due[0].at)
            due[0].call()
        self.time = end


class World:
    """The rest of a session: its bus, its clock, its terminal, and all published events."""

    def __init__(self, folder: Path) -> None:
        self.home = Home.from_env({"RELAY_HOME": str(folder), "HOME": str(folder)})
        self.clock = Timers()
        self.last = self.clock.now()
        self.seen: list[Event] = []
        loop = asyncio.new_event_loop()
        loop.close()
        self.bus = EventBus(loop)
        publish = self.bus.publish

        def record(event: Event) -> None:
            self.seen.append(event)
            publish(event)

        self.bus.publish = record  # type: ignore[method-assign]

    @property
    def terminal(self) -> AgentTerminal:
        return cast(AgentTerminal, self)

    @property
    def tasks(self) -> Tasks:
        return cast(Tasks, self)

    def last_output(self) -> float:
        return self.last

    def spawn(self, work: Coroutine[Any, Any, object], what: str) -> None:
        asyncio.run(work)  # type: ignore[arg-type]

    def queue(self, kind: str, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run(work)  # type: ignore[arg-type]

    def notes(self, section: str = "notes", run: str = "r1") -> Notebook:
        notes = Notebook(self.home, "default", "Alice", section, run=run)
        self.bus.add(notes)
        return notes

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of one kind so far."""
        return [each for each in self.seen if isinstance(each, kind)]

    def new(self, kind: type[T]) -> list[T]:
        """Return the events of one kind since the last call."""
        found = self.of(kind)
        self.seen = [each for each in self.seen if not isinstance(each, kind)]
        return found
