"""Work of a session that goes on beside everything else, each kind in its own order.

A fault in one piece is published once and leaves the rest, the agent above all, running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from relay.errors import RelayError
from relay.eventbus import Event, EventBus

Work = Coroutine[Any, Any, None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    """A piece of background work ended with an error. `text` is one line for the user."""

    text: str


class Tasks:
    """Runs work in the background (`spawn`) or in a queue by kind (`queue`) within `group`."""

    def __init__(self, group: asyncio.TaskGroup, bus: EventBus) -> None:
        self._group = group
        self._bus = bus
        self._queues: dict[str, asyncio.Queue[Work]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Work, what: str) -> asyncio.Task[None]:
        """Run `work` now, beside the rest; `what` names it where it fails."""
        task = self._group.create_task(self._contained(work, what))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def queue(self, kind: str, work: Work) -> None:
        """Run `work` after all earlier work of its kind; kinds do not wait for each other."""
        if kind not in self._queues:
            self._queues[kind] = asyncio.Queue()
            self.spawn(self._serve(kind), kind)
        self._queues[kind].put_nowait(work)

    async def idle(self) -> None:
        """Wait until every queue is empty."""
        for queue in list(self._queues.values()):
            await queue.join()

    def cancel(self) -> None:
        """End all of it."""
        for task in self._running:
            task.cancel()
        for queue in self._queues.values():
            while not queue.empty():
                queue.get_nowait().close()

    @property
    def waiting(self) -> int:
        """The number of queued pieces of work that have not begun."""
        return sum(queue.qsize() for queue in self._queues.values())

    async def _serve(self, kind: str) -> None:
        queue = self._queues[kind]
        while True:
            work = await queue.get()
            try:
                await self._contained(work, kind)
            finally:
                queue.task_done()
            await asyncio.sleep(0)  # work that never waits must not keep the loop from everything else

    async def _contained(self, work: Work, what: str) -> None:
        try:
            await work
        except RelayError as error:
            self._bus.publish(TaskFailed(f"{what}: {error}"))
        except Exception as error:  # noqa: BLE001 (logged with its traceback, published, contained)
            _log.exception(what)  # unlike printing it, that cannot fail on a full disk
            why = f"{type(error).__name__}: {error}"
            self._bus.publish(TaskFailed(f"{what} failed ({why}); the agent runs on without it."))
