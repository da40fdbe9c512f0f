"""Gives texts to the agent, one at a time, in queue order, by the first way that is open.

                ┌→ Contribute ─→ a reply to the agent's own hook ─┐
                ├→ the answer to a tool that it waits with ───────┤
    Inject ─→ queue ─→ gate ─┬→ its door ─────────────────────────┼→ InjectionEnded
                             └→ its terminal, typed ──────────────┘

Consecutive texts from hooks are given as one, each with its own outcome, except to a program that takes one
line at a time.  With an empty queue nothing runs.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from relay.agents.door import Door
from relay.agents.hook_reply import ReplyOutcome, Settle
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.dataclass import replace
from relay.eventbus import Event, EventBus, answers, handles
from relay.injection.door_delivery import DoorDelivery
from relay.injection.events import (
    Contribute,
    Contribution,
    Inject,
    Occupied,
    Recognition,
    Recognize,
    TryAgain,
    Withdraw,
)
from relay.injection.gate import TypingGate
from relay.injection.injection import Injection, Outcome, Proof, Result, Role, Route
from relay.injection.news import News
from relay.injection.prompt import PromptComposer
from relay.injection.queue import InjectionQueue
from relay.injection.reply_delivery import TYPED, ReplyDelivery
from relay.injection.typed_delivery import TypedDelivery
from relay.lifecycle import Describe, SessionEnding, SessionSettling
from relay.messaging.events import InHand
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import HooksAlive
from relay.state.readiness import Verdict, working
from relay.state.reasons import BUSY
from relay.state.view import AgentView
from relay.storage.progress import Progress
from relay.terminal.events import KeysTyped, OutputRead
from relay.text import listed

ROOM = 72 << 10
"""Bytes of the answer to a tool: the longest message, with its marks."""

LOOK_EVERY = 1.0
"""Seconds between two looks of a tool that waits, in case that what was refused is no longer."""


class Injector:
    """Gives injections to the agent behind `terminal`.

    directive: matches a line that begins a directive of this agent.
    progress:  keeps the text that is being given.
    door:      the agent's own.
    idle:      seconds of quiet after which a ready agent gets texts of low priority.
    """

    def __init__(
        self,
        bus: EventBus,
        terminal: AgentTerminal,
        view: AgentView,
        *,
        directive: re.Pattern[str],
        progress: Progress,
        door: Door,
        idle: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._view = view
        self._queue = queue = InjectionQueue(bus, clock, door.held)
        self._replies = replies = ReplyDelivery(queue, view, directive)
        self._gate = gate = TypingGate(view, queue, replies, idle=idle, clock=clock)
        self._composer = composer = PromptComposer(bus, queue, view, directive)
        self._news = news = News(clock)
        self._door = DoorDelivery(bus, door, view, queue, gate, composer, news, progress, clock)
        self._typed = TypedDelivery(bus, terminal, view, queue, gate, composer, news, progress, clock)
        self._given: tuple[Injection, ...] = ()  # being given by the door, or typed, as one text
        self._running: asyncio.Task[Any] | None = None
        self._receivers = 0  # calls of a tool of the agent's that wait for messages
        bus.add(self._door, restored=True)
        bus.add(self._typed, restored=True)

    @answers(InHand)
    async def in_hand(self, _: InHand, __: object) -> frozenset[str]:
        """Return the ids of what an earlier session was giving: this session finds out the outcome."""
        return self._typed.ids | self._door.ids

    @handles(Inject)
    def submit(self, event: Inject) -> None:
        """Queue an injection, or reject it at once if it can never be given."""
        if self._queue.submit(event.injection):
            self._news.notice()

    @handles(Withdraw)
    def withdraw(self, event: Withdraw) -> None:
        if self._queue.withdraw(event.id):
            self._news.notice()

    @handles(TryAgain)
    def try_again(self, _: TryAgain) -> None:
        self._queue.retry()
        self._news.notice()

    @handles(KeysTyped, OutputRead)
    def changed(self, _: Event) -> None:
        if self._queue or self._typed.active:
            self._news.notice()

    @handles(HooksAlive)
    def hooks(self, event: HooksAlive) -> None:
        self._gate.hooked = event.alive

    @handles(SessionEnding)
    def close(self, event: SessionEnding) -> None:
        """End all injections: waiting ones were not given, those in a hook's reply are uncertain."""
        self._queue.close()
        why = "the session ended before the agent was seen to get it"
        for injection in self._replies.injections:
            self.delivered(injection, Outcome(Result.UNCERTAIN, why))
        self._typed.end_unfinished()
        self._news.notice()

    @answers(SessionSettling)
    async def finish(self, _: SessionSettling, __: object) -> None:
        """Stop giving: the outcome must be known before the mailbox closes."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        return {"waiting": self.pending, "obstacle": self.obstacle, "door": self._door.description()}

    @answers(Occupied)
    async def occupied(self, _: Occupied, __: object) -> str | None:
        return "texts are waiting for it" if self.pending else self._typed.occupied()

    @property
    def pending(self) -> int:
        """The number of injections that wait or are being given."""
        return len(self._queue) + len(self._being_given) + len(self._replies)

    @property
    def _being_given(self) -> tuple[Injection, ...]:
        return self._given or self._door.active or self._typed.active

    @property
    def obstacle(self) -> str | None:
        """The reason why the next injection is not given now; None if none waits or nothing prevents it."""
        if not self._queue:
            return None
        if self._composer.asking:
            return "its prompt rules are running"
        if self._being_given:
            return BUSY
        way = self._way()
        return way.reason if isinstance(way, Verdict) else None

    # Through the agent's own hooks.

    @answers(Contribute)
    async def contribute(self, question: Contribute, earlier: Sequence[Contribution]) -> Contribution | None:
        room = question.room - sum(len(each.text.encode()) for each in earlier)
        taken = await self.take(room, messages=question.messages, extends=question.extends)
        if not taken:
            return None
        role: Role = "user" if question.extends else "system"
        settle = self._settle(taken, "the agent's hook delivered it", role=role, route="native")
        senders = dict.fromkeys(each.source for each in taken if each.kind == "message")
        notice = f"relay: message from {listed(list(senders))}" if senders else ""
        return Contribution(self.render(taken), settle, notice)

    def _settle(self, taken: list[Injection], how: str, *, role: Role, route: Route) -> Settle:
        """Return what ends the injections `taken`, once it is known whether the reply was passed on."""

        def settle(reply: ReplyOutcome) -> None:
            if reply is ReplyOutcome.UNSENT:
                self.put_back(taken)
                return
            outcome = Outcome(Result.INJECTED, role=role, route=route)
            if reply is ReplyOutcome.UNKNOWN:
                why = f"{how}, but nothing shows that the agent read it"
                outcome = Outcome(Result.UNCERTAIN, why, role=role, route=route)
            for injection in taken:
                self.delivered(injection, outcome)

        return settle

    async def take(
        self, room: int, *, messages: bool = True, extends: bool = False, tool: bool = False
    ) -> list[Injection]:
        """Return the injections that fit in `room` bytes of a reply, none during another delivery."""
        async with self._queue.beginning:
            arrived = self._door.arrived or self._typed.arrived
            if self._queue.closed or (self._being_given and not arrived):
                return []
            return await self._replies.take(room, extends=extends, messages=messages, tool=tool)

    def put_back(self, injections: Sequence[Injection]) -> None:
        """Requeue injections that `take` returned and that were certainly not passed on."""
        taken = [each for each in self._replies.injections if each in injections]
        self._queue.defer([each for each in taken if self._replies.end(each)])
        self._news.notice()

    def render(self, injections: Sequence[Injection]) -> str:
        """Return the text of the reply for `injections`, which `take` returned."""
        return self._replies.render(injections)

    def delivered(self, injection: Injection, outcome: Outcome) -> None:
        if self._replies.end(injection):  # else it was reported when the session ended
            proof: Proof = "printed" if outcome.result is Result.INJECTED else ""
            self._queue.end(injection, replace(outcome, route=outcome.route or "native", verified=proof))
            self._news.notice()

    # By a tool with which the agent waits for messages.

    @operation("receive")
    async def receive(self, request: Request) -> Answer:
        """Answer with what waits for the agent, or the first to come within `seconds`; else with nothing.

        `received` says on the same connection whether the agent has read it. A call whose client goes takes
        nothing; a text that must be typed ends the wait.
        """
        connection, seconds = request.connection, request.fields.get("seconds")
        deadline = self._bus.loop.time() + (seconds if isinstance(seconds, int | float) else 0)
        ended = self._bus.loop.create_task(connection.spoken())
        self._receivers += 1  # no other way is taken meanwhile
        try:
            while not (ended.done() or self._queue.closed):
                if taken := await self.take(ROOM, tool=True):
                    connection.settle = self._settle(taken, "a tool passed it on", role="", route="mcp")
                    return {"text": self.render(taken)}
                left = deadline - self._bus.loop.time()
                if any(each.kind in TYPED for each in self._queue):
                    return {"text": "relay has something for you that comes once you have ended your turn."}
                if left <= 0:
                    break
                come = self._bus.loop.create_task(self._news.wait(min(left, LOOK_EVERY)))
                await asyncio.wait({come, ended}, return_when=asyncio.FIRST_COMPLETED)
                come.cancel()
        finally:
            self._receivers -= 1
            self._news.notice()
            ended.cancel()
            await asyncio.wait({ended})  # it no longer looks at the connection
        return {"text": ""}

    @operation("received")
    async def received(self, request: Request) -> Answer:
        read = request.fields.get("read") is True
        request.connection.settled(ReplyOutcome.PRINTED if read else ReplyOutcome.UNSENT)
        return {"ok": True}

    @answers(Recognize)
    async def recognize(self, question: Recognize, _: object) -> Recognition:
        """Say whether relay gave the reported prompt, which proves what has arrived."""
        prompt = question.prompt
        if self._door.prompted(prompt):
            return Recognition(repeated=True)
        self._typed.prompted(prompt)
        return Recognition(ours=self._view.gave(prompt), sender=self._door.sender(prompt))

    # By its door, or typed.

    async def run(self) -> None:
        """Give injections until the session ends; one cut off by the end is uncertain."""
        self._running = asyncio.current_task()
        await self._door.finish()
        await self._typed.finish()
        while not self._queue.closed:
            if not self._queue:
                await self._news.wait()
            elif isinstance(way := self._way(), Verdict):
                await self._news.wait(self._door.wake(way.wait))
            elif first := self._gate.next():
                await self._inject(first, way)

    def _way(self) -> DoorDelivery | TypedDelivery | Verdict:
        """Return the way by which the next text can be given now, or what prevents that."""
        if self._receivers:
            return working("the agent waits for it with a tool")
        if blocked := self._gate.obstacle(typing=False):
            return blocked
        first = self._gate.next()
        if first is not None and self._door.open_for(first):
            blocked = self._door.obstacle()
            if blocked is None or not self._door.doubtful:
                return blocked or self._door
        return self._typed.obstacle() or self._typed

    async def _inject(self, first: Injection, way: DoorDelivery | TypedDelivery) -> None:
        prompt = await self._composer.compose(first)
        if prompt is None:
            return
        self._given = (first,)
        try:
            self._given = begun = await self._begin(prompt.injections)
            if begun:
                await way.give(replace(prompt, injections=begun))
        finally:
            self._given = ()

    async def _begin(self, injections: Sequence[Injection]) -> tuple[Injection, ...]:
        """Ask MayBegin for `injections` in order; return those to give now."""
        begun: list[Injection] = []
        async with self._queue.beginning:
            for each in injections:
                if await self._queue.begin(each, begins=not begun):
                    begun.append(each)
                elif self._queue.refused(each):
                    break
        return tuple(begun)
