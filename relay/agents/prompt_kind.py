"""The kinds of prompts that an agent shows to its user."""

from __future__ import annotations

from enum import StrEnum


class PromptKind(StrEnum):
    """The kind of a dialog, by what its answer decides."""

    PERMISSION = "permission"  # whether a tool may run
    PLAN_APPROVAL = "plan_approval"  # whether a plan is carried out
    QUESTION = "question"  # what the agent wants to know
    OTHER = "other"
