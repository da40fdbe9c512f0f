"""Detects an agent that repeats the same tool call, and one that works without output."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from relay.agents.events import HookReported
from relay.agents.hook_event import NativeName
from relay.clock import Clock
from relay.eventbus import EventBus, handles
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import StateChanged, TurnBegan
from relay.state.readiness import Readiness
from relay.supervision.events import Escalate, Hold, HoldOver
from relay.supervision.restart import span
from relay.terminal.events import AgentExited
from relay.text import one_line

SAME_CALLS = 8
"""Equal tool calls in a row that count as a loop. An agent may poll something a few times; one that repeats a
call eight times, with nothing in between, does not use the results."""

SILENCE = 900.0
"""Seconds without output from a working agent. Agents animate while they work, so this one may hang; it may
also wait for a slow tool, so relay tells the user and leaves the agent alone."""

_SUBAGENTS = 64  # whose calls are followed, at most


class LoopWatch:
    """Watches the agent `name`. draws: relay knows its screen; a program that prints lines may be silent."""

    def __init__(
        self, bus: EventBus, terminal: AgentTerminal, *, name: str, draws: bool, clock: Clock | None = None
    ) -> None:
        self._bus = bus
        self._terminal = terminal
        self._name = name
        self._draws = draws
        self._clock = clock or Clock()
        self._calls: dict[str, tuple[str, int]] = {}  # by subagent: the last call, and how often in a row
        self._timer: asyncio.TimerHandle | None = None

    @handles(TurnBegan, HoldOver)
    def begin_anew(self, _: object) -> None:
        self._calls.clear()

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        call = event.event
        if call.name is not NativeName.TOOL_PRE:
            return
        digest = _digest(call.tool_name, call.tool_input)
        last, times = self._calls.get(call.agent_id, ("", 0))
        times = times + 1 if digest == last else 1
        if len(self._calls) >= _SUBAGENTS:
            self._calls.clear()
        self._calls[call.agent_id] = digest, times
        if times == SAME_CALLS:
            tool = one_line(call.tool_name, 40)
            self._bus.publish(Hold(f"made the same call of {tool} {times} times in a row"))

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        self._cancel()
        if self._draws and event.after == Readiness.WORKING:
            self._timer = self._clock.later(SILENCE, self._look)

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._cancel()

    def _look(self) -> None:
        quiet = self._clock.now() - self._terminal.last_output()
        if quiet < SILENCE:
            self._timer = self._clock.later(SILENCE - quiet, self._look)
            return
        self._timer = None
        what = f"{self._name} has been working for {span(SILENCE)} without output."
        self._bus.publish(
            Escalate(what, f"`relay attach {self._name}` shows what it is doing. relay leaves it alone.")
        )

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _digest(tool: str, given: Mapping[str, Any]) -> str:
    text = json.dumps([tool, given], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
