"""What becomes known of the agent's state and of its turns."""

from __future__ import annotations

from dataclasses import dataclass

from relay.eventbus import Event
from relay.state.readiness import Verdict


@dataclass(frozen=True, slots=True)
class EvidenceChanged(Event):
    """The agent's hooks or its status reports say something new of its state."""


@dataclass(frozen=True, slots=True)
class StateJudged(Event):
    """The agent's state was looked at, whether it has changed or not."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StateChanged(Event):
    """The agent is in another state, or asks for something else. verdict: None where the system decided."""

    before: str
    after: str
    verdict: Verdict | None = None

    @property
    def kind(self) -> str:
        """What the agent asks for, a value of PromptKind; "" if it asks nothing, or nothing known."""
        return "" if self.verdict is None or self.verdict.kind is None else str(self.verdict.kind)


@dataclass(frozen=True, slots=True)
class PromptSubmitted(Event):
    """Something was submitted in the agent's terminal: by the user, or by relay."""

    by_user: bool


@dataclass(frozen=True, slots=True)
class TurnBegan(Event):
    """A turn of the agent begins that is not a continuation of the one before."""


@dataclass(frozen=True, slots=True)
class TurnDrawn(Event):
    """The screen shows that a turn is over of which no hook has told."""


@dataclass(frozen=True, slots=True)
class HooksAlive(Event):
    """The agent's own hooks have begun to speak, or have been silent for a whole turn."""

    alive: bool


@dataclass(frozen=True, slots=True)
class PromptOver(Event):
    """What the agent asked, of which `prompting` told, has been answered, or the agent has ended."""
