"""What came of an event: which rules ran, what each answered, and what all of it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from relay.hooks.result import HookResult
from relay.rules.event import RuleEvent
from relay.rules.rule import Rule

AttachmentType = Literal[
    "hook_additional_context", "hook_success", "hook_stopped_continuation", "hook_blocking_error"
]


@dataclass(frozen=True, slots=True)
class Attachment:
    """One thing that a rule answered. rule: its name."""

    attachment_type: AttachmentType
    content: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """One rule that was run, or was to be.

    exit_code:   of its command; None of a prompt, and where it did not end by itself.
    duration:    seconds.
    stdout, stderr: what it printed, at most as much as is kept of it.
    problem:     why it had no effect, or not all that it was to have, in one sentence for its author; or "".
    attachments, results: what it answered, in both words; `source` of a result is the rule's name.
    """

    rule: Rule
    exit_code: int | None = None
    duration: float = 0.0
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    attachments: tuple[Attachment, ...] = ()
    results: tuple[HookResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Fired:
    """An event and the rules that were selected for it, in firing order; `ran` is empty where none was."""

    event: RuleEvent
    ran: tuple[Ran, ...] = field(default=())

    @property
    def matched_rule_count(self) -> int:
        """How many rules were selected, whatever became of them."""
        return len(self.ran)

    @property
    def results(self) -> list[HookResult]:
        return [result for each in self.ran for result in each.results]
