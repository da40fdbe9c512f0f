"""A session's queues of background work."""

from __future__ import annotations

import asyncio
import inspect

from relay.eventbus import EventBus
from relay.tasks import Tasks


def test_idle_waits_for_work_that_was_queued_by_work() -> None:
    """In every queue, even new ones."""
    done: list[str] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group, EventBus())

            async def work(name: str, *then: tuple[str, str]) -> None:
                await asyncio.sleep(0)
                done.append(name)
                for kind, what in then:
                    tasks.queue(kind, work(what))

            tasks.queue("a", work("first"))
            tasks.queue("b", work("second", ("a", "third"), ("c", "fourth")))
            await tasks.idle()
            assert sorted(done) == ["first", "fourth", "second", "third"]
            await tasks.idle()  # returns immediately
            tasks.cancel()

    asyncio.run(main())


def test_nothing_is_queued_after_the_end() -> None:
    async def work() -> None:
        raise AssertionError

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group, EventBus())
            tasks.cancel()
            late = work()
            tasks.queue("a", late)
            assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED
            assert tasks.unfinished() == 0

    asyncio.run(main())
