"""What somebody else than the screen says about an agent's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relay.detection.state import PromptKind


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
