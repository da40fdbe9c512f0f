"""Keeps the agent's state up to date: judges it whenever it may have changed."""

from __future__ import annotations

import asyncio
from typing import Any

from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe
from relay.state.events import EvidenceChanged, PromptSubmitted, StateJudged
from relay.state.readiness import Readiness
from relay.state.states import AgentState
from relay.terminal.events import (
    AgentExited,
    AgentResumed,
    AgentSuspended,
    KeysTyped,
    OutputQuiet,
    OutputRead,
    ReadingFailed,
)

LATE = 0.02
"""Seconds to add to a verdict's `wait` before the state is judged again."""


class StateTracker:
    """Judges `state` when output stops, when other evidence comes, and when time alone may change it."""

    def __init__(self, bus: EventBus, state: AgentState) -> None:
        self._bus = bus
        self._state = state
        self._again: asyncio.TimerHandle | None = None

    @handles(OutputRead)
    def output(self, _: OutputRead) -> None:
        self._state.resume()

    @handles(AgentResumed)
    def resumed(self, _: AgentResumed) -> None:
        self._state.resume()
        self._state.look()

    @handles(OutputQuiet, EvidenceChanged)
    def look(self, _: object) -> None:
        self._state.look()

    @handles(KeysTyped)
    def keys(self, event: KeysTyped) -> None:
        # An answer to a dialog, such as which session to resume, is not a prompt.
        if (b"\r" in event.data or b"\n" in event.data) and self._state.name != Readiness.PROMPTING:
            self._bus.publish(PromptSubmitted(by_user=True))

    @handles(AgentSuspended)
    def suspended(self, _: AgentSuspended) -> None:
        self._state.suspend()

    @handles(ReadingFailed)
    def reading_failed(self, _: ReadingFailed) -> None:
        self._state.blind("relay can no longer read its screen, so it types nothing into it")

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._state.end()
        if self._again is not None:
            self._again.cancel()

    @handles(StateJudged)
    def judged(self, event: StateJudged) -> None:
        if self._again is not None:
            self._again.cancel()
        if event.verdict.wait is not None:  # no event would announce that change
            self._again = self._bus.loop.call_later(event.verdict.wait + LATE, self._state.look)

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        name, verdict = self._state.look(), self._state.verdict
        if question.brief:
            return {"state": name, "prompt": self._state.prompt, "since": self._state.since}
        return {
            "state": name,
            "reason": self._state.reason,
            "prompt": self._state.prompt,
            "rule": "" if verdict is None else verdict.rule,
            "lines": [] if verdict is None else list(verdict.lines),
        }
