"""Publishes the agent's prompts, and writes its states to the journal.

Prompts are debounced before they are published: many dialogs close by themselves.
"""

from __future__ import annotations

import asyncio

from relay.eventbus import EventBus, handles
from relay.hooks.events import Prompting
from relay.state import question
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import DialogDismissed, PromptOver, StateChanged
from relay.state.readiness import Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal

STANDS = 0.8
"""Seconds that a prompt must stay on the screen: agents draw a dialog while a hook may still answer it."""

DISMISSED = 3.0
"""Seconds that a prompt must stay on the screen after relay has pressed the key that dismisses it."""


class Attention:
    """Publishes `prompting` when the agent asks something, and PromptOver afterwards."""

    def __init__(self, bus: EventBus, journal: Journal, terminal: AgentTerminal, state: AgentState) -> None:
        self._bus = bus
        self._journal = journal
        self._terminal = terminal
        self._state = state
        self._prompt: Verdict | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._published = False

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        verdict = event.verdict
        self._journal.write(
            "state",
            state=event.after,
            prompt=event.kind or None,
            rule=None if verdict is None else verdict.rule or None,
            reason=None if verdict is None else verdict.reason,
        )
        prompting = verdict is not None and verdict.state is Readiness.PROMPTING
        self._prompt = verdict if prompting else None
        self._cancel()
        if prompting:
            self._confirm_in(STANDS)
        elif self._published:
            self._published = False
            self._bus.publish(PromptOver())

    @handles(DialogDismissed)
    def dismissed(self, _: DialogDismissed) -> None:
        if self._timer is not None:
            self._cancel()
            self._confirm_in(DISMISSED)

    def _confirm_in(self, seconds: float) -> None:
        self._timer = self._bus.loop.call_later(seconds, self._confirm)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _confirm(self) -> None:
        self._timer = None
        before = self._prompt
        self._state.look()
        if before is None or self._prompt is not before:
            return  # it has gone, or another prompt with its own timer has replaced it
        self._published = True
        kind = "other" if before.kind is None else str(before.kind)
        lines = question.drawn(self._terminal) or before.lines or (before.reason,)
        self._bus.publish(Prompting(kind=kind, text="\n".join(lines)))
