"""Evidence of an agent's state from sources other than its screen."""

from __future__ import annotations

from typing import Literal

from relay.agents.profile import PromptKind
from relay.dataclass import dataclass
from relay.terminal.status import StatusRecord

_State = Literal["working", "ready", "prompting", "failed"]

_REPORTED: dict[str, _State] = {
    "working": "working",
    "idle": "ready",
    "done": "ready",
    "blocked": "prompting",
    "error": "failed",
}
_KINDS = {"permission": PromptKind.PERMISSION, "question": PromptKind.QUESTION}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The latest evidence of one source.

    source: the agent's own hooks, or its status reports (OSC 7501).
    kind:   the kind of prompt if prompting; None if unknown.
    detail: the tool it asks about, or the error that occurred: untrusted text to show to the user.
    age:    seconds since the source reported the state.
    """

    source: Literal["hooks", "status"]
    state: _State
    kind: PromptKind | None = None
    detail: str = ""
    age: float = 0.0


def reported(record: StatusRecord | None, now: float) -> Evidence | None:
    """Return the evidence in a status report (OSC 7501), or None. `now`: as `record.time`."""
    if record is None or record.state not in _REPORTED:
        return None
    state = _REPORTED[record.state]
    kind = _KINDS.get(record.kind, PromptKind.OTHER) if state == "prompting" else None
    return Evidence("status", state, kind, record.msg or record.title, now - record.time)
