"""Holds a running agent: relay gives it nothing more until the user releases it.

Hold ─→ noted, HELD, escalated ─→ the user's prompt, `relay release --agent`, `relay restart` ─→ HoldOver
MayBegin ─→ refused for now, except for closing prompts
"""

from __future__ import annotations

from typing import Any

from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import MayBegin, TryAgain
from relay.lifecycle import Describe, SessionBegan, SessionClosed, StopRequested
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted
from relay.supervision.events import Escalate, Hold, HoldOver, PhaseEntered
from relay.supervision.notebook import Notebook
from relay.supervision.states import Phase
from relay.terminal.events import AgentExited, KeyChosen


class Holds:
    """The hold of the agent `name`, which outlasts one run of the agent."""

    def __init__(self, bus: EventBus, terminal: AgentTerminal, notes: Notebook, *, name: str) -> None:
        self._bus = bus
        self._terminal = terminal
        self._notes = notes
        self._name = name
        self._reason = ""
        self._exited = False

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Continue with the hold of an earlier session."""
        if reason := str(self._notes.read().get("reason", "")):
            self._bus.publish(Hold(reason))

    @handles(Hold)
    def hold(self, event: Hold) -> None:
        if self._reason:
            return
        known = self._notes.read().get("reason") == event.reason
        self._reason = event.reason
        self._notes.write({"reason": event.reason})
        self._bus.publish(PhaseEntered(Phase.HELD, event.reason, note=f"held until {self._way_out}"))
        if not known:
            self._bus.publish(Escalate(f"{self._name} {event.reason}, and is held.", f"{self._advice}."))

    @property
    def _way_out(self) -> str:
        return f"you type a prompt into its terminal, or run `relay release --agent {self._name}`"

    @property
    def _advice(self) -> str:
        return (
            "To let it continue, type a prompt into its terminal, or run `relay release --agent "
            f"{self._name}`"
        )

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        if self._reason and question.injection.kind != "closing":
            raise RelayError(f"it is held: it {self._reason}. {self._advice}")

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if event.by_user and not self._terminal.replaying:
            self._end()

    @handles(StopRequested)
    def restarting(self, event: StopRequested) -> None:
        """End the hold: a restart by the user lets the next agent continue."""
        if event.again and event.by_user:
            self._end()

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._exited = True

    @operation("release")
    async def release(self, _: Request) -> Answer:
        """Let the agent continue, or restart it if it has ended and is held."""
        held = bool(self._reason)
        self._end()
        if self._exited:
            self._bus.publish(KeyChosen("r"))
        return {"ok": True, "held": held or self._exited}

    def _end(self) -> None:
        if not self._reason:
            return
        self._reason = ""
        self._notes.remove()
        if not self._exited:
            self._bus.publish(PhaseEntered(Phase.UP))
        self._bus.publish(HoldOver())
        self._bus.publish(TryAgain())

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return {"hold": self._reason} if self._reason and not question.brief else None

    @answers(SessionClosed)
    async def close(self, event: SessionClosed, __: object) -> None:
        if event.ended:
            self._notes.remove()
