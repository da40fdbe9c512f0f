"""What all rules of an event come to, in the words of its kind of event.

    Fired ─┬─ user_prompt_submit ─→ UserPromptSubmitResult ─→ marker
           ├─ stop ───────────────→ StopHookResult
           ├─ tool ───────────────→ ToolResult
           └─ outcome ────────────→ "allow", "block" or "continue"

Texts of several rules stand in firing order; errors and reasons of several have the rules' names before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from relay.hooks.result import Action, HookResult, decide, injected
from relay.rules.event import EVENTS
from relay.rules.fired import Attachment, AttachmentType, Fired
from relay.rules.interpret import STOPPED

Outcome = Literal["allow", "block", "continue"]
"""What became of an event. "continue": a rule has the agent go on with its turn, unless a cap is reached."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What the results of all events have in common.

    blocking_error:  why it must not happen; any rule can say so.
    stop_reason:     why a rule ends the turn, whatever the others say.
    suppress_output: the contexts are not shown to the person.
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
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class UserPromptSubmitResult(Aggregate):
    """Whether a prompt is submitted, and with what before it. prevent_continuation: a rule stops the turn."""

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
    """Whether the turn ends. force_continue: it does not; the agent goes on with `follow_up_message`, as its
    next user turn, and with the contexts."""

    force_continue: bool = False
    follow_up_message: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult(Aggregate):
    """What happens around a tool call; of the other events what their rules told.

    action, reason, updated_input: as relay.hooks.result.Decision has them.
    """

    action: Action = "continue"
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    prevent_continuation: bool = False


def user_prompt_submit(fired: Fired) -> UserPromptSubmitResult:
    """What rules of UserPromptSubmit come to."""
    return UserPromptSubmitResult(**_common(fired), prevent_continuation=bool(_halts(fired)))


def stop(fired: Fired) -> StopHookResult:
    """What rules of Stop come to: one that ends the turn outranks those that go on with it."""
    going_on = [] if _halts(fired) else [result for result in fired.results if result.force_continue]
    follow_ups = injected(each for each in going_on if each.context_injection_role == "user")
    return StopHookResult(
        **_common(fired), force_continue=bool(going_on), follow_up_message="\n".join(follow_ups) or None
    )


def tool(fired: Fired) -> ToolResult:
    """What rules of any other event come to."""
    decision = decide(fired.results)
    return ToolResult(
        **_common(fired),
        action=decision.action,
        reason=decision.reason,
        updated_input=None if decision.updated_input is None else dict(decision.updated_input),
        prevent_continuation=bool(_halts(fired)),
    )


def _common(fired: Fired) -> dict[str, Any]:
    return {
        "blocking_error": _blocking_error(fired),
        "stop_reason": _stop_reason(_halts(fired)),
        "additional_contexts": _contexts(fired),
        "suppress_output": _suppressed(fired),
        "system_message": _system_message(fired),
        "messages": _messages(fired),
        "matched_rule_count": fired.matched_rule_count,
    }


def aggregate(fired: Fired) -> UserPromptSubmitResult | StopHookResult | ToolResult:
    """What the rules of `fired` come to, in the words of its event."""
    match fired.event.name:
        case "UserPromptSubmit":
            return user_prompt_submit(fired)
        case "Stop":
            return stop(fired)
        case _:
            return tool(fired)


def outcome(fired: Fired) -> Outcome:
    """What became of it. A tool call for which the person is to be asked counts as blocked."""
    if fired.event.name not in EVENTS or not EVENTS[fired.event.name].decides:
        return "allow"
    if fired.event.name == "Stop" and stop(fired).force_continue:
        return "continue"
    if fired.event.name == "SessionStart":
        return "allow"  # a session that has started has started
    blocked = decide(fired.results).refused or _attached(fired, "hook_blocking_error")
    return "block" if blocked else "allow"


def _attached(fired: Fired, kind: AttachmentType) -> list[Attachment]:
    return [each for each in _messages(fired) if each.attachment_type == kind]


def _messages(fired: Fired) -> tuple[Attachment, ...]:
    return tuple(attachment for each in fired.ran for attachment in each.attachments)


def _contexts(fired: Fired) -> tuple[str, ...]:
    return tuple(each.content for each in _attached(fired, "hook_additional_context"))


def _blocking_error(fired: Fired) -> str | None:
    errors = _attached(fired, "hook_blocking_error")
    return _joined([(each.rule, each.content) for each in errors])


def _halts(fired: Fired) -> list[HookResult]:
    return [result for result in fired.results if result.action == "halt"]


def _stop_reason(halts: Sequence[HookResult]) -> str | None:
    return _joined([(each.source, each.reason or STOPPED) for each in halts])


def _system_message(fired: Fired) -> str | None:
    return _joined([(each.source, each.user_message) for each in fired.results if each.user_message])


def _suppressed(fired: Fired) -> bool:
    return any(result.suppress_output for result in fired.results)


def _joined(texts: Iterable[tuple[str, str]]) -> str | None:
    """Several with their rules' names before them, as relay.hooks.result.decide has reasons."""
    every = list(texts)
    if len(every) < 2:
        return every[0][1] if every else None
    return "\n".join(f"{rule}: {text}" if rule else text for rule, text in every)
