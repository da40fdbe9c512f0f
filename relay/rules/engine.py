"""The engine: runs the rules that were selected for an event, and collects their answers.

    rules ─┬─ deciders    one after another: each sees a tool's input as changed by the rules before it
           ├─ observers   all at once (for events at which nothing can be decided)
           └─ background  started; nothing waits for them, and their answers have no effect

When a rule changes a tool's input, the rules before it have not seen what the tool will get. So they are
asked again, and so are rules that match only the changed input; an earlier allowance then no longer counts,
but an earlier refusal does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

from relay.dataclass import dataclass, field, replace
from relay.eventbus import EventBus
from relay.hooks.result import Action, HookResult
from relay.rules import answer, command
from relay.rules.aggregate import Fired
from relay.rules.answer import RuleRun
from relay.rules.event import EVENTS, RuleEvent, Shape, payload
from relay.rules.events import RuleEnded
from relay.rules.rule import Rule

DEADLINE = 85.0
"""Seconds for all rules of an event: the agent's hook waits for 90 (relay.agents.hook_client.ANSWER)."""

AT_ONCE = 8
"""Maximum number of commands that run at once, of one event's observers or in the background."""

WAITING = 64
"""Maximum number of background rules that run or wait; more are not started: events may outpace them."""

PROJECT = "${CLAUDE_PROJECT_DIR}"
"""The project's directory in a rule with `args`, which no shell reads (Claude Code's documentation)."""

Select = Callable[[RuleEvent], Sequence[Rule]]

_log = logging.getLogger(__name__)


class Engine:
    """The engine of one session. Call its methods in the event loop's thread.

    directory: the project's; commands run there unless the event names the agent's directory.
    env:       the agent's environment.
    bus:       gets RuleEnded for each background run; None: such runs go unreported.
    deadline:  seconds for all rules of an event together, except background rules.
    """

    def __init__(
        self,
        directory: Path,
        env: Mapping[str, str],
        bus: EventBus | None = None,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._env = env
        self._bus = bus
        self._deadline = deadline
        self._clock = clock
        self._background: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self, rules: Sequence[Rule], event: RuleEvent, *, select: Select | None = None) -> Fired:
        """Run `rules`, in firing order. The failure of a rule is the `problem` of its RuleRun.

        When cancelled, kill the commands that were started.

        select: returns the rules for an event (RuleBook.select); called in a thread after a rule has changed
                a tool's input.
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
        background = (RuleRun(rule) for rule in rules if rule.background)
        return Fired(event, (*ran, *background))

    async def close(self) -> None:
        """Kill the rules that are still running in the background."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _decide(
        self, rules: Sequence[Rule], payloads: _Payloads, due: float, select: Select | None
    ) -> list[RuleRun]:
        """Ask the rules in turn until each has seen the final input, or has changed the input itself."""
        ran = [RuleRun(rule) for rule in rules]
        waiting = list(range(len(ran)))
        asked: set[int] = set()
        settled: set[int] = set()
        while waiting:
            turn = waiting.pop(0)
            run = await self._one(ran[turn].rule, payloads, due)
            ran[turn] = _merged(ran[turn], run) if turn in asked else run
            asked.add(turn)
            changed = [each.updated_input for each in run.results if each.updated_input is not None]
            if not changed or changed[-1] == payloads.event.data.get("tool_input"):
                continue
            settled.add(turn)
            data = {**payloads.event.data, "tool_input": changed[-1]}
            payloads = _Payloads(replace(payloads.event, data=data))
            known = {each.rule.id for each in ran}
            found = await asyncio.to_thread(select, payloads.event) if select else ()
            ran += [RuleRun(rule) for rule in found if rule.id not in known and not rule.background]
            before, behind = range(turn), range(turn + 1, len(ran))
            _outdate(ran, before, {"allow"})
            _outdate(ran, behind, {"allow", "modify"})
            waiting = [each for each in (*behind, *before) if each not in settled]
        return ran

    async def _observe(self, rules: Sequence[Rule], payloads: _Payloads, due: float) -> list[RuleRun]:
        room = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._in(room, rule, payloads, due)) for rule in rules]
        return [task.result() for task in tasks]

    async def _in(
        self, room: asyncio.Semaphore, rule: Rule, payloads: _Payloads, due: float = float("inf")
    ) -> RuleRun:
        async with room:
            return await self._one(rule, payloads, due)

    async def _one(self, rule: Rule, payloads: _Payloads, due: float) -> RuleRun:
        if rule.kind == "prompt":
            return answer.prompted(rule)
        left = due - self._clock()
        if left <= 0:
            why = f"It did not run: the rules before it used up the event's {self._deadline:g} s."
            return answer.unasked(rule, why)
        try:
            stdin = payloads.of(rule.shape)
        except RecursionError:
            return answer.unasked(rule, "Its input is nested too deeply for JSON.")
        except ValueError:
            return answer.unasked(rule, "Its input contains a number that JSON cannot express.")
        # Where a rule finds its scripts: beside its file in a project, else in the session's directory.
        project = rule.path.parent if rule.origin == "project" else self._directory
        words = None if rule.args is None else [rule.command, *rule.args]
        output = await command.run(
            rule.command if words is None else [each.replace(PROJECT, str(project)) for each in words],
            stdin,
            cwd=self._where(payloads.event),
            env={**self._env, "CLAUDE_PROJECT_DIR": str(project)},
            timeout=min(rule.timeout, left),
        )
        return answer.judge(rule, output)

    def _where(self, event: RuleEvent) -> Path:
        """Return the agent's directory, or the project's if nothing can run there.

        An agent may go to any directory, and must not evade a rule that way.
        """
        cwd = event.data.get("cwd")
        if not isinstance(cwd, str):
            return self._directory
        runs = os.path.isdir(cwd) and os.access(cwd, os.X_OK)  # noqa: PTH112 (Path's raises if it may not look)
        return Path(cwd) if runs else self._directory

    def _start(self, rule: Rule, payloads: _Payloads) -> None:
        if len(self._background) >= WAITING:
            why = f"It was not started: {WAITING} rules in the background have not finished yet."
            self._report(RuleRun(rule, problem=why))
            return
        task = asyncio.ensure_future(self._behind(rule, payloads))
        self._background.add(task)
        task.add_done_callback(self._ended)

    async def _behind(self, rule: Rule, payloads: _Payloads) -> None:
        self._report(await self._in(self._room, rule, payloads))

    def _report(self, ran: RuleRun) -> None:
        if self._bus is not None:
            self._bus.publish(RuleEnded(ran))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a rule in the background failed", exc_info=error)


@dataclass(slots=True)
class _Payloads:
    """The payloads of an event, encoded once for each shape of rules."""

    event: RuleEvent
    _made: dict[Shape, bytes] = field(default_factory=dict)

    def of(self, shape: Shape) -> bytes:
        if shape not in self._made:
            self._made[shape] = payload(shape, self.event)
        return self._made[shape]


def _outdate(ran: list[RuleRun], places: range, actions: Set[Action]) -> None:
    """Drop these rules' answers to a tool's input that has since changed."""
    for place in places:
        held = tuple(each for each in ran[place].results if each.action not in actions)
        ran[place] = replace(ran[place], results=held)


def _merged(before: RuleRun, now: RuleRun) -> RuleRun:
    """Merge two runs of a rule that was asked again: its earlier answers, plus what is new in the later."""

    def key(each: HookResult) -> tuple[object, ...]:
        return (each.action, each.reason, each.context_injection, each.user_message)

    known = set(map(key, before.results))
    attachments = [*before.attachments, *(each for each in now.attachments if each not in before.attachments)]
    return replace(
        now,
        duration=before.duration + now.duration,
        problem=" ".join(dict.fromkeys(filter(None, (before.problem, now.problem)))),
        attachments=tuple(attachments),
        results=(*before.results, *(each for each in now.results if key(each) not in known)),
    )
