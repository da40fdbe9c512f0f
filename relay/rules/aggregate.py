"""The outcome of an event: the rules that ran, and their combined answers.

Texts from several rules are in firing order; several errors or reasons each begin with their rule's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from relay.dataclass import asdict, dataclass
from relay.hooks.result import HookResult, decide, injected, joined
from relay.rules.answer import STOPPED, AttachmentType, RuleRun
from relay.rules.event import EVENTS, RuleEvent


@dataclass(frozen=True, slots=True)
class Fired:
    """An event and the rules that were selected for it, in firing order; `ran` is empty if none was."""

    event: RuleEvent
    ran: tuple[RuleRun, ...] = ()

    @property
    def matched_rule_count(self) -> int:
        """The number of rules that were selected, whether or not they ran."""
        return len(self.ran)

    @property
    def results(self) -> list[HookResult]:
        return [result for run in self.ran for result in run.results]

    @property
    def halts(self) -> list[HookResult]:
        return [result for result in self.results if result.action == "halt"]

    @property
    def continuing(self) -> list[HookResult]:
        """The results that make the agent continue after a Stop; empty if another result ends the turn."""
        return [] if self.halts else [result for result in self.results if result.force_continue]

    def attached(self, kind: AttachmentType) -> list[tuple[str, str]]:
        """Return the attachments of one type as pairs (rule, content)."""
        every = [each for run in self.ran for each in run.attachments]
        return [(each.rule, each.content) for each in every if each.attachment_type == kind]


def aggregate(fired: Fired) -> dict[str, Any]:
    """Return the combined answers of all rules, as `relay hooks test` and the journal show them.

    blocking_error:      why a rule blocks the event; None: none does.
    stop_reason:         why a rule ends the turn, whatever the others say; None: none does.
    additional_contexts, system_message: texts for the agent, and for the user.
    suppress_output:     the contexts are not shown to the user.
    messages:            every attachment.

    UserPromptSubmit also has prevent_continuation: the turn stops. Stop also has force_continue: the agent
    continues with `follow_up_message`, as its next user turn, and with the contexts. Any other event has
    prevent_continuation, and action, reason and updated_input as in relay.hooks.result.Decision.
    """
    results = fired.results
    found = {
        "blocking_error": _joined(fired.attached("hook_blocking_error")),
        "stop_reason": _joined((each.source, each.reason or STOPPED) for each in fired.halts),
        "additional_contexts": tuple(text for _, text in fired.attached("hook_additional_context")),
        "suppress_output": any(result.suppress_output for result in results),
        "system_message": _joined((each.source, each.user_message) for each in results if each.user_message),
        "messages": tuple(asdict(each) for run in fired.ran for each in run.attachments),
        "matched_rule_count": fired.matched_rule_count,
    }
    prevents = {"prevent_continuation": bool(fired.halts)}
    match fired.event.name:
        case "UserPromptSubmit":
            return found | prevents
        case "Stop":
            follow_ups = injected(each for each in fired.continuing if each.context_injection_role == "user")
            continues = bool(fired.continuing)
            return found | {"force_continue": continues, "follow_up_message": "\n".join(follow_ups) or None}
        case _:
            decision = decide(results)
            changed = None if decision.updated_input is None else dict(decision.updated_input)
            own = {"action": decision.action, "reason": decision.reason, "updated_input": changed}
            return found | own | prevents


def outcome(fired: Fired) -> Literal["allow", "block"]:
    """Return the outcome of the event. A tool call that needs the user's approval counts as blocked.

    relay.rules.turn_end.stop_outcome returns that of a Stop after which the agent continues.
    """
    if fired.event.name not in EVENTS or not EVENTS[fired.event.name].decides:
        return "allow"
    if fired.event.name == "SessionStart":
        return "allow"  # a session that has started cannot be blocked
    blocked = decide(fired.results).refused or fired.attached("hook_blocking_error")
    return "block" if blocked else "allow"


def _joined(texts: Iterable[tuple[str, str]]) -> str | None:
    return joined(every) if (every := list(texts)) else None
