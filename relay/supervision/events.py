"""Events about the supervision of an agent."""

from __future__ import annotations

from dataclasses import dataclass

from relay.eventbus import Event
from relay.supervision.restart import RestartDecision, RestartHistory
from relay.supervision.states import Phase


@dataclass(frozen=True, slots=True)
class PhaseEntered(Event):
    """The agent is in another phase. The other fields are those of relay.supervision.records.AgentRecord."""

    phase: Phase
    reason: str = ""
    exit_code: int | None = None
    next_try: float | None = None
    note: str = ""
    history: RestartHistory | None = None

    @classmethod
    def decided(cls, decision: RestartDecision, code: int) -> PhaseEntered:
        """Return the event for the decision about an agent that has ended with `code`."""
        return cls(decision.phase, decision.reason, code, decision.at, decision.note, decision.history)
