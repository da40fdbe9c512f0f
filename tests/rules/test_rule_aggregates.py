"""The combined result of all rules of an event."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from written import event, output, rule

from relay.hooks.result import decide, refused_prompt
from relay.rules.aggregate import Fired, aggregate, outcome
from relay.rules.answer import STOPPED, RuleRun, judge
from relay.rules.event import EVENTS
from relay.rules.turn_end import Ending, stop_outcome

BLOCKS = {"decision": "block", "reason": "no"}
ENDS = {"continue": False, "stopReason": "enough"}


def fired(name: str, *answers: object) -> Fired:
    """Return an event whose rules a, b, ... gave these answers; a number is an exit code."""
    ran: list[RuleRun] = []
    for letter, answer in zip("abcdefgh", answers, strict=False):
        code = answer if isinstance(answer, int) else 0
        text = "" if code else answer if isinstance(answer, str) else json.dumps(answer)
        ran.append(judge(rule(name, name=letter), output(str(text), code, "no" if code else "")))
    return Fired(event(name), tuple(ran))


# UserPromptSubmit.


def test_the_result_of_a_prompt_has_the_documented_fields() -> None:
    """R24."""
    assert {
        "blocking_error",
        "prevent_continuation",
        "stop_reason",
        "additional_contexts",
        "messages",
    } <= set(aggregate(fired("UserPromptSubmit")))
    assert not any(aggregate(fired("UserPromptSubmit")).values())


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("block", [BLOCKS, 2, {"blockingError": "no"}])
def test_any_block_blocks_the_prompt(place: int, block: object) -> None:
    """R24: any position blocks; contexts keep firing order (R25)."""
    answers: list[object] = ["one", "two"]
    answers.insert(place, block)
    result = aggregate(fired("UserPromptSubmit", *answers))
    assert (result["blocking_error"], result["prevent_continuation"]) == ("no", False)
    assert result["additional_contexts"] == ("one", "two")
    assert [each["attachment_type"] for each in result["messages"]].count("hook_blocking_error") == 1
    assert outcome(fired("UserPromptSubmit", *answers)) == "block"


def test_a_rule_may_stop_a_prompt() -> None:
    """R24."""
    result = aggregate(fired("UserPromptSubmit", "one", ENDS))
    assert (result["blocking_error"], result["prevent_continuation"]) == (None, True)
    assert result["stop_reason"] == "enough"
    assert outcome(fired("UserPromptSubmit", ENDS)) == "block"


@pytest.mark.parametrize("answers", [(BLOCKS, ENDS), (ENDS, BLOCKS), (2, ENDS)])
def test_a_blocking_error_survives_a_stop(answers: tuple[object, ...]) -> None:
    """R24."""
    result = aggregate(fired("UserPromptSubmit", *answers))
    assert (result["blocking_error"], result["prevent_continuation"]) == ("no", True)
    assert refused_prompt(fired("UserPromptSubmit", *answers).results) == "[Blocked by hook] no"


def test_each_of_several_errors_names_its_rule() -> None:
    """R25."""
    result = aggregate(fired("UserPromptSubmit", BLOCKS, "context", 2))
    assert result["blocking_error"] == "a: no\nc: no"


@pytest.mark.parametrize(
    ("answer", "marker"),
    [
        (BLOCKS, "[Blocked by hook] no"),
        (ENDS, "[Hook stopped] enough"),
        ({"continue": False}, f"[Hook stopped] {STOPPED}"),
        ("context", None),
        ({"decision": "block"}, "[Blocked by hook] a does not allow it, and gives no reason."),
    ],
)
def test_a_refused_prompt_is_marked_with_the_reason(answer: object, marker: str | None) -> None:
    """R39."""
    assert refused_prompt(fired("UserPromptSubmit", answer).results) == marker


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_the_marker_is_not_part_of_the_result(name: str) -> None:
    """R40."""
    assert "marker" not in aggregate(fired(name, BLOCKS))


# Stop.


def test_the_result_of_a_stop_has_the_documented_fields() -> None:
    """R26."""
    assert set(aggregate(fired("Stop"))) == {
        "blocking_error",
        "force_continue",
        "follow_up_message",
        "additional_contexts",
        "stop_reason",
        "suppress_output",
        "system_message",
        "messages",
        "matched_rule_count",
    }
    assert not any(aggregate(fired("Stop")).values())


@pytest.mark.parametrize(
    ("answer", "follow_up", "error"),
    [
        ({"force_continue": True, "follow_up_message": "and?"}, "and?", None),
        ({"force_continue": True}, None, None),
        (BLOCKS, "no", "no"),
        (2, "no", "no"),
    ],
)
def test_a_stop_may_continue_the_turn(answer: object, follow_up: str | None, error: str | None) -> None:
    """R26, R27."""
    result = aggregate(fired("Stop", "", answer))
    assert (result["force_continue"], result["follow_up_message"]) == (True, follow_up)
    assert (result["blocking_error"], result["matched_rule_count"]) == (error, 2)
    assert result["additional_contexts"] == ()
    assert stop_outcome(fired("Stop", answer), Ending(0, 3)) == "continue"
    assert stop_outcome(fired("Stop", answer), Ending(2, 3)) == "continue_at_max_iter"
    assert stop_outcome(fired("Stop", answer), Ending(3, 3)) == "reentry_capped"
    assert stop_outcome(fired("Stop", answer), Ending(0, 3, runaway=True)) == "reentry_capped"
    assert stop_outcome(fired("Stop", answer), Ending(0, 3, halted=True)) == "reentry_capped"


def test_follow_ups_are_kept_apart_from_contexts() -> None:
    """R26."""
    result = aggregate(
        fired(
            "Stop",
            {"additionalContext": "one"},
            {"force_continue": True, "follow_up_message": "first"},
            {"additionalContext": "two", "force_continue": True, "follow_up_message": "second"},
        )
    )
    assert result["additional_contexts"] == ("one", "two")
    assert result["follow_up_message"] == "first\nsecond"


@pytest.mark.parametrize("answers", [(BLOCKS, ENDS), (ENDS, BLOCKS), ({"force_continue": True}, ENDS)])
def test_ending_the_turn_outranks_continuing_it(answers: tuple[object, ...]) -> None:
    """R26: halt is the strongest."""
    result = aggregate(fired("Stop", *answers))
    assert (result["force_continue"], result["follow_up_message"], result["stop_reason"]) == (
        False,
        None,
        "enough",
    )
    assert result["blocking_error"] == ("no" if BLOCKS in answers else None)
    assert stop_outcome(fired("Stop", *answers), Ending(0, 3)) == "block"


def test_a_blocking_error_alone_ends_the_turn() -> None:
    """R31."""
    firing = fired("Stop", {"blockingError": "the disk is full"})
    assert (aggregate(firing)["blocking_error"], aggregate(firing)["force_continue"]) == (
        "the disk is full",
        False,
    )
    assert stop_outcome(firing, Ending(0, 3)) == "block"


def test_messages_of_a_stop_to_the_user_are_combined() -> None:
    """R26, R29."""
    result = aggregate(
        fired("Stop", {"systemMessage": "one"}, {"system_message": "two", "suppressOutput": True})
    )
    assert (result["system_message"], result["suppress_output"]) == ("a: one\nb: two", True)


# Other events.


@pytest.mark.parametrize(
    ("answer", "action", "combined"),
    [
        ({"decision": "approve"}, "allow", "allow"),
        ("plain text", "continue", "allow"),
        (1, "continue", "allow"),
        (BLOCKS, "deny", "block"),
        (2, "deny", "block"),
        (ENDS, "halt", "block"),
    ],
)
def test_an_answer_decides_a_tool_call(answer: object, action: str, combined: str) -> None:
    """R31, R36."""
    firing = fired("PreToolUse", answer)
    assert (aggregate(firing)["action"], outcome(firing)) == (action, combined)


def specific(**answer: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **answer}}


def test_ask_outranks_allow_and_blocks_the_call() -> None:
    """R31: the outcome is "block"; the strongest of allow, ask and deny wins."""
    allow, ask = specific(permissionDecision="allow"), specific(permissionDecision="ask")
    changed = specific(updatedInput={"command": "ls"})
    firing = fired("PreToolUse", allow, ask, changed)
    assert (aggregate(firing)["action"], outcome(firing)) == ("ask", "block")
    assert aggregate(firing)["updated_input"] == {"command": "ls"}
    assert not decide(firing.results).allowed


@pytest.mark.parametrize("name", ["PostToolUse", "PostToolUseFailure"])
def test_a_block_after_a_tool_call_counts_as_a_block(name: str) -> None:
    """R31: the model gets the reason."""
    firing = fired(name, BLOCKS)
    assert (aggregate(firing)["blocking_error"], aggregate(firing)["action"]) == ("no", "inject_context")
    assert outcome(firing) == "block"


def test_an_event_that_cannot_be_blocked_is_allowed(subtests: pytest.Subtests) -> None:
    """R31, R34: the rule's messages are kept."""
    for name, answer in itertools.product(
        ["SessionStart", "SessionEnd", "PreCompact", "Notification"],
        [2, BLOCKS, ENDS, {"blockingError": "no"}],
    ):
        with subtests.test(f"{name} {answer!r}"):
            firing = fired(name, answer)
            assert outcome(firing) == "allow"
            assert len(aggregate(firing)["messages"]) == 1


def test_an_event_without_a_decision_is_allowed(subtests: pytest.Subtests) -> None:
    """R31."""
    for name, answer in itertools.product(sorted(EVENTS), ["", 1, "{", {"suppressOutput": True}]):
        with subtests.test(f"{name} {answer!r}"):
            assert outcome(fired(name, answer)) == "allow"


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_every_result_is_json(name: str) -> None:
    """R24, R26: attachments included."""
    firing = fired(name, BLOCKS, "text")
    public = json.loads(json.dumps(aggregate(firing)))
    assert public["matched_rule_count"] == 2
    assert public["messages"][0] == {"attachment_type": "hook_blocking_error", "content": "no", "rule": "a"}
