"""Events about the supervision of an agent."""

from __future__ import annotations

from typing import Literal

from relay.eventbus import Event, Question
from relay.supervision.accounts import AccountHold
from relay.supervision.restart import RestartDecision, RestartHistory
from relay.supervision.states import Phase

IncidentName = Literal["idle", "prompt", "error"]


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


class Incident(Event):
    """Something has happened to the running agent for which its policy has an action.

    cls:      the class of an error; "" for other incidents.
    reset_at: when a limit ends, in seconds since the epoch; None if that is not known.
    detail:   the agent's own words; "": none.
    """

    name: IncidentName
    cls: str = ""
    reset_at: float | None = None
    detail: str = ""


class Escalate(Event):
    """Bring something to the user's attention, wherever they look.

    what: a sentence that names the agent. how: what the user can do, in sentences; "" if nothing.
    kind: of the item in the user's inbox.
    """

    what: str
    how: str = ""
    kind: Literal["escalation", "held", "failed"] = "escalation"


class Hold(Event):
    """Give the agent nothing more until it is released. reason: "started 100 turns without your input"."""

    reason: str


class HoldOver(Event):
    """The user has let the agent continue."""


class EndAgent(Event):
    """End the agent as `relay stop` does, and leave it in `phase`. reason: as in PhaseEntered."""

    phase: Phase
    reason: str


class RestartAgent(Event):
    """End the agent, and start it again. resumes: with its conversation, if that is known."""

    resumes: bool = False


class RunCommand(Event):
    """Run `command` with /bin/sh beside the agent.

    gates: if it exits with 0, the agent is done; otherwise its output is the agent's next prompt.
    """

    command: str
    gates: bool


class HoldAccount(Event):
    """Hold all agents of this agent's account. cls, reason, until: as in AccountHold."""

    cls: str
    reason: str
    until: float | None = None


class AccountFreed(Event):
    """The account that this agent had held is no longer held."""


class AccountHeld(Question[AccountHold]):
    """Say why this agent's account is held; no answer if it is not."""
