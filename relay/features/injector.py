"""Gives texts to the agent, one at a time, in queue order, and only when it is safe.

                ┌→ held? draft? ─→ judge ─→ typist ────────────┐
    Inject ─→ queue    ▲             ▲                         ├→ InjectionEnded
                │  KeysTyped     OutputRead, the kernel        │
                └→ Contribute ─→ a reply to the agent's own hook

Consecutive texts from hooks are given as one, each with its own outcome, in a reply or when they are pasted.
A program that takes one line at a time gets them one by one.

With an empty queue nothing runs. While a text waits, timers cover known quiet periods; otherwise the injector
polls with backoff, because nothing announces that a program begins to read its terminal.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from relay.agents.hook_reply import ReplyOutcome
from relay.dataclass import replace
from relay.errors import MessageRefused
from relay.eventbus import EventBus, answers, handles
from relay.injection import layout
from relay.injection.events import (
    Contribute,
    Contribution,
    Inject,
    InjectionEnded,
    Occupied,
    Recognize,
    TryAgain,
    Withdraw,
)
from relay.injection.gate import TypingGate
from relay.injection.injection import Injection, Outcome, Proof, Result, Role
from relay.injection.layout import Style, style_of
from relay.injection.prompt import Prompt, PromptComposer
from relay.injection.queue import InjectionQueue
from relay.injection.reply_delivery import ReplyDelivery
from relay.injection.typist import Typist
from relay.injection.unfinished import OUTCOME_TIMEOUT, UNKNOWN, Step, Unfinished
from relay.injection.user_typing import UserTyping
from relay.lifecycle import Describe, SessionBegan, SessionEnding, SessionSettling
from relay.messaging.events import InHand
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import HooksAlive, PromptSubmitted
from relay.state.readiness import TerminalSnapshot
from relay.state.reasons import BUSY
from relay.state.view import AgentView
from relay.storage.progress import Progress
from relay.terminal.events import KeysHeldBack, KeysTyped, KeysWritten, OutputRead
from relay.text import listed

FINISH_CHECK_EVERY = 0.02
"""Seconds between two looks for the outcome of a text that an earlier session was typing."""

READY_CHECK_MIN, READY_CHECK_MAX = 0.001, 0.25
"""Bounds, in seconds, of the poll interval for a program that is not ready: a tenth of the wait so far."""


class _News:
    """The last event that may allow typing, and a way to wait for the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._come = asyncio.Event()

    @property
    def age(self) -> float:
        """Seconds since the last event."""
        return self._clock() - self._at

    def notice(self) -> None:
        self._at = self._clock()
        self._come.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the next event, at most `seconds`."""
        self._come.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._come.wait()


class Injector:
    """Gives injections to the agent behind `terminal`.

    directive: matches a line that begins a directive of this agent.
    progress:  keeps the text that is being typed.
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
        idle: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._view = view
        self._user = UserTyping(terminal, view, clock)
        self._queue = queue = InjectionQueue(bus, clock)
        self._delivery = delivery = ReplyDelivery(queue, view, directive)
        self._gate = TypingGate(view, queue, delivery, self._user, idle=idle, clock=clock)
        self._composer = PromptComposer(bus, queue, view, directive)
        self._typist = Typist(terminal, view, clock)
        self._unfinished = Unfinished(terminal, view, progress)
        self._news = _News(clock)
        self._typing: tuple[Injection, ...] = ()  # typed as one text
        self._running: asyncio.Task[Any] | None = None

    @handles(SessionBegan)
    def begin(self, event: SessionBegan) -> None:
        """Restore the text that an earlier session was typing when it ended."""
        if not event.resumed:
            return
        self._unfinished.restore()
        if mark := self._unfinished.mark:
            self._view.given(layout.closing_mark(mark))
            self._typist.doubt(mark, self._unfinished.injections)

    @answers(InHand)
    async def in_hand(self, _: InHand, __: object) -> frozenset[str]:
        """Return the ids of what an earlier session was typing: this session finds out the outcome."""
        return self._unfinished.ids

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

    @handles(KeysTyped)
    def keys(self, event: KeysTyped) -> None:
        if self._user.keys(event.data):
            self._unfinished.typed(event.position)
        if self._queue:
            self._news.notice()

    @handles(KeysWritten)
    def written(self, event: KeysWritten) -> None:
        self._unfinished.written(event.data, event.position)

    @handles(KeysHeldBack)
    def held_back(self, _: KeysHeldBack) -> None:
        self._user.held()

    @handles(OutputRead)
    def output(self, event: OutputRead) -> None:
        self._unfinished.output(event.data, event.position)
        if self._typing:
            self._typist.output(event.data)
        if self._queue or self._typing:
            self._news.notice()

    @handles(HooksAlive)
    def hooks(self, event: HooksAlive) -> None:
        self._gate.hooked = event.alive

    @handles(SessionEnding)
    def close(self, event: SessionEnding) -> None:
        """End all injections: waiting ones were not typed, those in a hook's reply are uncertain."""
        self._queue.close()
        why = "the session ended before the agent's hook had delivered it"
        for injection in self._delivery.injections:
            self.delivered(injection, Outcome(Result.UNCERTAIN, why))
        self._end_unfinished(UNKNOWN)
        self._news.notice()

    @answers(SessionSettling)
    async def finish(self, _: SessionSettling, __: object) -> None:
        """Stop typing: the outcome must be known before the mailbox closes."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"waiting": self.pending, "obstacle": self.obstacle}

    @answers(Occupied)
    async def occupied(self, _: Occupied, __: object) -> str | None:
        if self.pending:
            return "texts are waiting for it"
        blocked = self._user.obstacle()
        return None if blocked is None else blocked.reason

    @property
    def pending(self) -> int:
        """The number of injections that wait or are being given."""
        return len(self._queue) + len(self._typing) + len(self._delivery)

    @property
    def obstacle(self) -> str | None:
        """The reason why the next injection is not typed now; None if none waits or nothing prevents it."""
        if not self._queue:
            return None
        if self._composer.asking:
            return "its prompt rules are running"
        if self._typing:
            return BUSY
        if blocked := self._gate.obstacle(typing=False):
            return blocked.reason
        sight = self._view.look()
        return None if self._gate.allows(sight) else self._gate.judge(sight).reason

    # Through the agent's own hooks.

    @answers(Contribute)
    async def contribute(self, question: Contribute, earlier: Sequence[Contribution]) -> Contribution | None:
        room = question.room - sum(len(each.text.encode()) for each in earlier)
        taken = await self.take(room, messages=question.messages, extends=question.extends)
        if not taken:
            return None
        role: Role = "user" if question.extends else "system"

        def settle(reply: ReplyOutcome) -> None:
            if reply is ReplyOutcome.UNSENT:
                self.put_back(taken)
                return
            outcome = Outcome(Result.INJECTED, role=role)
            if reply is ReplyOutcome.UNKNOWN:
                why = "the agent's hook delivered it, but nothing shows that the agent read it"
                outcome = Outcome(Result.UNCERTAIN, why, role=role)
            for injection in taken:
                self.delivered(injection, outcome)

        senders = dict.fromkeys(each.source for each in taken if each.kind == "message")
        notice = f"relay: message from {listed(list(senders))}" if senders else ""
        return Contribution(self.render(taken), settle, notice)

    async def take(self, room: int, *, messages: bool = True, extends: bool = False) -> list[Injection]:
        """Return the injections that fit in `room` bytes of a reply (ReplyDelivery.take); [] while typing."""
        async with self._queue.beginning:
            typing = self._typing and not self._typist.arrived
            if self._queue.closed or typing:
                return []
            return await self._delivery.take(room, extends=extends, messages=messages)

    def put_back(self, injections: Sequence[Injection]) -> None:
        """Requeue injections that `take` returned and that were certainly not passed on."""
        taken = [each for each in self._delivery.injections if each in injections]
        self._queue.defer([each for each in taken if self._delivery.end(each)])
        self._news.notice()

    def render(self, injections: Sequence[Injection]) -> str:
        """Return the text of the reply for `injections`, which `take` returned."""
        return self._delivery.render(injections)

    def delivered(self, injection: Injection, outcome: Outcome) -> None:
        """Publish the outcome of `injection`, which `take` returned."""
        if self._delivery.end(injection):  # else it was reported when the session ended
            proof: Proof = "printed" if outcome.result is Result.INJECTED else ""
            self._queue.end(injection, replace(outcome, route="native", verified=proof))
            self._news.notice()

    @answers(Recognize)
    async def recognize(self, question: Recognize, _: object) -> bool:
        """Answer True if relay typed the reported prompt; the prompt proves which texts arrived."""
        arrived = Outcome(Result.INJECTED, "", "typed", "user", "hook")
        if self._unfinished.mark and layout.closing_mark(self._unfinished.mark) in question.prompt:
            self._end_unfinished(arrived)
        for injections in self._typist.prompted(question.prompt):
            for injection in injections:
                self._queue.end(injection, arrived)
        return self._view.gave(question.prompt)

    # By typing.

    async def run(self) -> None:
        """Type injections until the session ends; an injection cut off by the end is uncertain."""
        self._running = asyncio.current_task()
        await self._finish()
        while not self._queue.closed:
            if not self._queue:
                await self._news.wait()
            elif await self._ready() and (injection := self._gate.next()):
                await self._inject(injection)

    async def _finish(self) -> None:
        """Settle the text that an earlier session was typing when it ended."""
        self._typing = self._unfinished.injections
        try:
            self._end_unfinished(await self._found())
        finally:
            self._typing = ()

    async def _found(self) -> Outcome:
        """Return the outcome of that text; if it is alone in the input, press Enter once."""
        left, loop = self._unfinished, self._bus.loop
        deadline = loop.time() + OUTCOME_TIMEOUT
        while left.mark and loop.time() < deadline:
            step = left.decide()
            if isinstance(step, Outcome):
                return step
            if step is Step.SUBMIT:
                try:
                    if await self._user.hold() and left.decide() is Step.SUBMIT:
                        self._bus.publish(PromptSubmitted(by_user=False))
                        return await left.submit(self._typist)
                finally:
                    self._user.release()
            await self._news.wait(FINISH_CHECK_EVERY)
        return UNKNOWN

    def _end_unfinished(self, outcome: Outcome) -> None:
        left, again = self._unfinished, self._unfinished.known
        mark, injections = left.mark, left.injections
        if outcome.result is Result.INJECTED:
            self._typist.believe(mark)
        left.close(outcome)
        for injection in injections:
            self._bus.publish(InjectionEnded(injection, outcome, again))

    async def _inject(self, first: Injection) -> None:
        prompt = await self._composer.compose(first)
        if prompt is None:
            return
        self._typing = (first,)
        try:
            self._typing = begun = await self._begin(prompt.injections)
            if begun:
                await self._give(replace(prompt, injections=begun))
        finally:
            self._typing = ()

    async def _begin(self, injections: Sequence[Injection]) -> tuple[Injection, ...]:
        """Ask MayBegin for `injections` in order; return those to type now."""
        begun: list[Injection] = []
        async with self._queue.beginning:
            for each in injections:
                if await self._queue.begin(each, begins=not begun):
                    begun.append(each)
                elif self._queue.refused(each):
                    break
        return tuple(begun)

    async def _give(self, prompt: Prompt) -> None:
        mark, parts = layout.mark_of(prompt.injections[0]), list[str]()
        outcome: Outcome | None = None
        left = False
        given = (*prompt.contexts, *prompt.injections)
        try:
            if sight := await self._reserve():
                if len(prompt.injections) > 1 and style_of(sight) is not Style.PASTE:
                    self._queue.defer(prompt.injections[1:])
                    prompt = replace(prompt, injections=prompt.injections[:1])
                    self._typing = prompt.injections
                    given = (*prompt.contexts, *prompt.injections)
                parts = self._composer.lay_out(prompt, style_of(sight), mark)
                start, profile = parts[0][0], self._view.profile
                if start in profile.submit.avoid:
                    raise MessageRefused(
                        f"every text begins with {start!r}, which the profile {profile.name!r} lists under "
                        "avoid in [submit]. Remove it there."
                    )
                outcome = UNKNOWN
                if len(parts) == 1:
                    self._unfinished.begin(parts[0], style_of(sight), mark, given)
                self._bus.publish(PromptSubmitted(by_user=False))
                outcome = await self._type(parts, sight, mark)
        except MessageRefused as error:
            outcome = Outcome(Result.REJECTED, str(error))
        except asyncio.CancelledError:
            left = outcome is not None and len(parts) == 1 and not self._queue.closed
            raise
        finally:
            self._user.release()
            self._typing = ()
            if outcome is None:
                self._queue.defer(prompt.injections)
            elif not left:  # otherwise the next session settles it
                if len(parts) == 1:
                    self._unfinished.end(outcome)
                    if outcome.result is Result.UNCERTAIN:
                        self._typist.doubt(mark, given)
                for injection in given:
                    self._queue.end(injection, outcome)

    async def _reserve(self) -> TerminalSnapshot | None:
        """Hold back the user's keys; return the terminal's snapshot, or None if nothing may be typed.

        The state may have changed since the last look: the answers to MayBegin may take long.
        """
        if not await self._user.hold():
            return None
        sight = self._view.look()
        return sight if not self._gate.obstacle(typing=True) and self._gate.allows(sight) else None

    async def _type(self, parts: list[str], sight: TerminalSnapshot, mark: str) -> Outcome:
        outcomes: list[Outcome] = []
        for number, part in enumerate(parts):
            if number:
                # The program reads each part as a line, and may answer one with a question.
                self._user.release()
                again = None
                while again is None and await self._ready():
                    if (again := await self._reserve()) is None:
                        self._user.release()
                if again is None:
                    why = f"the session ended after {number} of {len(parts)} lines"
                    return Outcome(Result.UNCERTAIN, why, "typed", "user")
                sight = again
            self._view.given(layout.closing_mark(mark))
            self._view.typing(part, sight.nap)
            outcomes.append(await self._typist.type(part, style_of(sight), mark))
            self._view.typed()
            self._news.notice()
        return next((each for each in outcomes if each.result is Result.UNCERTAIN), outcomes[-1])

    async def _ready(self) -> bool:
        """Return True once typing is allowed; False if the queue is closed, or nothing is left to type."""
        while not self._queue.closed and (self._queue or self._typing):
            if blocked := self._gate.obstacle(typing=bool(self._typing)):
                await self._news.wait(blocked.wait)
                continue
            sight = self._view.look()
            if self._gate.allows(sight):
                return True
            # A program may begin to read its terminal before a known quiet period is over.
            again = min(max(self._news.age / 10, READY_CHECK_MIN), READY_CHECK_MAX)
            wait = self._gate.judge(sight).wait
            await self._news.wait(again if wait is None else min(again, wait))
        return False
