"""Events about the agent's state and its turns."""

from __future__ import annotations

from typing import ClassVar

from relay.eventbus import Event
from relay.state.readiness import Verdict


class EvidenceChanged(Event):
    """The agent's hooks or status reports have new evidence of its state."""


class StateJudged(Event):
    """The agent's state was judged; it may be unchanged."""

    verdict: Verdict


class StateChanged(Event):
    """The agent's state has changed, or its prompt. verdict: None if it stopped or ended."""

    lasting: ClassVar[bool] = True

    before: str
    after: str
    verdict: Verdict | None = None

    @property
    def kind(self) -> str:
        """The kind of prompt that the agent shows, a value of PromptKind; "" if none or unknown."""
        return "" if self.verdict is None or self.verdict.kind is None else str(self.verdict.kind)


class PromptSubmitted(Event):
    """The user or relay has submitted something in the agent's terminal."""

    by_user: bool


class FirstTurnBegan(Event):
    """The agent's first turn begins: from here on, its words count."""


class TurnBegan(Event):
    """A new turn of the agent begins; a continuation of the last one does not count."""


class TurnOver(Event):
    """A turn of the agent is over, and its state has settled. well: it did not end with an error."""

    well: bool


class TurnDrawn(Event):
    """The screen shows the end of a turn, not reported by any hook."""


class HooksAlive(Event):
    """The agent's hooks have started to report, or have reported nothing for a whole turn."""

    lasting: ClassVar[bool] = True

    alive: bool


class DialogDismissed(Event):
    """relay has pressed the key that dismisses the dialog on the screen."""
