"""A session in miniature, and a runner over a registry, for the tests of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

from relay import builtin
from relay.directives.directive import Directive
from relay.errors import UnknownRecipient
from relay.eventbus import EventBus, answers, handles
from relay.hooks.commands import HandlerPrinted, HandlerProblem, ListMembers, Member, Problem, SendMessage
from relay.hooks.context import Context, History, MemoryService
from relay.hooks.events import HandlerEvent
from relay.hooks.registry import Registry
from relay.hooks.result import HookResult
from relay.hooks.runner import DirectiveOutcome, Runner
from relay.injection.events import Inject
from relay.memory.config import MemoryConfig
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
from relay.message import Message, State
from relay.place import Place
from support import PATIENCE


def directive(text: str) -> Directive:
    """Return the directive for `@namespace:target body`."""
    head, _, body = text.partition(" ")
    namespace, _, target = head.removeprefix("@").partition(":")
    return Directive(namespace, target, body, 0.0, Place("terminal", 0))


def texts(results: Iterable[HookResult]) -> list[str | None]:
    """Return the injected texts."""
    return [result.context_injection for result in results if result.context_injection is not None]


class Services:
    """A handler's session in miniature: Bob is online, Carol is offline, other names are unknown."""

    def __init__(self) -> None:
        self.bus = EventBus()
        self.bus.add(self)
        self.members = [Member("Bob", True), Member("Carol", False)]
        self.sent: list[tuple[str, str]] = []
        self.options: list[dict[str, object]] = []
        self.injected: list[tuple[str, str]] = []
        self.asked_for: list[str | None] = []
        self.problems: list[Problem] = []
        self.notes: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        assert asyncio.get_running_loop() is self.bus.loop
        self.injected.append((event.injection.text, event.injection.source))
        self.changed.set()

    @answers(SendMessage)
    async def send(self, question: SendMessage, _: object) -> tuple[Message, ...]:
        assert asyncio.get_running_loop() is self.bus.loop
        message = question.message
        if message.to == "*":
            receivers = [member.name for member in self.members]
        elif message.to.startswith("#") or message.to in [member.name for member in self.members]:
            receivers = [message.to]
        else:
            raise UnknownRecipient(f"nobody in the team is called {message.to!r}.", "Bob")
        self.sent.append((message.to, message.body))
        options = {name: getattr(message, name) for name in ("thread", "reply_to", "priority", "ttl")}
        self.options.append({name: value for name, value in options.items() if value is not None})
        self.changed.set()
        sent = tuple(Message(f"id-{name}", "Alice", name, message.body, 0.0) for name in receivers)
        if question.wait is None:
            return sent
        return tuple(replace(each, state=State.INJECTED, detail=f"{question.wait:g}") for each in sent)

    @answers(ListMembers)
    async def roster(self, question: ListMembers, _: object) -> tuple[Member, ...]:
        self.asked_for.append(question.name)
        return tuple(each for each in self.members if question.name in (None, each.name))

    @handles(HandlerProblem)
    def report(self, event: HandlerProblem) -> None:
        assert asyncio.get_running_loop() is self.bus.loop
        self.problems.append(event.problem)
        self.changed.set()

    @handles(HandlerPrinted)
    def note(self, event: HandlerPrinted) -> None:
        assert asyncio.get_running_loop() is self.bus.loop
        self.notes.append((event.handler, event.text))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, checking whenever something is injected, sent or reported."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Rig:
    """A registry with the built-in handlers, and everything needed to run what is registered in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = Registry()
        builtin.install(self.registry)
        self.memory = MemoryConfig()
        self.history = History()
        self.store = MemoryStore(EmbeddedBackend(folder / "memory.db"), "team", "Alice")

    def context(self, services: Services) -> Context:
        return Context(
            agent_id="alice-1",
            agent_name="Alice",
            session_id="session-1",
            working_dir=self.folder,
            env={"LANG": "C"},
            task="tidy up",
            bus=services.bus,
            memory=MemoryService(self.store, self.memory),
            history=self.history,
        )

    def say(self, text: str, *, timeout: float = PATIENCE) -> tuple[DirectiveOutcome, Services]:
        """Dispatch `@namespace:target body`; return the outcome and the services."""
        outcomes: list[DirectiveOutcome] = []

        async def scene(runner: Runner, ctx: Context, services: Services) -> None:
            outcomes.append(await runner.dispatch(directive(text), ctx))

        services = self.run(scene, timeout=timeout)
        return outcomes[0], services

    def fire(self, event: HandlerEvent, *, timeout: float = PATIENCE) -> tuple[list[HookResult], Services]:
        """Fire one event; return the results and the services."""
        results: list[HookResult] = []

        async def scene(runner: Runner, ctx: Context, services: Services) -> None:
            results.extend(await runner.fire(event, ctx))

        services = self.run(scene, timeout=timeout)
        return results, services

    def run(
        self, scene: Callable[[Runner, Context, Services], Awaitable[object]], *, timeout: float = PATIENCE
    ) -> Services:
        """Run `scene` on a new loop; return the services, which record what happened."""

        async def play() -> Services:
            services = Services()
            runner = Runner(self.registry, services.bus, timeout=timeout)
            try:
                await scene(runner, self.context(services), services)
            finally:
                runner.close()
            return services

        return asyncio.run(play())
