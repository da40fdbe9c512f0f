"""The injection queue of one agent: one text at a time, in the backlog's order, each only when it is safe.

                ┌→ held? draft? ─→ judge ─→ typist ────────┐
    submit ─→ queue    ▲             ▲                     ├→ outcome
                │ person(keys)  output(bytes), the kernel  │
                └→ take ─→ a reply to the agent's own hook ┘

Texts of hooks that wait one behind the other are given as one, each with an outcome of its own: in a reply,
and where they are pasted. A program that takes one line at a time gets each by itself.

Driven by events: with an empty queue nothing runs.  While something waits, timers run for quiet periods
that are known, and otherwise look again ever more rarely, since a program that begins to read its
terminal tells nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from relay.agents.profile import Profile
from relay.errors import MessageRefused
from relay.injection import layout
from relay.injection.backlog import Backlog
from relay.injection.draft import Draft
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style
from relay.injection.prompt import OnPrompt, Prompts
from relay.injection.reply_delivery import Ride
from relay.injection.typist import Typist
from relay.injection.view import View, style_of
from relay.messaging.message import Priority
from relay.state.port import Port
from relay.state.readiness import SCREEN_QUIET, Readiness, TerminalSnapshot, Verdict, danger, judge

PERSON_PAUSE = 2.0
"""Seconds after the person's last key during which nothing is typed (design, section 6)."""

LOOK_MIN, LOOK_MAX = 0.001, 0.25
"""Seconds between two looks at a program that is not ready: a tenth of how long it has been, within these."""

RESERVE_TIMEOUT, _RESERVE_STEP = 0.25, 0.0005
"""Seconds to wait until the person's keys are kept from the agent, and between two looks for it."""

_DOUBTFUL = 16  # uncertain texts that the agent's hook may still confirm


class Injector:
    """Gives injections to the agent behind `port`. All methods belong to the event loop's thread.

    on_outcome:  called once for each injection submitted, and again when one that was uncertain has been seen
                 to have arrived after all.
    on_typing:   called before the first byte of an injection is written, or before `take` returns it. It
                 raises MessageRefused when that is not wanted any more (Result.REJECTED); after another
                 RelayError it is asked again later, and what is behind the injection waits too.
    on_deferred: called when after `on_typing` nothing was written: the injection waits again.
    on_prompt:   called once with what is to be typed as one prompt, before `on_typing`; not for what a hook's
                 reply carries.  It answers with texts of hooks that are put before it, or raises
                 MessageRefused when it is not to be typed (Result.REJECTED).  Whether the agent is ready is
                 judged again afterwards.
    prefix:      what begins a directive of this agent, if not what its profile says.
    idle:        seconds of quiet after which an agent that is ready is given what is of low priority.
    """

    def __init__(
        self,
        port: Port,
        profile: Profile,
        *,
        on_outcome: Callable[[Injection, Outcome], None],
        on_typing: Callable[[Injection], None] = lambda injection: None,
        prefix: str | None = None,
        idle: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_deferred: Callable[[Injection], None] = lambda injection: None
        self.bridged = False
        """Whether the agent's own hooks take what waits while it works (`take`)."""
        self._port = port
        self._profile = profile
        self._on_outcome = on_outcome
        self._idle = idle
        self._clock = clock
        self._directive = layout.directive_pattern(prefix or profile.prefix, profile.decoration)
        self._waiting = Backlog(on_typing, on_outcome, lambda: self._clock())
        self._wake = asyncio.Event()
        self._draft = Draft()
        self._view = view = View(port, profile, clock)
        self._typist = Typist(
            port, clock, self._asking, delay=profile.submit.delay, state=view.state if view.ruled else None
        )
        self._typing: tuple[Injection, ...] = ()  # as one text
        self._ride = Ride(self._waiting, self._directive, view.given)
        self._prompts = Prompts(self._waiting, lambda: style_of(view.look()), on_outcome)
        self._doubtful: deque[tuple[str, tuple[Injection, ...]]] = deque(maxlen=_DOUBTFUL)  # with their end
        self._held: Verdict | None = None
        self._closed = False
        self._news = clock()  # when something last happened that may change the verdict
        self._began = clock()  # when the last text was begun

    def submit(self, injection: Injection) -> None:
        """Queue `injection` (relay.injection.backlog). One that cannot be typed is rejected now."""
        if self._closed:
            self._on_outcome(injection, Outcome(Result.UNTYPED, "the session has ended"))
            return
        if self._fits(injection):
            self._waiting.add(injection)
            self._notice()

    def _fits(self, injection: Injection) -> bool:
        """Whether it can be given at all; else it is rejected now."""
        try:
            layout.check(injection)
        except MessageRefused as error:
            self._on_outcome(injection, Outcome(Result.REJECTED, str(error)))
            return False
        return True

    def withdraw(self, id: str) -> None:
        """Give the injection `id` no more (Result.WITHDRAWN), unless its giving has begun."""
        if injection := self._waiting.remove(id):
            self._on_outcome(injection, Outcome(Result.WITHDRAWN))
            self._notice()

    def person(self, data: bytes) -> None:
        """Note what the person typed, after it was written to the agent's terminal."""
        self._end_draft()
        asking = (self._draft.empty or self._draft.answers) and (self.verdict.state is Readiness.PROMPTING)
        canonical = self._port.tty().canonical
        self._draft.type(data, self._clock(), canonical=canonical, asking=asking)
        if self._waiting:
            self._notice()

    def output(self, data: bytes) -> None:
        """Note what the agent has put out, as soon as it was read."""
        if self._typing:
            self._typist.output(data)
        if self._waiting or self._typing:
            self._notice()

    def hold(self, reason: str) -> None:
        """Type nothing more, for `reason`; what is being typed is completed."""
        self._held = Verdict(Readiness.UNSAFE, reason)

    @property
    def on_prompt(self) -> OnPrompt | None:
        return self._prompts.on_prompt

    @on_prompt.setter
    def on_prompt(self, on_prompt: OnPrompt | None) -> None:
        self._prompts.on_prompt = on_prompt

    @property
    def verdict(self) -> Verdict:
        """Whether the agent can be typed into now, and why."""
        if self._held is not None:
            return self._held
        return judge(self._view.look(), self._profile)

    @property
    def typing(self) -> Injection | None:
        """What is being typed, or is about to be: the first, where it is texts of several hooks."""
        return self._typing[0] if self._typing else None

    @property
    def pending(self) -> int:
        """Injections that wait or are being given to the agent."""
        return len(self._waiting) + len(self._typing) + len(self._ride)

    @property
    def obstacle(self) -> str | None:
        """Why the next injection is not typed now; None when nothing waits or nothing is in the way."""
        if not self._waiting:
            return None
        if self._prompts.asking:
            return "its rules for prompts are being run"
        if blocked := self._blocked():
            return blocked.reason
        sight = self._view.look()
        verdict = judge(sight, self._profile)
        return None if self._allows(verdict, sight) else verdict.reason

    def close(self) -> None:
        """The session ends: what waits is reported as not typed, and `run` returns."""
        self._closed = True
        for injection in self._waiting.clear():
            self._on_outcome(injection, Outcome(Result.UNTYPED, "the session ended first"))
        for injection in self._ride.injections:
            why = "the session ended before the agent's hook had passed it on"
            self.delivered(injection, Outcome(Result.UNCERTAIN, why))
        self._wake.set()

    # Through the agent's own hooks.

    def take(self, room: int, *, extends: bool = False, messages: bool = True) -> list[Injection]:
        """What waits, in its order, and fits in `room` bytes of UTF-8: for a reply to a hook of the agent.

        extends: the reply has the agent go on with a turn that it would end. That is only done for a text
        that is worth a turn, and not before an urgent one that no reply has room for, which is to be typed.
        messages: they may ride on this reply; else only what is no message.

        Each is to be reported with `delivered` or `put_back`; until then nothing that is behind it moves, so
        that nothing overtakes.  What no reply has room for holds back its own priority only.  A closing
        prompt, and what is of low priority, is only ever typed.
        """
        typing = self._typing and not self._typist.arrived
        return [] if self._closed or typing else self._ride.take(room, extends=extends, messages=messages)

    def render_native(self, injections: Sequence[Injection]) -> str:
        """The text in which the agent's hook passes on `injections`, which `take` has returned."""
        return self._ride.render(injections)

    def delivered(self, injection: Injection, outcome: Outcome) -> None:
        """What became of `injection`, which `take` has returned."""
        if not self._ride.end(injection):
            return  # reported when the session ended
        printed = outcome.result is Result.INJECTED and not outcome.verified
        self._on_outcome(
            injection,
            replace(outcome, route="native", verified="printed" if printed else outcome.verified),
        )
        self._notice()

    def put_back(self, injections: Sequence[Injection]) -> None:
        """`injections`, which `take` has returned, were certainly not passed on: they wait again."""
        self._defer([each for each in self._ride.injections if each in injections and self._ride.end(each)])
        self._notice()

    def submitted(self, prompt: str) -> bool:
        """Note a prompt that the agent, as its own hook says, was given: it proves what arrived.

        Whether it is a text of ours, and nothing else.
        """
        self._typist.prompted(prompt)
        for end, injections in list(self._doubtful):
            if end in prompt:
                self._doubtful.remove((end, injections))
                for injection in injections:
                    self._on_outcome(injection, Outcome(Result.INJECTED, "", "typed", "user", "hook"))
        return self._view.gave(prompt)

    # By typing.

    async def run(self) -> None:
        """Type what is submitted until `close`. Cancelled in the middle of a text, it is uncertain."""
        while not self._closed:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            elif await self._ready() and (injection := self._next()):
                await self._inject(injection)

    def _next(self) -> Injection | None:
        """What is typed next: an agent with hooks is not woken for what can wait for its next turn."""
        return next((each for each in self._waiting if each.wakes or not self.bridged), None)

    async def _inject(self, first: Injection) -> None:
        """Type `first` now that the agent is ready, and report its outcome; or put it back."""
        prompt = await self._prompts.of(first)
        if prompt is None:
            return
        self._typing = (first,)
        begun = self._begin(prompt.injections)
        if not begun:
            self._typing = ()
            return
        self._typing = begun
        mark, parts = layout.nonce(), list[str]()
        outcome: Outcome | None = None
        try:
            if sight := await self._reserve():
                if len(begun) > 1 and style_of(sight) is not Style.PASTE:
                    self._defer(begun[1:])
                    self._typing = begun = begun[:1]
                parts = replace(prompt, injections=begun).lay_out(style_of(sight), mark, self._directive)
                self._check_start(parts[0])
                why = "the session ended while it was being typed"
                outcome = Outcome(Result.UNCERTAIN, why, "typed", "user")
                outcome = await self._type(parts, sight, mark)
        except MessageRefused as error:
            outcome = Outcome(Result.REJECTED, str(error))
        finally:
            self._port.release()
            self._typing = ()
            if outcome is None:
                self._defer(begun)
                if self._closed:
                    self.close()
            else:
                given = (*prompt.contexts, *begun)
                if outcome.result is Result.UNCERTAIN and len(parts) == 1:
                    self._doubtful.append((layout.closing_mark(mark), given))
                for injection in given:
                    self._on_outcome(injection, outcome)

    def _begin(self, injections: Sequence[Injection]) -> tuple[Injection, ...]:
        """Begin with `injections` in their order; those that are to be typed now."""
        begun = []
        for each in injections:
            if self._waiting.begin(each):
                begun.append(each)
            elif self._waiting.refused(each):
                break
        return tuple(begun)

    def _defer(self, injections: Sequence[Injection]) -> None:
        """Have `injections` wait again, in their place."""
        for injection in reversed(injections):
            self._waiting.put_back(injection)
            self.on_deferred(injection)

    async def _reserve(self) -> TerminalSnapshot | None:
        """Keep the person's keys from the agent; what it shows, or None if it must not be typed into now.

        Both may have changed since the last look: `on_typing` may have taken long.
        """
        self._port.reserve()
        end = self._clock() + RESERVE_TIMEOUT
        while not self._port.reserved():
            if self._clock() > end:
                return None
            await asyncio.sleep(_RESERVE_STEP)
        sight = self._view.look()
        allowed = not self._blocked() and self._allows(judge(sight, self._profile), sight)
        return sight if allowed else None

    def _check_start(self, text: str) -> None:
        if text[0] in self._profile.submit.avoid:
            raise MessageRefused(
                f"every text begins with {text[0]!r}, which the profile {self._profile.name!r} says to avoid "
                "(avoid under [submit]). Take it out there."
            )

    async def _type(self, parts: list[str], sight: TerminalSnapshot, mark: str) -> Outcome:
        outcomes: list[Outcome] = []
        for number, part in enumerate(parts):
            if number:
                # Each part is a line of its own to the program, which may answer the first with a question.
                self._port.release()
                again = None
                while again is None and await self._ready():
                    if (again := await self._reserve()) is None:
                        self._port.release()
                if again is None:
                    why = f"the session ended after {number} of {len(parts)} lines"
                    return Outcome(Result.UNCERTAIN, why, "typed", "user")
                sight = again
            self._view.given(layout.closing_mark(mark))
            self._view.typing(part, sight.nap)
            self._began = self._clock()
            outcomes.append(await self._typist.type(part, style_of(sight), mark))
            self._view.typed()
            self._news = self._clock()
        return next((each for each in outcomes if each.result is Result.UNCERTAIN), outcomes[-1])

    async def _ready(self) -> TerminalSnapshot | None:
        """Wait until the agent is ready and nothing is in the way; None once closed or with nothing to do."""
        while not self._closed and (self._waiting or self._typing):
            self._wake.clear()
            if blocked := self._blocked():
                await self._sleep(blocked.wait)
                continue
            sight = self._view.look()
            verdict = judge(sight, self._profile)
            if self._allows(verdict, sight):
                return sight
            again = min(max((self._clock() - self._news) / 10, LOOK_MIN), LOOK_MAX)
            # A program may begin to read its terminal before a known quiet period is over.
            await self._sleep(again if verdict.wait is None else min(again, verdict.wait))
        return None

    def _blocked(self) -> Verdict | None:
        """What keeps any text from being typed, whatever the agent does. `wait` None: until it is told."""
        if self._held is not None:
            return self._held
        if self._ride:
            return Verdict(Readiness.WORKING, "a text is being given to it through its own hooks")
        first = self._next()
        if first is None and not self._typing and self._waiting:
            return Verdict(
                Readiness.WORKING, "what waits is no reason to wake it, and comes with its next turn"
            )
        if first and not self._typing and (refusal := self._waiting.refused(first)):
            return Verdict(Readiness.WORKING, refusal.reason, max(refusal.until - self._clock(), 0))
        if first and not self._typing and first.priority is Priority.LOW:
            left = self._idle - self._view.quiet()
            if left > 0:
                why = (
                    f"what waits is of low priority, and is typed when it has been idle for {self._idle:g} s"
                )
                return Verdict(Readiness.WORKING, why, left)
        self._end_draft()
        if not self._draft.empty:
            left = self._port.last_output() + SCREEN_QUIET - self._clock()
            return Verdict(Readiness.WORKING, "you have a half-typed line in it", left if left > 0 else None)
        left = self._draft.last_typed + PERSON_PAUSE - self._clock()
        if left > 0:
            return Verdict(Readiness.WORKING, f"you typed within the last {PERSON_PAUSE:g} s", left)
        return None

    def _allows(self, verdict: Verdict, sight: TerminalSnapshot) -> bool:
        """Whether a text may be typed now: when the agent is ready, or works and queues what it is given.

        The latter only where no dialog of the agent's can come up between the look and the Enter: its profile
        knows none but the person's own menus, and a rule of it, not a guess, says that the agent works.
        Where the agent has hooks, a text waits for their reply.
        """
        if verdict.state is Readiness.READY:
            return True
        profile = self._profile
        return (
            verdict.state is Readiness.WORKING
            and bool(verdict.rule)
            and not verdict.draft
            and profile.submit.while_working == "queues"
            and not any(rule.state == "prompting" and rule.kind != "other" for rule in profile.states)
            and not self.bridged
            and sight.bracketed_paste
            and not sight.tty.canonical
        )

    def _end_draft(self) -> None:
        """Forget keys that the program took without an Enter, such as the answer to a dialog."""
        port, draft = self._port, self._draft
        if draft.empty or port.last_output() + SCREEN_QUIET > self._clock() or port.output_pending():
            return
        if draft.taken(
            canonical=port.tty().canonical,
            last_output=port.last_output(),
            unfinished=port.unfinished(),
            rows=port.screen_text(),
        ):
            draft.clear()

    def _asking(self) -> str | None:
        """Why Enter must not be pressed over what was just typed: it would answer something, or run it."""
        sight = self._view.look()
        # What was said before was weighed against an input that was empty then.
        since = self._clock() - self._began
        news = tuple(evidence for evidence in sight.evidence if evidence.age <= since)
        found = danger(replace(sight, evidence=news), self._profile)
        return found.reason if found else None

    def _notice(self) -> None:
        self._news = self._clock()
        self._wake.set()

    async def _sleep(self, seconds: float | None) -> None:
        """Wait until something happens, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
