"""The agent's turns, by whichever channel tells of them: its own hooks where they speak, else its screen.

NativeHooks ─→ texts, events ─┐
                              ├→ lines, directives, handlers ─→ what it goes on with
AgentState  ─→ DrawnTurn ─────┘
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from relay.agents.transcript_formats import Said
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.errors import MessageRefused
from relay.hooks import events
from relay.hooks.context import Context
from relay.hooks.result import HookResult, decide, injected
from relay.hooks.runner import Runner
from relay.injection.budget import Budget
from relay.injection.injection import Injection
from relay.injection.queue import Injector
from relay.policy import Policy
from relay.readers.line import Line
from relay.rules import aggregate
from relay.rules.aggregate import Fired
from relay.rules.event import RuleEvent
from relay.session.continuation import GO_ON, Ending
from relay.session.drawn_turn import DrawnTurn
from relay.session.giving import Giving
from relay.session.native import Bridge, NativeHooks
from relay.session.pump import OutputPump
from relay.session.replies import prompt_fields, stop_fields, stop_outcome
from relay.session.ruling import Ruling
from relay.session.setup import Setup
from relay.session.work import Workers
from relay.state.evidence import Evidence
from relay.state.readiness import Readiness, Verdict
from relay.state.states import AgentState, Change
from relay.storage.journal import Journal, preview


class Hears(Protocol):
    """Who acts on what the agent said."""

    def on_lines(self, lines: list[Line]) -> None: ...
    def on_directives(self, directives: list[Directive]) -> None: ...


class Subject(Protocol):
    """The session, as far as the turns of its agent need it."""

    setup: Setup
    runner: Runner
    context: Context
    pump: OutputPump
    injector: Injector
    journal: Journal
    ruling: Ruling
    budget: Budget
    giving: Giving
    state: AgentState
    workers: Workers

    def lesson(self) -> str: ...
    @property
    def hearing(self) -> Hears: ...
    def tell_person(self, text: str) -> None: ...


class Turns:
    """The turns of one agent. `native`: its own hooks; implements relay.session.native.Host for them.

    What an agent that relay knows draws before its first turn is not heard: it may be an old conversation.
    """

    def __init__(self, session: Subject, bridge: Bridge) -> None:
        self._session = session
        setup = session.setup
        self._most = setup.settings.continuations
        self._drawn = DrawnTurn()
        self._begun = not setup.profile.states
        self._told_start = False  # to rules, by the session
        self._worked = False  # the screen has shown work since the agent was ready
        session.pump.deaf = not self._begun
        self.native = NativeHooks(
            self,
            session.injector,
            session.journal,
            bridge,
            transcript=setup.profile.native.transcript,
            continuations=self._most,
            policy=Policy(setup.settings.allow),
            lesson=session.lesson if setup.teaches else None,
        )

    def evidence(self) -> Evidence | None:
        """What the agent's hooks say of its state."""
        return self.native.evidence()

    def begin(self) -> None:
        """The session has begun. An agent without a bridge is taught by typing; hooks teach by themselves."""
        if not self.native.bridge.kind:
            self._teach()
            self._session.workers.queue("rules of SessionStart", self._start_drawn())

    async def _start_drawn(self) -> None:
        """Rules of SessionStart where no hooks tell of it: what they inject is typed."""
        self._told_start = True
        fired = await self.fire(self._session.ruling.derived("SessionStart", source="startup"))
        self.note(fired)
        for ran in fired.ran:
            for result in ran.results:
                self.inject(result, event=fired.event.name, place=ran.rule.place)

    def end(self) -> None:
        """The agent has ended: rules of SessionEnd hear of it where its own hooks have not told."""
        if not self.native.ended:
            self.observe(self._session.ruling.derived("SessionEnd", reason="other"))

    async def on_prompt(self, injections: Sequence[Injection]) -> Sequence[Injection]:
        """Rules of UserPromptSubmit for what relay is about to type as one prompt: what stands before it.

        Raises MessageRefused where they block it. The agent's own hooks tell of what the person types.
        """
        ruling = self._session.ruling
        if not ruling.has("UserPromptSubmit"):
            return ()
        prompt = "\n\n".join(each.text for each in injections)
        try:
            fired = await self.fire(ruling.derived("UserPromptSubmit", prompt=prompt))
        except Exception:
            # The injector logs it, and types the prompt all the same: nothing waits for ever.
            self.tell_person("rules of UserPromptSubmit could not be asked, and what was typed is unchecked.")
            raise
        self.note(fired, **prompt_fields(fired))
        if marker := aggregate.user_prompt_submit(fired).marker:
            raise MessageRefused(marker)
        texts = (
            self._session.giving.injection(result, event=fired.event.name, place=ran.rule.place)
            for ran in fired.ran
            for result in ran.results
        )
        return [text for text in texts if text is not None]

    def held(self) -> None:
        """Messages that the agent sent are held as those of a runaway."""
        self.native.turn.runaway = self._drawn.runaway = True

    # What the screen tells.

    def submitted(self, *, by_person: bool) -> None:
        """Something was submitted in the agent's terminal."""
        self._begin_turns()
        begins = self._drawn.submitted(by_person=by_person)
        if not self._session.setup.profile.states:  # nothing shows where a plain program's turn ends
            begins = begins or by_person
        if begins and not self.native.alive:
            self.on_turn()

    def said(self, lines: list[str]) -> None:
        """The agent has said these lines."""
        self._drawn.said(lines)

    def looked(self, verdict: Verdict) -> None:
        """Its state was judged: an agent that works by its own rules was given a prompt in its arguments."""
        if verdict.state is Readiness.WORKING and verdict.rule and not verdict.draft:
            self._worked = True
            if not self.native.bridge.kind:  # they tell of it; what only starts may look like work
                self._begin_turns()

    def changed(self, change: Change) -> None:
        """The agent's state is another one, by all that is known."""
        verdict = change.verdict
        if verdict is None:
            return
        match verdict.state:
            case Readiness.READY | Readiness.FAILED if self.native.alive:
                self._notice_silence()
                failed = verdict.state is Readiness.FAILED
                if event := self.native.lapsed(verdict.reason if failed else ""):
                    self._session.workers.queue(event.name, self._tell_end(event))
            case Readiness.READY:
                self._end_drawn_turn()

    def _notice_silence(self) -> None:
        """Where the screen has shown a whole turn of which no hook told, the screen counts again."""
        began, worked, self._worked = self._drawn.forget(), self._worked, False
        if began is not None and worked and self.native.missed(began):
            self._session.injector.bridged = False
            self._listen()

    def _begin_turns(self) -> None:
        if not self._begun:
            self._session.pump.settle()  # what is drawn by now belongs to no turn
            self._begun = True
            self._listen()

    def _listen(self) -> None:
        """Hear what the screen shows, or what the transcript brings, never both."""
        self._session.pump.deaf = self.native.exact or not self._begun

    def _end_drawn_turn(self) -> None:
        """The screen shows that a turn has ended of which no hooks tell."""
        event = self._drawn.ended() if self._session.setup.profile.states else None
        if event is None:
            return
        self._teach()  # where it has a bridge, that has not spoken in a whole turn
        if not self._told_start:
            self._session.workers.queue("rules of SessionStart", self._start_drawn())
        if self._session.runner.registry.for_event(event) or self._session.ruling.has("Stop"):
            self._session.workers.queue(event.name, self._continue(event))

    async def _tell_end(self, event: events.AgentEnd) -> None:
        """Nobody goes on with a turn that has failed."""
        await self.ask(event)

    async def _continue(self, event: events.AgentEnd) -> None:
        """Let rules and handlers have the agent go on, which here means that a text is typed."""
        ending = Ending(self._drawn.continuations, self._most, self._drawn.runaway)
        ruling = self._session.ruling
        fired = await self.fire(
            ruling.derived("Stop", last_assistant_message=event.last_assistant_message, **ending.facts())
        )
        results = await self.ask(event)
        self.note(fired, stop_outcome(fired, ending), **stop_fields(fired, ending))
        every = [*fired.results, *results]
        forced = [each.source for each in every if each.force_continue]
        if decide(every).action == "halt" or not (injected(every) or forced):
            return
        texts = injected(every) or [GO_ON]
        if ending.capped:
            self._session.journal.write("continuation_capped", most=self._most, text=preview(texts[0]))
            self.tell_person(ending.refusal)
            return
        self._drawn.continuations += 1
        if not injected(every):
            self.inject(HookResult.inject(GO_ON, source=forced[0]), event=fired.event.name)
        for ran in fired.ran:
            for result in ran.results:
                self.inject(result, event=fired.event.name, place=ran.rule.place)
        for result in results:
            self.inject(result, event=event.name)

    def _teach(self) -> None:
        lesson = self.native.lesson()
        if lesson is not None:
            self._session.giving.notice(lesson)

    # What the hooks tell (native.Host).

    def on_bridge_alive(self) -> None:
        self._session.injector.bridged = True
        self._session.journal.write("bridge", kind=self.native.bridge.kind)

    def on_bridge_event(self) -> None:
        if self.native.turn.active:
            self._begin_turns()
        self._listen()
        if not self._session.state.ended:
            self._session.state.look()

    def on_turn(self) -> None:
        self._session.budget.new_turn()

    def is_ready(self) -> bool:
        return self._session.state.look() == Readiness.READY

    def on_said(self, said: Sequence[Said]) -> None:
        """The agent's own words, exactly: each text is Markdown of its own."""
        session = self._session
        for one in said:
            if one.subagent:
                session.journal.write("subagent_said", subagent=one.subagent, text=preview(one.text))
                if session.setup.settings.subagents == "ignore":
                    continue
            grammar = Grammar(session.setup.registry.knows, prefix=session.setup.prefix)
            now = time.monotonic()
            lines = [
                Line(text, now) for text in one.text.split("\n")
            ]  # no other character ends a line of Markdown
            session.hearing.on_lines(lines)
            found = [directive for line in lines for directive in grammar.line(line)]
            session.hearing.on_directives([*found, *grammar.turn_end(now)])

    async def ask(self, event: events.Event) -> list[HookResult]:
        """Have the handlers of `event` called now; what they tell the person is told."""
        runner = self._session.runner
        if not runner.registry.for_event(event):
            return []
        results = await runner.fire(event, self._session.context)
        for result in results:
            self._session.giving.show(result)
        return results

    async def fire(self, event: RuleEvent | None) -> Fired:
        return await self._session.ruling.fire(event)

    def note(self, fired: Fired, outcome: str = "", **fields: Any) -> None:
        self._session.ruling.note(fired, outcome, **fields)

    def observe(self, event: RuleEvent | None) -> None:
        if event is not None and self._session.ruling.has(event.name):
            self._session.workers.queue(f"rules of {event.name}", self._observe(event))

    async def _observe(self, event: RuleEvent) -> None:
        try:
            self.note(await self.fire(event))
        except asyncio.CancelledError:  # its session has no more time for them
            self._session.journal.write("rules_cut_off", hook_name=event.name)
            raise

    def inject(self, result: HookResult, *, event: str, place: str = "", wakes: bool | None = None) -> None:
        self._session.giving.inject(result, event=event, place=place, wakes=wakes)

    def tell_person(self, text: str) -> None:
        self._session.tell_person(text)
