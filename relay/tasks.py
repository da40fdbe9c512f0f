"""The background work of a session. A failure is published, and stops neither other work nor the agent."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from relay.errors import RelayError
from relay.eventbus import Event, EventBus

Work = Coroutine[Any, Any, object]

_log = logging.getLogger(__name__)


class TaskFailed(Event):
    """Background work has failed. `text` is one line for the user."""

    text: str


class Tasks:
    """Runs work in the background (`spawn`) or in a queue by kind (`queue`) within `group`."""

    def __init__(self, group: asyncio.TaskGroup, bus: EventBus) -> None:
        self._group = group
        self._bus = bus
        self._queues: dict[str, asyncio.Queue[Work]] = {}
        self._unfinished: Counter[str] = Counter()  # pieces of work queued or running
        self._idle = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._over = False

    def spawn(self, work: Work, what: str) -> asyncio.Task[None]:
        """Run `work` now, concurrently; `what` names it in the message if it fails."""
        task = self._group.create_task(self._contained(work, what))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def queue(self, kind: str, work: Work) -> None:
        """Run `work` after all earlier work of its kind. Kinds do not wait for each other."""
        if self._over:
            work.close()
            return
        if kind not in self._queues:
            self._queues[kind] = asyncio.Queue()
            self.spawn(self._serve(kind), kind)
        self._unfinished[kind] += 1
        self._queues[kind].put_nowait(work)

    async def idle(self) -> None:
        """Wait until all queued work is done, including work that it queues in turn."""
        while self.unfinished():
            self._idle.clear()
            await self._idle.wait()

    def cancel(self) -> None:
        """Cancel all work, running, queued, and queued from now on."""
        self._over = True
        for task in self._running:
            task.cancel()
        for queue in self._queues.values():
            while not queue.empty():
                queue.get_nowait().close()

    def unfinished(self, prefix: str = "") -> int:
        """Return the number of unfinished pieces of queued work whose kind starts with `prefix`."""
        return sum(number for kind, number in self._unfinished.items() if kind.startswith(prefix))

    async def _serve(self, kind: str) -> None:
        queue = self._queues[kind]
        while True:
            work = await queue.get()
            try:
                await self._contained(work, kind)
            finally:
                self._unfinished[kind] -= 1
                self._idle.set()
            await asyncio.sleep(0)  # work that never waits must not block the loop

    async def _contained(self, work: Work, what: str) -> None:
        try:
            await work
        except RelayError as error:
            self._bus.publish(TaskFailed(f"{what}: {error}"))
        except Exception as error:  # noqa: BLE001 (logged with its traceback, published, contained)
            _log.exception(what)  # unlike printing, logging cannot fail on a full disk
            why = f"{type(error).__name__}: {error}"
            self._bus.publish(TaskFailed(f"{what} failed ({why}); the agent runs on without it."))
