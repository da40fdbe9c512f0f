"""A worker process of the fleet: many agents, each a real messaging client that injects what it gets at once.

python -m benchmarks.fleet.worker FIRST END TOTAL

Runs the agents `agent-FIRST` to `agent-(END-1)` of a fleet of TOTAL in the home that RELAY_HOME names.  Reads
one command per line and answers each with one line of JSON; ends when its standard input does.  Times are
seconds of CLOCK_MONOTONIC, which all processes of the machine share.

    connect                 connect to the bus; when each agent was connected
    see                     when each agent knew that all TOTAL are online
    heard                   number of announcements received so far
    chat COUNT RATE         each agent sends COUNT messages to random others, RATE a second: (begin, accepted)
    broadcast               the first agent sends one message to everybody: (begin, accepted)
    injected                number of messages injected since the last `take`
    take                    of those: (seconds from send to injected, when) each
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from relay.errors import LedgerAway
from relay.eventbus import Event
from relay.home import Home
from relay.message import OutgoingMessage, State
from relay.messaging.client import MessagingClient
from relay.messaging.events import MessageStored, StatusReported
from relay.messaging.ledger import Ledger
from relay.messaging.presence_tracker import PresenceTracker
from relay.messaging.receiver import Receiver
from relay.messaging.runaway import Limits

TEAM = "fleet"

T = TypeVar("T")


class Agent:
    """One simulated agent. injected: (seconds from sending to injection, when) of each message."""

    client: MessagingClient

    def __init__(self, name: str, injected: list[tuple[float, float]]) -> None:
        self.name = name
        self.connected = asyncio.Event()
        self.connected_at = 0.0
        self._injected = injected
        self._arrived: asyncio.Queue[MessageStored] = asyncio.Queue()

    async def run(self, home: Home) -> None:
        """Stay on the bus until cancelled."""
        self.client = await MessagingClient.open(
            home,
            TEAM,
            self.name,
            limits=Limits(rate=0, depth=0, broadcasts=0, queue=0),
            publish=self.publish,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.client.run())
            tasks.create_task(self._inject())

    def publish(self, event: Event) -> None:
        match event:
            case MessageStored():
                self._arrived.put_nowait(event)
            case StatusReported(text) if text.startswith("connected"):
                self.connected_at = time.monotonic()
                self.connected.set()
            case StatusReported(text):
                print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    async def _inject(self) -> None:
        while True:
            message = (await self._arrived.get()).message
            await patiently(lambda message=message: self.client.injecting(message.id))
            await patiently(lambda message=message: self.client.settle(message.id, State.INJECTED))
            now = time.monotonic()
            self._injected.append((now - float(message.body), now))

    async def send(self, to: str) -> int:
        """Send the time to `to`; return the number of receivers."""
        message = OutgoingMessage(to, str(time.monotonic()))
        return len(await patiently(lambda: self.client.send(message)))


async def patiently(job: Callable[[], Awaitable[T]]) -> T:
    """Run `job`, retrying while the ledger is busy, as sessions do."""
    while True:
        try:
            return await job()
        except LedgerAway as error:
            print(error, file=sys.stderr, flush=True)
            await asyncio.sleep(0.1)


class Heard:
    """Counts incoming announcements."""

    def __init__(self) -> None:
        self.count = 0
        hear = Receiver._hear

        def counted(*arguments: Any) -> None:
            self.count += 1
            hear(*arguments)

        Receiver._hear = counted  # type: ignore[method-assign]


class Worker:
    def __init__(self, home: Home, first: int, end: int, total: int) -> None:
        self._injected: list[tuple[float, float]] = []
        self._everybody = [f"agent-{number}" for number in range(total)]
        self._home = home
        self._heard = Heard()
        self._agents = [Agent(name, self._injected) for name in self._everybody[first:end]]
        self._random = random.Random(first)

    async def connect(self, tasks: asyncio.TaskGroup) -> object:
        self._running = [tasks.create_task(agent.run(self._home)) for agent in self._agents]
        for agent in self._agents:
            await agent.connected.wait()
        return [agent.connected_at for agent in self._agents]

    async def see(self) -> object:
        seen = []
        for agent in self._agents:
            # The public roster also finds this home's agents by their locks.
            tracker = agent.client._listener.tracker

            def count(ledger: Ledger, tracker: PresenceTracker = tracker) -> int:
                return tracker.attendance(ledger).count()

            while await tracker.ledger.run(count) < len(self._everybody):  # noqa: ASYNC110  there is no event
                await asyncio.sleep(0.05)
            seen.append(time.monotonic())
        return seen

    async def heard(self) -> object:
        return self._heard.count

    async def chat(self, count: str, rate: str) -> object:
        begun = time.monotonic()

        async def speak(agent: Agent) -> int:
            for number in range(int(count)):
                at = begun + (number + self._random.random()) / float(rate)
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                await agent.send(self._other(agent.name))
            return int(count)

        sent = await asyncio.gather(*(speak(agent) for agent in self._agents))
        return begun, sum(sent)

    async def broadcast(self) -> object:
        begun = time.monotonic()
        return begun, await self._agents[0].send("*")

    async def injected(self) -> object:
        return len(self._injected)

    async def take(self) -> object:
        taken = self._injected.copy()
        self._injected.clear()
        return taken

    async def end(self) -> None:
        for task in self._running:
            task.cancel()

    def _other(self, name: str) -> str:
        while (other := self._random.choice(self._everybody)) == name:
            pass
        return other


async def serve(worker: Worker) -> None:
    """Answer commands until there are no more."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with asyncio.TaskGroup() as tasks:
        commands: dict[str, Callable[..., Awaitable[object]]] = {
            "connect": lambda: worker.connect(tasks),
            "see": worker.see,
            "heard": worker.heard,
            "chat": worker.chat,
            "broadcast": worker.broadcast,
            "injected": worker.injected,
            "take": worker.take,
        }
        print(json.dumps("ready"), flush=True)
        async for line in orders:
            command, *arguments = line.decode().split()
            print(json.dumps(await commands[command](*arguments)), flush=True)
        await worker.end()


def main(arguments: list[str]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    first, end, total = map(int, arguments)
    asyncio.run(serve_fleet(first, end, total))


async def serve_fleet(first: int, end: int, total: int) -> None:
    await serve(Worker(Home.from_env(), first, end, total))


if __name__ == "__main__":
    main(sys.argv[1:])
