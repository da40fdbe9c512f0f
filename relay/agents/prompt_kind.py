"""What an agent may ask for."""

from __future__ import annotations

from enum import StrEnum


class PromptKind(StrEnum):
    """The kind of a dialog: what its answer decides."""

    PERMISSION = "permission"  # whether a tool may run
    PLAN_APPROVAL = "plan_approval"  # whether a plan is carried out
    QUESTION = "question"  # what the agent wants to know
    OTHER = "other"
