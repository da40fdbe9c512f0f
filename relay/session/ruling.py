"""The rules of hooks.json files in one session: fired at what the agent does, and each firing written down.

    an event of the agent's own hooks ─┐
                                       ├→ RuleEvent ─→ RuleBook ─→ Engine ─→ Fired ─→ who asked decides
    what the session sees by itself  ──┘                              └─→ "hook_fired" in the journal

Where an agent's hooks tell of an event, they alone do; else those of DERIVED come from the session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from relay.home import Home
from relay.hooks.result import Level
from relay.rules import aggregate
from relay.rules.aggregate import Fired
from relay.rules.answer import RuleRun
from relay.rules.engine import Engine
from relay.rules.event import RuleEvent
from relay.rules.rule import Rule
from relay.rules.rule_book import RuleBook
from relay.session.giving import Giving
from relay.session.terminals import Terminals
from relay.storage.journal import Journal, preview
from relay.text import count

DERIVED = frozenset({"SessionStart", "SessionEnd", "UserPromptSubmit", "Stop"})
"""Events that the session tells of where the agent's own hooks do not (docs/RULES.md says how well)."""


TOLD = 5
"""Different problems of one rule that the person is told of; each may quote what a command printed."""


class Subject(Protocol):
    """The session, as far as its rules need it."""

    id: str
    journal: Journal
    giving: Giving
    terminals: Terminals

    def tell_person(self, text: str, *, level: Level = "info") -> None: ...


class Load(Protocol):
    """Reads the files, as at the session's start; see RuleBook.load about `last`."""

    def __call__(self, *, last: RuleBook) -> RuleBook: ...


class Ruling:
    """The rules of one session.

    env:  the environment of the agent.
    load: reads the files anew.
    full: what commands print is written down whole, else a preview of it.
    """

    def __init__(
        self,
        session: Subject,
        rules: RuleBook,
        *,
        directory: Path,
        env: Mapping[str, str],
        load: Load,
        full: bool,
    ) -> None:
        self.book = rules
        self._session = session
        self._engine = Engine(directory, env, report=self._on_background)
        self._directory = directory
        self._load = load
        self._full = full
        self._running: list[tuple[str, float]] = []  # events, and since when (seconds of the steady clock)
        self._told: dict[str, set[str]] = {}  # problems by their rule

    async def fire(self, event: RuleEvent | None) -> Fired:
        """Run the rules for `event`; what they tell the person is told. None: it is no event of rules."""
        if event is None:
            return Fired(RuleEvent(""))
        if not self.has(event.name):
            return Fired(event)
        select = partial(self._select, asyncio.get_running_loop())
        rules = await asyncio.to_thread(select, event)
        if not rules:
            return Fired(event)
        began = (event.name, time.monotonic())
        self._running.append(began)
        try:
            fired = await self._engine.run(rules, event, select=select)
        finally:
            self._running.remove(began)
        for ran in fired.ran:
            self._complain(ran)
        for result in fired.results:
            self._session.giving.show(result)
        return fired

    @property
    def description(self) -> str:
        """For a person: how many rules there are, and which are being waited for; "" where there are none."""
        enabled = sum(map(self.book.enabled, self.book.rules))
        if not enabled:
            return ""
        now = time.monotonic()
        waited = [f"those of {name} have run for {now - began:.0f} s" for name, began in self._running]
        return "; ".join([f"{count(enabled, 'rule')} in force", *waited])

    def has(self, name: str) -> bool:
        """Whether there are rules for the event `name` at all."""
        return any(rule.event == name and self.book.enabled(rule) for rule in self.book.rules)

    def _select(self, loop: asyncio.AbstractEventLoop, event: RuleEvent) -> list[Rule]:
        """On a thread: a matcher may take its time over a long text."""

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(partial(self._session.tell_person, text, level="warning"))

        return self.book.select(event, tell)

    def note(self, fired: Fired, outcome: str = "", **fields: Any) -> None:
        """Write down that rules were fired, with what came of it; nothing where no rule was selected (R30).

        outcome: if it is not what the rules' answers come to by themselves.
        """
        if not fired.matched_rule_count:
            return
        quiet = any(result.suppress_output for result in fired.results)
        self._session.journal.write(
            "hook_fired",
            hook_name=fired.event.name,
            outcome=outcome or aggregate.outcome(fired),
            matched_rule_count=fired.matched_rule_count,
            **fields,
            rules=[self._shown(ran, quiet=quiet) for ran in fired.ran],
        )

    def derived(self, name: str, **data: Any) -> RuleEvent:
        """The event `name` as the session tells of it, with Claude Code's fields."""
        common = {
            "session_id": self._session.id,
            "transcript_path": "",
            "cwd": str(self._directory),
            "hook_event_name": name,
        }
        return RuleEvent(name, {**common, **data})

    def reload(self) -> RuleBook:
        """Read the files anew; what is wrong in them, and what stays in force therefore, is in the book's
        warnings."""
        before = self.book.warnings
        self.book = self._load(last=self.book)
        for warning in before:
            if warning not in self.book.warnings:
                self._session.terminals.forget(str(warning))
        self._told.clear()
        self._session.journal.write(
            "rules_reloaded", rules=len(self.book.rules), warnings=[str(each) for each in self.book.warnings]
        )
        return self.book

    def switch(self, home: Home) -> RuleBook:
        """Look anew at which rules are switched off; the rules stay as they were loaded."""
        self.book = self.book.switched(home)
        self._session.journal.write(
            "rules_switched", off=sum(not self.book.enabled(rule) for rule in self.book.rules)
        )
        return self.book

    async def close(self) -> None:
        """End what still runs."""
        await self._engine.close()

    def _on_background(self, ran: RuleRun) -> None:
        """A rule that nobody waited for has ended."""
        self._session.journal.write("hook_ended", hook_name=ran.rule.event, **self._shown(ran, quiet=False))
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
        """Tell the person what is wrong with a rule, once each; the journal has all of it."""
        told = self._told.setdefault(ran.rule.id, set())
        if ran.problem and ran.problem not in told and len(told) < TOLD:
            told.add(ran.problem)
            text = f"{ran.rule.place}: {ran.rule.name} at {ran.rule.event}: {ran.problem}"
            self._session.tell_person(text, level="warning")
