"""The prompt composer, which asks the rules once about each prompt."""

from __future__ import annotations

import asyncio
import re
from typing import cast

from relay.eventbus import EventBus
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.prompt import PromptComposer
from relay.injection.queue import InjectionQueue
from relay.state.view import AgentView

WAITING = 200


class Counted(Injection):
    """An injection that counts comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = Injection.__hash__


def test_a_long_queue_is_not_compared_for_each_prompt() -> None:
    async def main() -> None:
        bus = EventBus()
        queue = InjectionQueue(bus, lambda: 0.0)
        composer = PromptComposer(bus, queue, cast(AgentView, None), re.compile("@"))
        for number in range(WAITING):
            queue.submit(Counted(f"m{number}", "text", "Bob"))
        while first := next(iter(queue), None):
            prompt = await composer.compose(first)
            assert prompt is not None and prompt.injections == (first,)
            queue.discard(first, Outcome(Result.INJECTED))

    asyncio.run(main())
    assert Counted.compared < 2 * WAITING
