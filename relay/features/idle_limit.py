"""Limits handlers of `idle`: an agent that answers a nudge becomes idle again, and so on.

After a number of idle periods in a row in which handlers injected something, their injections are dropped
until the user submits a prompt, or a message begins a turn.
"""

from __future__ import annotations

from typing import Any

from relay.eventbus import EventBus, answers, handles
from relay.hooks.events import Idle
from relay.injection.events import Inject, Withdraw
from relay.injection.injection import Injection
from relay.lifecycle import Describe
from relay.messaging.events import MessageGiven
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted
from relay.terminal.events import Notify
from relay.text import count


class IdleLimit:
    """Limits the idle handlers of one session. most: idle periods in a row with injections."""

    def __init__(self, bus: EventBus, terminal: AgentTerminal, *, most: int) -> None:
        self._bus = bus
        self._terminal = terminal
        self._most = most
        self._periods = 0
        self._counted = self._told = False
        self._dropped = 0

    @handles(Idle)
    def idle(self, _: Idle) -> None:
        self._counted = False

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        if not _of_idle(event.injection):
            return
        if not self._counted:
            self._counted = True
            self._periods += 1
        if self._periods > self._most:
            self._dropped += 1
            self._bus.publish(Withdraw(event.injection.id))
            self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            text = (
                f"idle handlers have injected something {count(self._most, 'time')} in a row, with no other "
                "input. relay drops their injections until you submit a prompt or a message arrives."
            )
            self._bus.publish(Notify(text))

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if event.by_user and not self._terminal.replaying:
            self._begin_anew()

    @handles(MessageGiven)
    def given(self, event: MessageGiven) -> None:
        if event.begins:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._periods = self._dropped = 0
        self._told = False

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return {"idle_dropped": self._dropped} if self._dropped and not question.brief else None


def _of_idle(injection: Injection) -> bool:
    # What a handler injects after it has returned has no event, but still the handler's name.
    return injection.kind == "hook" and (injection.event == Idle.name or "(on idle)" in injection.source)
