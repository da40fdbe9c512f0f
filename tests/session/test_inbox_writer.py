"""How a session's items get into the ledger, with and without a terminal that shows their number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast

from ledgers import cost, send
from relay import names
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.features.user_inbox import InboxWriter
from relay.lifecycle import Identity
from relay.messaging.client import MessagingClient
from relay.messaging.events import AddItem, ClientOpened, CurrentClient, UnreadCounted
from relay.messaging.ledger import Ledger
from relay.redaction import Redactor
from relay.storage.writer import Writer
from relay.terminal.events import AttachmentChanged

TEAM = "default"

T = TypeVar("T")


class World:
    """A session whose ledger can be away. steps: of SQLite for each job; counted: the numbers published."""

    def __init__(self, path: Path) -> None:
        self.ledger = Writer(Ledger, path)
        self.away = False
        self.steps: asyncio.Queue[int] = asyncio.Queue()
        self.counted: asyncio.Queue[int] = asyncio.Queue()
        self.bus = EventBus()
        self.writer = InboxWriter(self.bus, Redactor(), Identity("s1", "Bob", TEAM, path.parent))
        self.bus.add(self)
        self.bus.add(self.writer)

    @answers(CurrentClient)
    async def client(self, _: CurrentClient, __: object) -> MessagingClient:
        if self.away:
            self.steps.put_nowait(0)
            raise RelayError("there is no ledger.")
        return cast(MessagingClient, self)

    async def ask(self, job: Callable[[Ledger], T]) -> T:
        steps, result = await self.ledger.run(lambda ledger: cost(ledger, lambda: job(ledger)))
        self.steps.put_nowait(steps)
        return result

    @handles(UnreadCounted)
    def unread(self, event: UnreadCounted) -> None:
        self.counted.put_nowait(event.number)


def play(tmp_path: Path, scene: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(tmp_path / "ledger.db")
        running = asyncio.create_task(world.writer.run())
        try:
            async with asyncio.timeout(20):
                await scene(world)
        finally:
            running.cancel()
            await asyncio.to_thread(world.ledger.close)

    asyncio.run(main())


def test_an_item_is_written_once_there_is_a_ledger(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.away = True
        world.bus.publish(AddItem("question", "Go on?"))
        assert await world.steps.get() == 0
        world.away = False
        world.bus.publish(ClientOpened())
        assert await world.steps.get() > 0
        items = await world.ledger.run(lambda ledger: ledger.user_inbox.items())
        assert [item.text for item in items] == ["Go on?"]

    play(tmp_path, scene)


def test_unread_items_are_counted_only_for_a_terminal(tmp_path: Path) -> None:
    """Otherwise each item would cost the more, the more of them wait."""

    def fill(ledger: Ledger) -> None:
        with ledger.transaction():
            for _ in range(300):
                send(ledger, TEAM, "Bob", [names.PERSON], "hi")

    async def scene(world: World) -> None:
        costs = []
        for number in range(2):
            for text in ("one", "two"):
                world.bus.publish(AddItem("configuration", f"{text} {number}"))
            costs.append(await world.steps.get() + await world.steps.get())
            await world.ledger.run(fill)
        world.bus.publish(AttachmentChanged(watched=True))
        assert await world.counted.get() == 604
        assert world.steps.get_nowait() > 300 and costs[1] <= costs[0] + 100

    play(tmp_path, scene)
