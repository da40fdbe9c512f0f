"""Runs the rules of hooks.json files, and records each run.

Consult, Observe ─→ RuleBook ─→ Engine ─→ Fired ─→ results, the answer to Consult
                                            └─→ "hook_fired" in the journal
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from relay.agents.hook_event import NativeName
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.dataclass import replace
from relay.eventbus import EventBus, answers, handles
from relay.home import Home
from relay.hooks.apply import notify
from relay.lifecycle import Describe, SessionClosed
from relay.rules import aggregate
from relay.rules.aggregate import Fired
from relay.rules.answer import RuleRun
from relay.rules.engine import Engine
from relay.rules.event import EVENTS, RuleEvent
from relay.rules.events import (
    Consult,
    GuardedEvents,
    HasRules,
    Observe,
    Results,
    RuleEnded,
    RulesChanged,
)
from relay.rules.rule import Rule
from relay.rules.rule_book import RuleBook
from relay.rules.turn_end import Ending, journal_fields, stop_outcome
from relay.storage.journal import Journal, preview
from relay.tasks import Tasks
from relay.terminal.events import MistakeFound, Notify, WithdrawNotice
from relay.text import count

REPORTED = 5
"""Different problems of one rule that are shown to the user; each may quote a command's output."""


class RuleRunner:
    """Runs the rules of one session with `engine`.

    files: rule files named for this run, in addition to the user's and the project's.
    full:  record the whole output of commands, not a preview.
    loaded: called with the rules whenever they have been read again.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        rules: RuleBook,
        engine: Engine,
        *,
        home: Home,
        directory: Path,
        files: Sequence[Path],
        full: bool,
        loaded: Callable[[RuleBook], None] = lambda book: None,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._book = rules
        self._engine = engine
        self._home = home
        self._load = partial(RuleBook.load, home, directory, files)
        self._full = full
        self._loaded = loaded
        self._running: list[tuple[str, float]] = []  # events, and the time of their start (monotonic)
        self._reported: dict[str, set[str]] = {}  # problems by rule

    @answers(Consult)
    async def consult(self, question: Consult, _: object) -> Results | None:
        if question.rules is None:
            return None
        fired = await self._fire(question.rules)
        self._note(fired, question.ending)
        results = tuple(
            replace(result, place=ran.rule.place, event=fired.event.name)
            for ran in fired.ran
            for result in ran.results
        )
        notify(self._bus, results)
        return results

    @handles(Observe)
    def observe(self, event: Observe) -> None:
        if self._has(event.event.name):
            self._tasks.queue(f"rules of {event.event.name}", self._observe(event.event))

    async def _observe(self, event: RuleEvent) -> None:
        try:
            await self.consult(Consult(event), ())
        except asyncio.CancelledError:  # the session has no more time for them
            self._journal.write("rules_cut_off", hook_name=event.name)
            raise

    @answers(HasRules)
    async def has_rules(self, question: HasRules, _: object) -> bool:
        return self._has(question.name)

    @answers(GuardedEvents)
    async def guarded(self, _: GuardedEvents, __: object) -> frozenset[NativeName]:
        """Return the events of all rules that may refuse; text rules and background rules may not."""
        return frozenset(
            EVENTS[rule.event].native
            for rule in self._book.rules
            if rule.kind == "command" and not rule.background and self._book.enabled(rule)
        )

    def _has(self, name: str) -> bool:
        return any(rule.event == name and self._book.enabled(rule) for rule in self._book.rules)

    async def _fire(self, event: RuleEvent) -> Fired:
        """Run the rules for `event`, and report their problems."""
        if not self._has(event.name):
            return Fired(event)
        rules = await asyncio.to_thread(self._select, event)
        if not rules:
            return Fired(event)
        began = (event.name, time.monotonic())
        self._running.append(began)
        try:
            fired = await self._engine.run(rules, event, select=self._select)
        finally:
            self._running.remove(began)
        for ran in fired.ran:
            self._complain(ran)
        return fired

    def _select(self, event: RuleEvent) -> list[Rule]:
        """Return the rules for `event`. Call it on a thread: a matcher may take long over a long text."""
        return self._book.select(event, lambda text: self._bus.post(Notify(text, "warning")))

    def _note(self, fired: Fired, ending: Ending | None) -> None:
        """Record the rules that fired, and their outcome; record nothing if none matched."""
        if not fired.matched_rule_count:
            return
        quiet = any(result.suppress_output for result in fired.results)
        self._journal.write(
            "hook_fired",
            hook_name=fired.event.name,
            outcome=aggregate.outcome(fired) if ending is None else stop_outcome(fired, ending),
            matched_rule_count=fired.matched_rule_count,
            **journal_fields(fired, ending),
            rules=[self._shown(ran, quiet=quiet) for ran in fired.ran],
        )

    @handles(RuleEnded)
    def ended(self, event: RuleEnded) -> None:
        ran = event.ran
        self._journal.write("hook_ended", hook_name=ran.rule.event, **self._shown(ran, quiet=False))
        self._complain(ran)

    def _shown(self, ran: RuleRun, *, quiet: bool) -> dict[str, Any]:
        output = ran.stdout or ran.stderr
        shown = {
            "id": ran.rule.id,
            "name": ran.rule.name,
            "place": ran.rule.place,
            "exit_code": ran.exit_code,
            "duration_ms": round(ran.duration * 1000, 1),
            "problem": ran.problem or None,
        }
        if not quiet:
            shown["output_preview"] = output if self._full else preview(output)
        return shown

    def _complain(self, ran: RuleRun) -> None:
        """Show the user each problem of a rule once; the journal has them all."""
        reported = self._reported.setdefault(ran.rule.id, set())
        if ran.problem and ran.problem not in reported and len(reported) < REPORTED:
            reported.add(ran.problem)
            text = f"{ran.rule.place}: {ran.rule.name} at {ran.rule.event}: {ran.problem}"
            self._bus.publish(Notify(text, "warning"))

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        enabled = sum(map(self._book.enabled, self._book.rules))
        if not enabled:
            return {"rules": ""}
        now = time.monotonic()
        waited = [f"those of {name} have run for {now - began:.0f} s" for name, began in self._running]
        return {"rules": "; ".join([f"{count(enabled, 'rule')} in force", *waited])}

    @operation("rules")
    async def list(self, _: Request) -> Answer:
        return self._book.public()

    @operation("reload_rules")
    async def reload(self, _: Request) -> Answer:
        """Read the rule files again. The warnings say what is wrong, and what stays in force instead."""
        before = self._book.warnings
        self._book = self._load(last=self._book)
        self._loaded(self._book)
        for warning in before:
            if warning not in self._book.warnings:
                self._bus.publish(WithdrawNotice(str(warning)))
        for warning in self._book.warnings:
            if warning not in before:
                self._bus.publish(MistakeFound(str(warning)))
        self._reported.clear()
        warnings = [str(each) for each in self._book.warnings]
        self._journal.write("rules_reloaded", rules=len(self._book.rules), warnings=warnings)
        await self._bus.ask_all(RulesChanged())
        return self._book.public()

    @operation("switch_rules")
    async def switch(self, _: Request) -> Answer:
        """Read again which rules are switched off; do not reload the rules."""
        self._book = self._book.switched(self._home)
        off = sum(not self._book.enabled(rule) for rule in self._book.rules)
        self._journal.write("rules_switched", off=off)
        await self._bus.ask_all(RulesChanged())
        return self._book.public()

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        await self._engine.close()
