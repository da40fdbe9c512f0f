"""The texts typed into the agent's terminal: one prompt at a time, and only when that is safe.

    held? draft? ─→ judge ─→ typist ─→ InjectionEnded
       ▲              ▲
    KeysTyped     OutputRead, the kernel

While a text waits, timers cover known quiet periods; otherwise it polls with backoff, because nothing
announces that a program begins to read its terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.dataclass import replace
from relay.errors import MessageRefused
from relay.eventbus import EventBus, handles
from relay.injection import layout
from relay.injection.events import EarlierInjectionEnded, InjectionEnded
from relay.injection.gate import TypingGate
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style, style_of
from relay.injection.news import News
from relay.injection.prompt import Prompt, PromptComposer
from relay.injection.queue import InjectionQueue
from relay.injection.typist import Typist
from relay.injection.unfinished import OUTCOME_TIMEOUT, UNKNOWN, Step, Unfinished
from relay.injection.user_typing import UserTyping
from relay.lifecycle import SessionBegan
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted
from relay.state.readiness import TerminalSnapshot, Verdict
from relay.state.view import AgentView
from relay.storage.progress import Progress
from relay.terminal.events import KeysHeldBack, KeysTyped, KeysWritten, OutputRead

FINISH_CHECK_EVERY = 0.02
"""Seconds between two looks for the outcome of a text that an earlier session was typing."""

READY_CHECK_MIN, READY_CHECK_MAX = 0.001, 0.25
"""Bounds, in seconds, of the poll interval for a program that is not ready: a tenth of the wait so far."""


class TypedDelivery:
    """Types the prompts of one agent. active: the injections being typed as one text."""

    def __init__(
        self,
        bus: EventBus,
        terminal: AgentTerminal,
        view: AgentView,
        queue: InjectionQueue,
        gate: TypingGate,
        composer: PromptComposer,
        news: News,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._view = view
        self._queue = queue
        self._gate = gate
        self._composer = composer
        self._news = news
        self._user = UserTyping(terminal, view, clock)
        self._typist = Typist(terminal, view, clock)
        self._unfinished = Unfinished(terminal, view, progress)
        self.active: tuple[Injection, ...] = ()

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Restore the text that an earlier session was typing when it ended."""
        self._unfinished.restore()
        if mark := self._unfinished.mark:
            self._view.given(layout.closing_mark(mark))
            self._typist.doubt(mark, self._unfinished.injections)

    @handles(KeysTyped)
    def keys(self, event: KeysTyped) -> None:
        if self._user.keys(event.data):
            self._unfinished.typed(event.position)

    @handles(KeysWritten)
    def written(self, event: KeysWritten) -> None:
        self._unfinished.written(event.data, event.position)

    @handles(KeysHeldBack)
    def held_back(self, _: KeysHeldBack) -> None:
        self._user.held()

    @handles(OutputRead)
    def output(self, event: OutputRead) -> None:
        self._unfinished.output(event.data, event.position)
        if self.active:
            self._typist.output(event.data)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of what an earlier session was typing: this session finds out the outcome."""
        return self._unfinished.ids

    @property
    def arrived(self) -> bool:
        """True if the agent has reported the text that is being typed."""
        return self._typist.arrived

    def obstacle(self) -> Verdict | None:
        """Return what prevents typing now; its `wait`: seconds until another look, None: an event ends it."""
        if blocked := self._gate.obstacle(typing=bool(self.active)) or self._user.obstacle():
            return blocked
        sight = self._view.look()
        if self._gate.allows(sight):
            return None
        # A program may begin to read its terminal before a known quiet period is over.
        again = min(max(self._news.age / 10, READY_CHECK_MIN), READY_CHECK_MAX)
        verdict = self._gate.judge(sight)
        return replace(verdict, wait=again if verdict.wait is None else min(again, verdict.wait))

    def occupied(self) -> str | None:
        """Return why the user's typing is in the way, if it is."""
        blocked = self._user.obstacle()
        return None if blocked is None else blocked.reason

    def prompted(self, prompt: str) -> None:
        """Record a prompt that the agent's hook reports: it proves which texts arrived."""
        arrived = Outcome(Result.INJECTED, "", "typed", "user", "hook")
        if self._unfinished.mark and layout.closing_mark(self._unfinished.mark) in prompt:
            self.end_unfinished(arrived)
        for injections in self._typist.prompted(prompt):
            for injection in injections:
                self._queue.end(injection, arrived)

    # What an earlier session was typing.

    async def finish(self) -> None:
        """Settle the text that an earlier session was typing when it ended."""
        self.active = self._unfinished.injections
        try:
            self.end_unfinished(await self._found())
        finally:
            self.active = ()

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

    def end_unfinished(self, outcome: Outcome = UNKNOWN) -> None:
        """End that text, if its outcome is not known yet."""
        left, kind = self._unfinished, EarlierInjectionEnded if self._unfinished.known else InjectionEnded
        mark, injections = left.mark, left.injections
        if outcome.result is Result.INJECTED:
            self._typist.believe(mark)
        left.close(outcome)
        for injection in injections:
            self._bus.publish(kind(injection, outcome))

    # A prompt.

    async def give(self, prompt: Prompt) -> None:
        """Type `prompt`, which has begun, and end its injections; put back what was not typed."""
        mark, parts = layout.mark_of(prompt.injections[0]), list[str]()
        outcome: Outcome | None = None
        left = False
        given = (*prompt.contexts, *prompt.injections)
        self.active = prompt.injections
        try:
            if sight := await self._reserve():
                if len(prompt.injections) > 1 and style_of(sight) is not Style.PASTE:
                    self._queue.defer(prompt.injections[1:])
                    prompt = replace(prompt, injections=prompt.injections[:1])
                    self.active = prompt.injections
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
            self.active = ()
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
        if not await self._user.hold() or self._gate.obstacle(typing=True) or self._user.obstacle():
            return None
        sight = self._view.look()
        return sight if self._gate.allows(sight) else None

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
        """Return True once typing is allowed; False if the queue is closed."""
        while not self._queue.closed:
            if (blocked := self.obstacle()) is None:
                return True
            await self._news.wait(blocked.wait)
        return False
