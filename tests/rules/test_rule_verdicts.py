"""Exit codes and output of a rule's command become verdicts."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from written import output, rule

from relay.hooks.result import HookResult, decide, injected
from relay.rules.answer import STOPPED, RuleRun, judge, prompted
from relay.rules.command import CommandResult
from relay.rules.event import EVENTS

SHAPES = ("flat", "group")
CAN_BE_DENIED = ("UserPromptSubmit", "PreToolUse")
AFTER_TOOL = ("PostToolUse", "PostToolUseFailure")
NEVER_BLOCKED = ("SessionStart", "SessionEnd", "PreCompact", "Notification")


def ran_with(name: str, stdout: object = "", code: int = 0, stderr: str = "", shape: str = "flat") -> RuleRun:
    """Return the run of a rule for the event `name` that gave this answer; an object means JSON."""
    text = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return judge(rule(name, name="guard", shape=shape), output(text, code, stderr))


def kinds(ran: RuleRun) -> list[tuple[str, str]]:
    return [(each.attachment_type, each.content) for each in ran.attachments]


def user_messages(ran: RuleRun) -> list[str | None]:
    return [each.user_message for each in ran.results if each.user_message]


@pytest.mark.parametrize(("name", "refused"), [("PreToolUse", True), ("PostToolUse", False)])
def test_a_truncated_verdict_denies_a_tool_call(name: str, refused: bool) -> None:
    """R15: a guard's reason may quote what the agent wants to write."""
    ran = judge(
        rule(name, name="guard"), CommandResult(0, b'{"decision": "block", "reason": "' + b"x" * 99, cut=True)
    )
    assert "longer" in ran.problem
    assert decide(ran.results).refused == refused


# Exit codes.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CAN_BE_DENIED)
def test_exit_2_denies_with_stderr_as_the_reason(name: str, shape: str) -> None:
    """R15: in both formats."""
    ran = ran_with(name, "this is not context", 2, "not on a Friday\n", shape)
    assert decide(ran.results).action == "deny"
    assert decide(ran.results).reason == "not on a Friday"
    assert kinds(ran) == [("hook_blocking_error", "not on a Friday")]
    assert ran.results[0].source == ran.attachments[0].rule == "guard"


def test_exit_2_without_stderr_has_a_default_reason() -> None:
    """R15."""
    reason = decide(ran_with("PreToolUse", code=2, stderr=" \n").results).reason
    assert "guard" in reason
    assert "exit code 2" in reason


@pytest.mark.parametrize(
    "stdout",
    [
        {"decision": "block", "reason": "from JSON"},
        {"reason": "from JSON"},
        {"blockingError": "from JSON"},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecisionReason": "from JSON"}},
        {"attachment_type": "hook_blocking_error", "content": "from JSON"},
    ],
)
def test_a_reason_in_json_beats_stderr(stdout: object) -> None:
    """R15."""
    ran = ran_with("PreToolUse", stdout, 2, "from stderr")
    assert decide(ran.results).reason == "from JSON"
    assert kinds(ran) == [("hook_blocking_error", "from JSON")]


@pytest.mark.parametrize(
    "stdout",
    [
        {"decision": "approve", "reason": "fine"},
        {"continue": False, "stopReason": "enough"},
        {"preventContinuation": True},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "ls"}}},
    ],
)
def test_no_json_overrides_exit_2(stdout: object) -> None:
    """R15: "allow" does not; exit code 2 also beats `continue: false`."""
    assert [(each.action, each.reason) for each in ran_with("PreToolUse", stdout, 2, "no").results] == [
        ("deny", "no")
    ]


@pytest.mark.parametrize("name", AFTER_TOOL)
def test_exit_2_after_a_tool_call_informs_the_model(name: str) -> None:
    """R15: what has happened cannot be denied; the model gets stderr."""
    ran = ran_with(name, code=2, stderr="E501 line too long")
    assert injected(ran.results) == ["E501 line too long"]
    assert kinds(ran) == [("hook_blocking_error", "E501 line too long")]


def test_exit_2_at_a_stop_continues_the_turn() -> None:
    """R27: stderr becomes the next user turn."""
    (result,) = ran_with("Stop", code=2, stderr="the tests fail").results
    assert (result.force_continue, result.context_injection) == (True, "the tests fail")
    assert result.context_injection_role == "user"


@pytest.mark.parametrize("name", NEVER_BLOCKED)
def test_exit_2_informs_the_user_of_an_event_that_cannot_be_blocked(name: str) -> None:
    """R34: a compaction, and the start and end of a session, proceed."""
    ran = ran_with(name, code=2, stderr="no!")
    assert not decide(ran.results).refused
    assert not injected(ran.results)
    assert user_messages(ran) == ["no!"]
    assert kinds(ran) == [("hook_blocking_error", "no!")]


def test_json_does_not_block_an_event_that_cannot_be_blocked(subtests: pytest.Subtests) -> None:
    """R34: the attachment is kept."""
    for name, stdout in itertools.product(
        NEVER_BLOCKED,
        [
            {"continue": False, "stopReason": "no"},
            {"decision": "block", "reason": "no"},
            {"attachment_type": "hook_blocking_error", "content": "no"},
        ],
    ):
        with subtests.test(f"{name} {stdout}"):
            ran = ran_with(name, stdout)
            assert not decide(ran.results).refused
            assert [content for _, content in kinds(ran)] == ["no"]


@pytest.mark.parametrize("code", [1, 126, 127, 130, 137])
def test_another_exit_code_blocks_nothing_and_is_reported(code: int) -> None:
    """R15."""
    ran = ran_with("UserPromptSubmit", "half an answer", code, "Traceback\nValueError")
    assert (ran.results, ran.attachments) == ((), ())
    assert f"exit code {code}" in ran.problem
    assert "ValueError" in ran.problem


def test_json_decides_even_with_another_exit_code() -> None:
    """R15."""
    ran = ran_with("UserPromptSubmit", {"decision": "block", "reason": "no"}, 1, "oops")
    assert decide(ran.results).reason == "no"
    assert "exit code 1" in ran.problem


def test_a_command_that_timed_out_decides_nothing() -> None:
    """R15: whatever it printed before the timeout."""
    printed = json.dumps({"decision": "block", "reason": "no"}).encode()
    ran = judge(rule("PreToolUse"), CommandResult(None, printed, problem="It took too long."))
    assert (ran.results, ran.attachments, ran.problem) == ((), (), "It took too long.")


# Plain text.


def test_plain_text_is_context_for_prompts_and_session_starts(subtests: pytest.Subtests) -> None:
    """R23: only text that begins with `{`, or is a list of objects, is JSON."""
    for text, name in itertools.product(
        ["on branch main", "[main] clean", "12", "null", '"quoted"', "[1, 2]"],
        ["UserPromptSubmit", "SessionStart"],
    ):
        with subtests.test(f"{name} {text}"):
            ran = ran_with(name, f"\n{text}\n")
            assert injected(ran.results) == [text]
            assert kinds(ran) == [("hook_additional_context", text)]
            assert not ran.problem


@pytest.mark.parametrize("name", sorted(EVENTS.keys() - {"UserPromptSubmit", "SessionStart"}))
def test_plain_text_is_not_context_for_other_events(name: str) -> None:
    """R23: there, it only means success."""
    ran = ran_with(name, "checked 3 files")
    assert ran.results == ()
    assert kinds(ran) == [("hook_success", "checked 3 files")]


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_empty_output_is_a_success(name: str) -> None:
    """R23."""
    ran = ran_with(name)
    assert (ran.results, kinds(ran), ran.problem) == ((), [("hook_success", "")], "")


@pytest.mark.parametrize("text", ["{broken", '{"decision": "block"', '[{"attachment_type"', "[{" * 9000])
def test_invalid_json_is_reported_and_is_text(text: str) -> None:
    """R15: as in Claude Code."""
    ran = ran_with("UserPromptSubmit", text)
    assert injected(ran.results) == [text]
    assert "JSON" in ran.problem
    assert ran_with("PreToolUse", text).results == ()


def test_invalid_utf8_is_replaced() -> None:
    """R15."""
    ran = judge(rule("SessionStart"), CommandResult(0, b"\xff\xfe caf\xe9", b"\xff"))
    assert injected(ran.results) == ["\ufffd\ufffd caf\ufffd"]


def test_half_a_surrogate_pair_can_be_encoded() -> None:
    """R15: JSON may contain one, UTF-8 may not."""
    ran = ran_with("UserPromptSubmit", '{"decision": "block", "reason": "\\ud800"}')
    assert decide(ran.results).reason.encode()


# Claude Code's keys.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CAN_BE_DENIED)
def test_a_block_with_its_reason_denies(name: str, shape: str) -> None:
    """R15."""
    ran = ran_with(name, {"decision": "block", "reason": "no"}, shape=shape)
    assert (decide(ran.results).action, decide(ran.results).reason) == ("deny", "no")


def test_a_block_without_a_reason_blocks(subtests: pytest.Subtests) -> None:
    """R15: as in Claude Code."""
    for name, reason in itertools.product(
        sorted(EVENTS), [{}, {"reason": ""}, {"reason": " \n"}, {"reason": None}, {"reason": 7}]
    ):
        with subtests.test(f"{name} {reason}"):
            given = ran_with(
                name, {"decision": "block", "reason": "guard does not allow it, and gives no reason."}
            )
            assert ran_with(name, {"decision": "block", **reason}).results == given.results


@pytest.mark.parametrize("name", AFTER_TOOL)
def test_a_block_after_a_tool_call_informs_the_model(name: str) -> None:
    """R15."""
    ran = ran_with(name, {"decision": "block", "reason": "fix it"})
    assert injected(ran.results) == ["fix it"]
    assert kinds(ran) == [("hook_blocking_error", "fix it")]


def test_a_block_of_a_stop_continues_the_turn() -> None:
    """R27."""
    (result,) = ran_with("Stop", {"decision": "block", "reason": "not yet"}).results
    assert (result.force_continue, result.context_injection) == (True, "not yet")


@pytest.mark.parametrize("name", ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"])
def test_continue_false_ends_the_turn(name: str) -> None:
    """R23."""
    ran = ran_with(name, {"continue": False, "stopReason": "enough"})
    assert (decide(ran.results).action, decide(ran.results).reason) == ("halt", "enough")
    assert kinds(ran) == [("hook_stopped_continuation", "enough")]


def test_continue_false_has_a_default_reason() -> None:
    """R39."""
    assert decide(ran_with("UserPromptSubmit", {"continue": False}).results).reason == STOPPED


def test_continue_false_outranks_a_decision() -> None:
    """R15: a Stop that asks to continue ends."""
    answer = {"continue": False, "decision": "block", "reason": "more", "stopReason": "enough"}
    assert decide(ran_with("PreToolUse", answer).results).action == "halt"
    assert not any(each.force_continue for each in ran_with("Stop", answer).results)


def test_a_system_message_is_for_the_user_only() -> None:
    """R79: the model does not get it."""
    ran = ran_with("PostToolUse", {"systemMessage": "slow today"})
    assert user_messages(ran) == ["slow today"]
    assert not injected(ran.results)


def test_output_can_be_suppressed() -> None:
    """R29: with contexts and without."""
    ran = ran_with("UserPromptSubmit", {"suppressOutput": True, "additionalContext": "psst"})
    assert [each.suppress_output for each in ran.results] == [True]
    assert [each.suppress_output for each in ran_with("Stop", {"suppress_output": True}).results] == [True]


def specific(name: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": name, **fields}}


@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_a_permission_decision_becomes_the_action(action: str) -> None:
    """R15."""
    answer = specific("PreToolUse", permissionDecision=action, permissionDecisionReason="because")
    (result,) = ran_with("PreToolUse", answer).results
    assert (result.action, result.reason) == (action, "because")


def test_a_denial_without_a_reason_still_denies() -> None:
    """R15"""
    ran = ran_with("PreToolUse", specific("PreToolUse", permissionDecision="deny"))
    assert decide(ran.results).action == "deny"


def test_a_changed_input_is_the_whole_input() -> None:
    """R15."""
    answer = specific("PreToolUse", permissionDecision="allow", updatedInput={"command": "ls"})
    decision = decide(ran_with("PreToolUse", answer).results)
    assert (decision.updated_input, decision.allowed) == ({"command": "ls"}, True)


@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionStart", "PreToolUse", "PostToolUse"])
def test_additional_context_is_injected(name: str) -> None:
    """R23."""
    ran = ran_with(name, specific(name, additionalContext="on main"))
    assert injected(ran.results) == ["on main"]
    assert kinds(ran) == [("hook_additional_context", "on main")]


def test_additional_context_at_a_stop_continues_the_turn() -> None:
    """R8."""
    (result,) = ran_with("Stop", specific("Stop", additionalContext="look at this")).results
    assert (result.force_continue, result.context_injection) == (True, "look at this")


@pytest.mark.parametrize(
    "answer", [specific("PostToolUse", permissionDecision="deny"), {"hookSpecificOutput": {}}]
)
def test_an_answer_for_another_event_is_reported_and_ignored(answer: object) -> None:
    """R15."""
    ran = ran_with("PreToolUse", answer)
    assert ran.results == ()
    assert "PreToolUse" in ran.problem


def test_the_old_form_approves_a_tool_call() -> None:
    """R15: the old form works only for a tool call."""
    (result,) = ran_with("PreToolUse", {"decision": "approve", "reason": "fine"}).results
    assert (result.action, result.reason) == ("allow", "fine")
    assert ran_with("UserPromptSubmit", {"decision": "approve"}).results == ()


# Verdict keys and attachments.


@pytest.mark.parametrize("key", ["blockingError", "blocking_error"])
@pytest.mark.parametrize("name", CAN_BE_DENIED)
def test_a_blocking_error_denies(name: str, key: str) -> None:
    """R24."""
    ran = ran_with(name, {key: "no"})
    assert decide(ran.results).reason == "no"
    assert kinds(ran) == [("hook_blocking_error", "no")]


def test_a_blocking_error_at_a_stop_is_shown_to_the_user() -> None:
    """R26: the turn ends; only force_continue, a decision or exit code 2 continues it."""
    ran = ran_with("Stop", {"blockingError": "the disk is full"})
    assert user_messages(ran) == ["the disk is full"]
    assert not any(each.force_continue for each in ran.results)


def test_an_empty_blocking_error_blocks_nothing() -> None:
    """R15."""
    for answer in ({"blockingError": " "}, {"attachment_type": "hook_blocking_error"}):
        ran = ran_with("PreToolUse", answer)
        assert ran.results == ()
        assert "blockingError" in ran.problem


@pytest.mark.parametrize("prevents", ["preventContinuation", "prevent_continuation"])
@pytest.mark.parametrize("reason", ["stopReason", "stop_reason"])
def test_prevent_continuation_ends_the_turn(prevents: str, reason: str) -> None:
    """R24."""
    ran = ran_with("UserPromptSubmit", {prevents: True, reason: "enough"})
    assert (decide(ran.results).action, decide(ran.results).reason) == ("halt", "enough")


@pytest.mark.parametrize("force", ["force_continue", "forceContinue"])
@pytest.mark.parametrize("message", ["follow_up_message", "followUpMessage"])
def test_force_continue_continues_the_turn(force: str, message: str) -> None:
    """R27."""
    (result,) = ran_with("Stop", {force: True, message: "and the tests?"}).results
    assert (result.force_continue, result.context_injection) == (True, "and the tests?")
    (result,) = ran_with("Stop", {force: True}).results
    assert (result.force_continue, result.context_injection) == (True, None)


def test_force_continue_works_only_at_a_stop() -> None:
    """R27."""
    ran = ran_with("PreToolUse", {"force_continue": True})
    assert ran.results == ()
    assert "force_continue" in ran.problem


def test_a_follow_up_alone_does_not_continue_the_turn() -> None:
    """R27."""
    ran = ran_with("Stop", {"follow_up_message": "more"})
    assert ran.results == ()
    assert "force_continue" in ran.problem


@pytest.mark.parametrize("key", ["additionalContext", "additional_context"])
def test_additional_context_is_a_text_or_a_list(key: str) -> None:
    """R25."""
    assert injected(ran_with("UserPromptSubmit", {key: "a"}).results) == ["a"]
    assert injected(ran_with("UserPromptSubmit", {key: ["a", "b"]}).results) == ["a", "b"]


@pytest.mark.parametrize(
    ("attachment", "action", "content"),
    [
        ({"attachment_type": "hook_blocking_error", "content": "no"}, "deny", "no"),
        ({"attachment_type": "hook_blocking_error", "content": ["no", "no"]}, "deny", "no\nno"),
        ({"attachment_type": "hook_blocking_error", "content": {"message": "no"}}, "deny", "no"),
        ({"attachment_type": "hook_blocking_error", "content": {"blocking_error": "no"}}, "deny", "no"),
        ({"attachment_type": "hook_stopped_continuation", "content": "enough"}, "halt", "enough"),
        ({"attachment_type": "hook_stopped_continuation", "content": {"stop_reason": "x"}}, "halt", "x"),
        ({"attachment_type": "hook_stopped_continuation"}, "halt", STOPPED),
        ({"attachment_type": "hook_additional_context", "content": "a"}, "inject_context", "a"),
        ({"attachment_type": "hook_additional_context", "content": {"text": "a"}}, "inject_context", "a"),
        ({"attachment_type": "hook_success", "content": "ok"}, "continue", "ok"),
    ],
)
def test_each_attachment_has_its_effect(attachment: object, action: str, content: str) -> None:
    """R23: the four types, each with a text, texts or an object."""
    ran = ran_with("PreToolUse", attachment)
    assert decide(ran.results).action == action
    assert [text for _, text in kinds(ran)] == [content]
    assert not ran.problem


def test_an_attachment_may_force_a_stop_to_continue() -> None:
    """R27."""
    content = {"force_continue": True, "follow_up_message": "continue"}
    ran = ran_with("Stop", {"attachment_type": "hook_stopped_continuation", "content": content})
    assert kinds(ran) == [("hook_stopped_continuation", "continue")]
    assert [each.force_continue for each in ran.results] == [True]


def test_a_list_of_attachments_keeps_its_order() -> None:
    """R25."""
    ran = ran_with(
        "UserPromptSubmit",
        [
            {"attachment_type": "hook_additional_context", "content": ["a", "b"]},
            {"attachment_type": "hook_success", "content": "ok"},
            {"attachment_type": "hook_additional_context", "content": "c"},
        ],
    )
    assert injected(ran.results) == ["a", "b", "c"]
    assert [kind for kind, _ in kinds(ran)].count("hook_success") == 1


def test_an_unknown_attachment_is_reported_and_the_rest_counts() -> None:
    """R23."""
    ran = ran_with(
        "PreToolUse",
        [{"attachment_type": "hook_unknown"}, {"attachment_type": "hook_blocking_error", "content": "no"}],
    )
    assert decide(ran.results).reason == "no"
    assert "hook_unknown" in ran.problem
    assert "hook_success" in ran.problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("continue", "false"),
        ("stopReason", 1),
        ("systemMessage", ["a"]),
        ("suppressOutput", "yes"),
        ("decision", True),
        ("decision", "perhaps"),
        ("hookSpecificOutput", "deny"),
        ("blockingError", {"a": 1}),
        ("preventContinuation", 1),
        ("additionalContext", [1]),
        ("attachment_type", 4),
    ],
)
def test_a_key_of_a_wrong_type_is_reported(key: str, value: object) -> None:
    """R15: the rest of the answer counts."""
    ran = ran_with("PreToolUse", {"continue": False} | {key: value})
    assert decide(ran.results).action == ("continue" if key in {"continue", "attachment_type"} else "halt")
    assert key in ran.problem


def test_invalid_content_is_reported() -> None:
    """R23."""
    assert "content" in ran_with("Stop", {"attachment_type": "hook_success", "content": 7}).problem
    assert ran_with("PreToolUse", "[{}, 4]").problem


def test_unknown_keys_are_ignored() -> None:
    """R15."""
    ran = ran_with("PreToolUse", {"asynchronous": True, "hook": {"a": 1}})
    assert (ran.results, ran.problem) == ((), "")


def test_a_long_context_is_not_truncated() -> None:
    """R71: the injector applies its limit."""
    text = "x" * 100_000
    assert injected(ran_with("UserPromptSubmit", {"additionalContext": text}).results) == [text]


def test_a_prompt_is_context() -> None:
    """R16."""
    ran = prompted(rule("UserPromptSubmit", "", kind="prompt", prompt="Answer in markdown.", name="style"))
    assert ran.results == (HookResult("inject_context", "Answer in markdown.", source="style"),)
    assert kinds(ran) == [("hook_additional_context", "Answer in markdown.")]
