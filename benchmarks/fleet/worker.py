"""A process of the fleet: many agents, each a real courier that injects what it gets at once.

python -m benchmarks.fleet.worker FIRST END TOTAL

The agents `agent-FIRST` to `agent-(END-1)` of a fleet of TOTAL live in the home that RELAY_HOME names.  Reads
one command a line, answers each with one line of JSON; ends with its standard input.  Times are seconds of
CLOCK_MONOTONIC, which all processes of the machine share.

    connect                 be on the bus; when each agent was connected
    see                     when each agent had heard that all TOTAL are online
    heard                   how many announcements have come in so far
    chat COUNT RATE         each agent sends COUNT messages to random others, RATE a second: (begin, accepted)
    broadcast               the first agent sends one message to everybody: (begin, accepted)
    injected                how many messages were injected since the last `take`
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
from typing import Any

from relay.home import Home
from relay.messaging.client import Courier
from relay.messaging.message import Message, State
from relay.messaging.runaway import Limits

TEAM = "fleet"


class Agent:
    """One simulated agent. injected: (seconds from send to injected, when it was) of each message."""

    def __init__(self, home: Home, name: str, injected: list[tuple[float, float]]) -> None:
        self.name = name
        self.connected = asyncio.Event()
        self.connected_at = 0.0
        self.heard = 0
        self.courier = _Counting(self, home, name)
        self._injected = injected

    def inject(self, message: Message) -> None:
        self.courier.injecting(message.id)
        self.courier.settle(message.id, State.INJECTED)
        now = time.monotonic()
        self._injected.append((now - float(message.body), now))

    def status(self, text: str) -> None:
        if text.startswith("connected"):
            self.connected_at = time.monotonic()
            self.connected.set()
        else:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)


class _Counting(Courier):
    """Counts the announcements that come in."""

    def __init__(self, agent: Agent, home: Home, name: str) -> None:
        super().__init__(
            *(home, TEAM, name),
            limits=Limits(rate=0, depth=0, broadcasts=0, queue=0),
            on_message=agent.inject,
            on_outcome=lambda _: None,
            on_status=agent.status,
            on_fault=lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True),
        )
        self._agent = agent

    def _hear(self, *arguments: Any) -> None:
        self._agent.heard += 1
        super()._hear(*arguments)


class Worker:
    def __init__(self, home: Home, first: int, end: int, total: int) -> None:
        self._injected: list[tuple[float, float]] = []
        self._everybody = [f"agent-{number}" for number in range(total)]
        self._agents = [Agent(home, name, self._injected) for name in self._everybody[first:end]]
        self._random = random.Random(first)

    async def connect(self, tasks: asyncio.TaskGroup) -> object:
        self._running = [tasks.create_task(agent.courier.run()) for agent in self._agents]
        for agent in self._agents:
            await agent.connected.wait()
        return [agent.connected_at for agent in self._agents]

    async def see(self) -> object:
        seen = []
        for agent in self._agents:
            online = agent.courier._roster.online  # the public roster knows this home's agents by their locks
            for name in self._everybody:
                while not online(name):  # noqa: ASYNC110  no event is at hand
                    await asyncio.sleep(0.05)
            seen.append(time.monotonic())
        return seen

    async def heard(self) -> object:
        return sum(agent.heard for agent in self._agents)

    async def chat(self, count: str, rate: str) -> object:
        begun = time.monotonic()

        async def speak(agent: Agent) -> int:
            for number in range(int(count)):
                at = begun + (number + self._random.random()) / float(rate)
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                agent.courier.send(self._other(agent.name), str(time.monotonic()))
            return int(count)

        sent = await asyncio.gather(*(speak(agent) for agent in self._agents))
        return begun, sum(sent)

    async def broadcast(self) -> object:
        begun = time.monotonic()
        return begun, len(self._agents[0].courier.send("*", str(begun)))

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
