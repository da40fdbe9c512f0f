"""What somebody else than the screen says about an agent's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relay.agents.profile import PromptKind
from relay.terminal.status import Record

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
    """One source's last word.

    source: the agent's own hooks, or its status reports (OSC 7501).
    kind:   with prompting, what it asks for, if that is known.
    detail: for a person: the tool it asks for, the error it met; untrusted text.
    age:    seconds since it was said.
    """

    source: Literal["hooks", "status"]
    state: Literal["working", "ready", "prompting", "failed"]
    kind: PromptKind | None = None
    detail: str = ""
    age: float = 0.0


def reported(record: Record | None, now: float) -> Evidence | None:
    """What a program's status report (OSC 7501) says of its state; `now` is of the clock of `record.time`."""
    if record is None or record.state not in _REPORTED:
        return None
    state = _REPORTED[record.state]
    kind = _KINDS.get(record.kind, PromptKind.OTHER) if state == "prompting" else None
    return Evidence("status", state, kind, record.msg or record.title, now - record.time)
