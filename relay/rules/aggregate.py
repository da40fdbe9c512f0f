"""The outcome of an event: which rules ran, and what all of their answers come to.

    Fired ─┬─ user_prompt_submit ─→ UserPromptSubmitResult ─→ marker
           ├─ stop ───────────────→ StopHookResult
           ├─ tool ───────────────→ ToolResult
           └─ outcome ────────────→ "allow", "block" or "continue"

Texts of several rules stand in firing order; of several errors or reasons each has its rule's name in front.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from relay.hooks.result import Action, HookResult, decide, injected, joined
from relay.rules.answer import STOPPED, Attachment, AttachmentType, RuleRun
from relay.rules.event import EVENTS, RuleEvent

RuleOutcome = Literal["allow", "block", "continue"]
"""The end of an event. "continue": a rule has the agent go on with its turn, unless a cap is reached."""


@dataclass(frozen=True, slots=True)
class Fired:
    """An event and the rules that were selected for it, in firing order; `ran` is empty where none was."""

    event: RuleEvent
    ran: tuple[RuleRun, ...] = ()

    @property
    def matched_rule_count(self) -> int:
        """The number of rules that were selected, whatever became of them."""
        return len(self.ran)

    @property
    def results(self) -> list[HookResult]:
        return [result for run in self.ran for result in run.results]

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(attachment for run in self.ran for attachment in run.attachments)

    @property
    def halts(self) -> list[HookResult]:
        """The results that end the turn."""
        return [result for result in self.results if result.action == "halt"]

    def attached(self, kind: AttachmentType) -> list[Attachment]:
        """Return the attachments of one type."""
        return [each for each in self.attachments if each.attachment_type == kind]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The fields that the results of all events have in common.

    blocking_error:  why it must not happen; any rule can say so.
    stop_reason:     why a rule ends the turn, whatever the others say.
    suppress_output: the contexts are not shown to the user.
    messages:        every attachment.
    """

    blocking_error: str | None = None
    stop_reason: str | None = None
    additional_contexts: tuple[str, ...] = ()
    suppress_output: bool = False
    system_message: str | None = None
    messages: tuple[Attachment, ...] = ()
    matched_rule_count: int = 0

    def public(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class UserPromptSubmitResult(Aggregate):
    """The result for a prompt: a block, or contexts in front of it. prevent_continuation: the turn stops."""

    prevent_continuation: bool = False

    @property
    def marker(self) -> str | None:
        """The line that stands where the agent's answer would have stood; None where nothing was blocked."""
        if self.blocking_error is not None:
            return f"[Blocked by hook] {self.blocking_error}"
        if self.prevent_continuation:
            return f"[Hook stopped] {self.stop_reason or STOPPED}"
        return None


@dataclass(frozen=True, slots=True)
class StopHookResult(Aggregate):
    """The result for the end of a turn.

    force_continue: the agent goes on with `follow_up_message`, as its next user turn, and with the contexts.
    """

    force_continue: bool = False
    follow_up_message: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult(Aggregate):
    """The result for a tool call, or any other event.

    action, reason, updated_input: as in relay.hooks.result.Decision.
    """

    action: Action = "continue"
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    prevent_continuation: bool = False


def user_prompt_submit(fired: Fired) -> UserPromptSubmitResult:
    """Return what rules of UserPromptSubmit come to."""
    return UserPromptSubmitResult(**_common(fired), prevent_continuation=bool(fired.halts))


def stop(fired: Fired) -> StopHookResult:
    """Return what rules of Stop come to: one that ends the turn outranks those that go on with it."""
    going_on = [] if fired.halts else [result for result in fired.results if result.force_continue]
    follow_ups = injected(each for each in going_on if each.context_injection_role == "user")
    return StopHookResult(
        **_common(fired), force_continue=bool(going_on), follow_up_message="\n".join(follow_ups) or None
    )


def tool(fired: Fired) -> ToolResult:
    """Return what rules of any other event come to."""
    decision = decide(fired.results)
    return ToolResult(
        **_common(fired),
        action=decision.action,
        reason=decision.reason,
        updated_input=None if decision.updated_input is None else dict(decision.updated_input),
        prevent_continuation=bool(fired.halts),
    )


def aggregate(fired: Fired) -> UserPromptSubmitResult | StopHookResult | ToolResult:
    """Return what the rules of `fired` come to, in the words of its event."""
    match fired.event.name:
        case "UserPromptSubmit":
            return user_prompt_submit(fired)
        case "Stop":
            return stop(fired)
        case _:
            return tool(fired)


def outcome(fired: Fired) -> RuleOutcome:
    """Return what became of the event. A tool call that the user has to be asked about counts as blocked."""
    if fired.event.name not in EVENTS or not EVENTS[fired.event.name].decides:
        return "allow"
    if fired.event.name == "Stop" and stop(fired).force_continue:
        return "continue"
    if fired.event.name == "SessionStart":
        return "allow"  # a session that has started has started
    blocked = decide(fired.results).refused or fired.attached("hook_blocking_error")
    return "block" if blocked else "allow"


def _common(fired: Fired) -> dict[str, Any]:
    return {
        "blocking_error": _joined(
            (each.rule, each.content) for each in fired.attached("hook_blocking_error")
        ),
        "stop_reason": _joined((each.source, each.reason or STOPPED) for each in fired.halts),
        "additional_contexts": tuple(each.content for each in fired.attached("hook_additional_context")),
        "suppress_output": any(result.suppress_output for result in fired.results),
        "system_message": _joined(
            (each.source, each.user_message) for each in fired.results if each.user_message
        ),
        "messages": fired.attachments,
        "matched_rule_count": fired.matched_rule_count,
    }


def _joined(texts: Iterable[tuple[str, str]]) -> str | None:
    return joined(every) if (every := list(texts)) else None
