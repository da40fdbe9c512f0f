"""Evidence of an agent's state from other sources than its screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relay.agents.profile import PromptKind
from relay.terminal.status import StatusRecord

_REPORTED: dict[str, Literal["working", "ready", "prompting", "failed"]] = {
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
    kind:   with prompting, the kind of prompt, if that is known.
    detail: for people: the tool that it asks about, the error that it met; untrusted text.
    age:    in seconds.
    """

    source: Literal["hooks", "status"]
    state: Literal["working", "ready", "prompting", "failed"]
    kind: PromptKind | None = None
    detail: str = ""
    age: float = 0.0


def reported(record: StatusRecord | None, now: float) -> Evidence | None:
    """Return the evidence in a program's status report (OSC 7501); `now` is on the clock of `record.time`."""
    if record is None or record.state not in _REPORTED:
        return None
    state = _REPORTED[record.state]
    kind = _KINDS.get(record.kind, PromptKind.OTHER) if state == "prompting" else None
    return Evidence("status", state, kind, record.msg or record.title, now - record.time)
