"""Runs the rules that were selected for an event, and says what came of each.

    rules ─┬─ deciders    one after another: each sees a tool's input as those before it have changed it
           ├─ observers   at once (events at which nothing can be decided)
           └─ background  started; nobody waits for them, and what they answer has no effect

A rule that stands before one that changes a tool's input has not seen what the tool will get.  So it is asked
again about that, and so is a rule that the changed input alone is matched by; what a rule has allowed before
does not count then, what it has refused does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from relay.hooks.result import Action, HookResult
from relay.rules import command, interpret
from relay.rules.event import EVENTS, RuleEvent
from relay.rules.fired import Fired, Ran
from relay.rules.payload import payload
from relay.rules.rule import Rule, Shape

DEADLINE = 85.0
"""Seconds for all rules of an event: the agent's own hook waits for 90 (relay.agents.hook_client.ANSWER)."""

AT_ONCE = 8
"""Commands that run at the same time, of one event's observers or in the background."""

WAITING = 64
"""Rules in the background that run or wait; one more is not started: they may come faster than they end."""

Select = Callable[[RuleEvent], Sequence[Rule]]

_log = logging.getLogger(__name__)


def _nobody(_: Ran) -> None:
    """Nobody wants to know."""


class Engine:
    """Runs rules for one session. All methods belong to the event loop's thread.

    directory: the project's; commands run there unless the event says where the agent is.
    env:       the environment of the agent.
    report:    called with each rule that has ended in the background.
    deadline:  seconds for all rules of an event that are waited for.
    """

    def __init__(
        self,
        directory: Path,
        env: Mapping[str, str],
        *,
        report: Callable[[Ran], None] = _nobody,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._env = env
        self._report = report
        self._deadline = deadline
        self._clock = clock
        self._background: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self, rules: Sequence[Rule], event: RuleEvent, *, select: Select | None = None) -> Fired:
        """Run `rules`, in firing order. Whatever goes wrong is the `problem` of a Ran. Cancelled, it ends
        what it has started.

        select: which rules an event is for (RuleBook.select), asked, on a thread, about a tool's input that a
                rule has changed.
        """
        payloads = _Payloads(event)
        due = self._clock() + self._deadline
        for rule in rules:
            if rule.background:
                self._start(rule, payloads)
        asked = [rule for rule in rules if not rule.background]
        if EVENTS[event.name].decides:
            ran = await self._decide(asked, payloads, due, select)
        else:
            ran = await self._observe(asked, payloads, due)
        background = (Ran(rule) for rule in rules if rule.background)
        return Fired(event, (*ran, *background))

    async def close(self) -> None:
        """End what still runs in the background."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _decide(
        self, rules: Sequence[Rule], payloads: _Payloads, due: float, select: Select | None
    ) -> list[Ran]:
        """Ask the rules in turn, from the first again where an input was changed, until each has seen the
        input that holds; one that has changed it is not asked again."""
        ran = [Ran(rule) for rule in rules]
        waiting = list(range(len(ran)))
        asked: set[int] = set()
        settled: set[int] = set()
        while waiting:
            turn = waiting.pop(0)
            answer = await self._one(ran[turn].rule, payloads, due)
            ran[turn] = _merged(ran[turn], answer) if turn in asked else answer
            asked.add(turn)
            changed = [each.updated_input for each in answer.results if each.updated_input is not None]
            if not changed or changed[-1] == payloads.event.data.get("tool_input"):
                continue
            settled.add(turn)
            payloads = payloads.changed(changed[-1])
            known = {each.rule.id for each in ran}
            found = await asyncio.to_thread(select, payloads.event) if select else ()
            ran += [Ran(rule) for rule in found if rule.id not in known and not rule.background]
            before, behind = range(turn), range(turn + 1, len(ran))
            _outdate(ran, before, {"allow"})
            _outdate(ran, behind, {"allow", "modify"})
            waiting = [each for each in (*behind, *before) if each not in settled]
        return ran

    async def _observe(self, rules: Sequence[Rule], payloads: _Payloads, due: float) -> list[Ran]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(rule: Rule) -> Ran:
            async with room:
                return await self._one(rule, payloads, due)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(rule)) for rule in rules]
        return [task.result() for task in tasks]

    async def _one(self, rule: Rule, payloads: _Payloads, due: float = float("inf")) -> Ran:
        if rule.kind == "prompt":
            return interpret.prompted(rule)
        left = due - self._clock()
        if left <= 0:
            why = f"It had no turn: the rules before it took the {self._deadline:g} s that an event has."
            return interpret.unasked(rule, why)
        try:
            told = payloads.of(rule.shape)
        except RecursionError:
            return interpret.unasked(rule, "What it is to read is nested too deeply to be written as JSON.")
        except ValueError:
            return interpret.unasked(rule, "What it is to read holds a number that JSON does not have.")
        output = await command.run(
            rule.command if rule.args is None else (rule.command, *rule.args),
            told,
            cwd=self._where(payloads.event),
            env={**self._env, "CLAUDE_PROJECT_DIR": str(self._project(rule))},
            timeout=min(rule.timeout, left),
        )
        return interpret.judge(rule, output)

    def _project(self, rule: Rule) -> Path:
        """The folder that a rule's scripts are found from: its file's, where that is the project's."""
        return rule.path.parent if rule.origin == "project" else self._directory

    def _where(self, event: RuleEvent) -> Path:
        """The agent's directory, or the project's where nothing can be run in that: an agent goes where it
        likes, and must not get around a rule by it."""
        cwd = event.data.get("cwd")
        if not isinstance(cwd, str):
            return self._directory
        runs = os.path.isdir(cwd) and os.access(cwd, os.X_OK)  # noqa: PTH112 (Path's raises if it may not look)
        return Path(cwd) if runs else self._directory

    def _start(self, rule: Rule, payloads: _Payloads) -> None:
        if len(self._background) >= WAITING:
            why = f"It was not started: {WAITING} rules in the background have not ended yet."
            self._report(Ran(rule, problem=why))
            return

        async def one() -> None:
            async with self._room:
                self._report(await self._one(rule, payloads))

        task = asyncio.ensure_future(one())
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a rule in the background failed", exc_info=error)


class _Payloads:
    """What the commands of an event read, made once for each shape of rules."""

    def __init__(self, event: RuleEvent) -> None:
        self.event = event
        self._made: dict[Shape, bytes] = {}

    def of(self, shape: Shape) -> bytes:
        if shape not in self._made:
            self._made[shape] = payload(shape, self.event)
        return self._made[shape]

    def changed(self, tool_input: Mapping[str, object]) -> _Payloads:
        """The same, with this as the tool's input."""
        return _Payloads(replace(self.event, data={**self.event.data, "tool_input": tool_input}))


def _outdate(ran: list[Ran], places: range, actions: Set[Action]) -> None:
    """Take back what these rules have said of an input that is no longer the tool's."""
    for place in places:
        held = tuple(each for each in ran[place].results if each.action not in actions)
        ran[place] = replace(ran[place], results=held)


def _merged(before: Ran, now: Ran) -> Ran:
    """A rule that was asked again: what it has said before, and what it says now beside that."""
    kept = before.results
    known = {(each.action, each.reason, each.context_injection, each.user_message) for each in kept}

    def is_new(each: HookResult) -> bool:
        return (each.action, each.reason, each.context_injection, each.user_message) not in known

    attachments = [*before.attachments, *(each for each in now.attachments if each not in before.attachments)]
    return replace(
        now,
        duration=before.duration + now.duration,
        problem=" ".join(dict.fromkeys(filter(None, (before.problem, now.problem)))),
        attachments=tuple(attachments),
        results=(*kept, *filter(is_new, now.results)),
    )
