"""An agent on the bus as a test sees it: a real courier, and what it was told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from relay.home import Home
from relay.messaging.client import Courier
from relay.messaging.message import Message, State
from relay.messaging.runaway import Limits

SECONDS = 60.0

UNGUARDED = Limits(rate=0, depth=0, broadcasts=0)
"""Tests send faster than agents do."""


class Agent:
    def __init__(
        self,
        home: Home,
        name: str,
        *,
        team: str = "default",
        url: str | None = None,
        limits: Limits = UNGUARDED,
    ) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.outcomes: asyncio.Queue[Message] = asyncio.Queue()
        self.statuses: asyncio.Queue[str] = asyncio.Queue()
        self.faults: list[str] = []
        self.courier = Courier(
            home,
            team,
            name,
            broker_url=url,
            limits=limits,
            on_message=self.messages.put_nowait,
            on_outcome=self.outcomes.put_nowait,
            on_status=self.statuses.put_nowait,
            on_fault=self.faults.append,
        )

    async def status(self, part: str) -> str:
        """The next status that contains `part`."""
        async with asyncio.timeout(SECONDS):
            while True:
                text = await self.statuses.get()
                if part in text:
                    return text

    async def receive(self, count: int = 1) -> list[Message]:
        """The next messages, in order."""
        async with asyncio.timeout(SECONDS):
            return [await self.messages.get() for _ in range(count)]

    async def outcome(self, state: State) -> Message:
        """The next outcome with that state."""
        async with asyncio.timeout(SECONDS):
            while True:
                message = await self.outcomes.get()
                if message.state is state:
                    return message

    async def sees(self, name: str, *, online: bool = True) -> None:
        """Return when the roster says so."""
        await eventually(lambda: any(p.name == name and p.online is online for p in self.courier.roster()))

    def inject(self, message: Message) -> None:
        """What a session does with a message that it can type."""
        self.courier.injecting(message.id)
        self.courier.settle(message.id, State.INJECTED)


@contextlib.asynccontextmanager
async def running(agent: Agent, *, connected: bool = True) -> AsyncIterator[Agent]:
    """Run the agent's courier for a block."""
    task = asyncio.create_task(agent.courier.run())
    try:
        if connected:
            await agent.status("connected")
        yield agent
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; fail when it does not within SECONDS."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  no event is at hand
            await asyncio.sleep(0.01)
