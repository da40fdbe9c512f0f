"""A session in miniature, and a runner over a registry, for the tests of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.eventbus import answers, handles
from relay.hooks.commands import HandlerPrinted, HandlerProblem, ListMembers, Member, SendMessage
from relay.hooks.context import Context
from relay.hooks.events import HandlerEvent
from relay.hooks.result import HookResult
from relay.hooks.runner import DirectiveOutcome, Runner
from relay.injection.events import Inject
from relay.message import Message
from relay.testing import HandlerSession, Surroundings, directive
from support import PATIENCE

__all__ = ["Rig", "Services", "directive", "texts"]


def texts(results: Iterable[HookResult]) -> list[str | None]:
    """Return the injected texts."""
    return [result.context_injection for result in results if result.context_injection is not None]


class Services(Surroundings):
    """Records more than users' tests need, asserts on which loop things happen, and waits for them.

    inserted: texts with their handlers. notes: what was printed, with the handler. asked_for: members.
    """

    def __init__(self) -> None:
        super().__init__([Member("Bob", True), Member("Carol", False)])
        self.inserted: list[tuple[str, str]] = []
        self.notes: list[tuple[str, str]] = []
        self.asked_for: list[str | None] = []
        self.changed = asyncio.Event()

    @property
    def messages(self) -> list[tuple[str, str]]:
        return [(each.to, each.body) for each in self.sent]

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        assert asyncio.get_running_loop() is self.bus.loop
        super().inject(event)
        self.inserted.append((event.injection.text, event.injection.source))
        self.changed.set()

    @answers(SendMessage)
    async def send(self, question: SendMessage, earlier: Sequence[Any]) -> tuple[Message, ...]:
        assert asyncio.get_running_loop() is self.bus.loop
        sent = await super().send(question, earlier)
        self.changed.set()
        if question.wait is None:
            return sent
        return tuple(replace(each, detail=f"{question.wait:g}") for each in sent)

    @answers(ListMembers)
    async def list(self, question: ListMembers, earlier: Sequence[Any]) -> tuple[Member, ...]:
        self.asked_for.append(question.name)
        return await super().list(question, earlier)

    @handles(HandlerProblem)
    def report(self, event: HandlerProblem) -> None:
        assert asyncio.get_running_loop() is self.bus.loop
        super().report(event)
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


class Rig(HandlerSession):
    """A registry with the built-in handlers, and everything needed to run what is registered in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, env={"LANG": "C"}, task="tidy up")

    def surroundings(self) -> Services:
        return Services()

    def say(self, text: str, *, timeout: float = PATIENCE) -> tuple[DirectiveOutcome, Services]:
        """Dispatch `@namespace:target body`; return the outcome and the services."""
        outcomes: list[DirectiveOutcome] = []

        async def scene(runner: Runner, ctx: Context, _: Surroundings) -> None:
            outcomes.append(await runner.dispatch(directive(text), ctx))

        services = self.run(scene, timeout=timeout)
        return outcomes[0], services

    def fire(self, event: HandlerEvent, *, timeout: float = PATIENCE) -> tuple[list[HookResult], Services]:
        """Fire one event; return the results and the services."""
        results: list[HookResult] = []

        async def scene(runner: Runner, ctx: Context, _: Surroundings) -> None:
            results.extend(await runner.fire(event, ctx))

        services = self.run(scene, timeout=timeout)
        return results, services
