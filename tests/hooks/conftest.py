"""A session's services in miniature, and a runner over a registry: what the tests of handlers need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from relay import namespaces
from relay.bus.message import Message
from relay.errors import UnknownRecipient
from relay.hooks.config import MemoryConfig
from relay.hooks.context import Context, MemoryService
from relay.hooks.problem import Problem
from relay.hooks.registry import Registry
from relay.hooks.runner import Runner
from relay.hooks.services import Member
from relay.memory.store import MemoryStore


class Services:
    """Fulfils relay.hooks.services.Services: Bob is online, Carol is not, nobody else is known."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.members = [Member("Bob", True), Member("Carol", False)]
        self.sent: list[tuple[str, str]] = []
        self.injected: list[tuple[str, str]] = []
        self.problems: list[Problem] = []
        self.notes: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    def inject(self, text: str, source: str) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.injected.append((text, source))
        self.changed.set()

    async def send(self, to: str, body: str) -> list[Message]:
        assert asyncio.get_running_loop() is self.loop
        if to == "*":
            receivers = [member.name for member in self.members]
        elif to.startswith("#") or to in [member.name for member in self.members]:
            receivers = [to]
        else:
            raise UnknownRecipient(f"nobody in the team is called {to!r}.", "Bob")
        self.sent.append((to, body))
        self.changed.set()
        return [Message(f"id-{name}", "Alice", name, body, 0.0) for name in receivers]

    def roster(self) -> list[Member]:
        return self.members

    def report(self, problem: Problem) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.problems.append(problem)
        self.changed.set()

    def note(self, handler: str, text: str) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.notes.append((handler, text))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, looking whenever something has been injected, sent or reported."""
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class House:
    """A registry with the built-in handlers, and everything to run what is registered in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = Registry()
        namespaces.install(self.registry)
        self.memory = MemoryConfig()
        self.store = MemoryStore(folder / "memory.db", "team", "Alice")

    def context(self, services: Services) -> Context:
        return Context(
            agent_id="alice-1",
            agent_name="Alice",
            session_id="session-1",
            working_dir=self.folder,
            env={"LANG": "C"},
            task="tidy up",
            services=services,
            memory=MemoryService(self.store, self.memory),
        )

    def run(
        self, scene: Callable[[Runner, Context, Services], Awaitable[object]], *, timeout: float = 20.0
    ) -> Services:
        """Play `scene` on a loop of its own; return the services, which remember what happened."""

        async def play() -> Services:
            services = Services(asyncio.get_running_loop())
            runner = Runner(self.registry, report=services.report, note=services.note, timeout=timeout)
            try:
                await scene(runner, self.context(services), services)
            finally:
                runner.close()
            return services

        return asyncio.run(play())


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
