"""A session's services in miniature, and a runner over a registry: what the tests of handlers need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from relay import builtin
from relay.directives.directive import Directive
from relay.errors import UnknownRecipient
from relay.hooks.config import MemoryConfig
from relay.hooks.context import Context, MemoryService
from relay.hooks.events import Event
from relay.hooks.problem import Problem
from relay.hooks.registry import Registry
from relay.hooks.result import HookResult
from relay.hooks.runner import DirectiveOutcome, Runner
from relay.hooks.services import Member
from relay.memory.store import MemoryStore
from relay.messaging.message import Message, State


def directive(text: str) -> Directive:
    """The directive that `@namespace:target body` stands for."""
    head, _, body = text.partition(" ")
    namespace, _, target = head.removeprefix("@").partition(":")
    return Directive(namespace, target, body, 0.0)


def texts(results: Iterable[HookResult]) -> list[str | None]:
    """What was injected."""
    return [result.context_injection for result in results if result.context_injection is not None]


class Services:
    """Fulfils relay.hooks.services.Services: Bob is online, Carol is not, nobody else is known."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.members = [Member("Bob", True), Member("Carol", False)]
        self.sent: list[tuple[str, str]] = []
        self.options: list[dict[str, object]] = []
        self.injected: list[tuple[str, str]] = []
        self.problems: list[Problem] = []
        self.notes: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    def inject(self, text: str, source: str) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.injected.append((text, source))
        self.changed.set()

    async def send(self, to: str, body: str, **options: object) -> list[Message]:
        assert asyncio.get_running_loop() is self.loop
        if to == "*":
            receivers = [member.name for member in self.members]
        elif to.startswith("#") or to in [member.name for member in self.members]:
            receivers = [to]
        else:
            raise UnknownRecipient(f"nobody in the team is called {to!r}.", "Bob")
        self.sent.append((to, body))
        self.options.append({name: value for name, value in options.items() if value is not None})
        self.changed.set()
        return [Message(f"id-{name}", "Alice", name, body, 0.0) for name in receivers]

    async def outcomes(self, messages: Sequence[Message], seconds: float) -> list[Message]:
        assert asyncio.get_running_loop() is self.loop
        return [replace(message, state=State.INJECTED, detail=f"{seconds:g}") for message in messages]

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
        builtin.install(self.registry)
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

    def say(self, text: str, *, timeout: float = 20.0) -> tuple[DirectiveOutcome, Services]:
        """Dispatch `@namespace:target body`; the outcome, and the services after it."""
        outcomes: list[DirectiveOutcome] = []

        async def scene(runner: Runner, ctx: Context, services: Services) -> None:
            outcomes.append(await runner.dispatch(directive(text), ctx))

        services = self.run(scene, timeout=timeout)
        return outcomes[0], services

    def fire(self, event: Event, *, timeout: float = 20.0) -> tuple[list[HookResult], Services]:
        """Fire one event; the results, and the services after it."""
        results: list[HookResult] = []

        async def scene(runner: Runner, ctx: Context, services: Services) -> None:
            results.extend(await runner.fire(event, ctx))

        services = self.run(scene, timeout=timeout)
        return results, services

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
