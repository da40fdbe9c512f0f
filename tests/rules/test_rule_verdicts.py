"""The meaning of exit codes and output of rules' commands."""

from __future__ import annotations

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
ONLY_SEEN = ("SessionStart", "SessionEnd", "PreCompact", "Notification")


def said(name: str, stdout: object = "", code: int = 0, stderr: str = "", shape: str = "flat") -> RuleRun:
    """Return the result of a rule for the event `name` with this answer; an object is printed as JSON."""
    text = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return judge(rule(name, name="guard", shape=shape), output(text, code, stderr))


def kinds(ran: RuleRun) -> list[tuple[str, str]]:
    return [(each.attachment_type, each.content) for each in ran.attachments]


def told(ran: RuleRun) -> list[str | None]:
    return [each.user_message for each in ran.results if each.user_message]


@pytest.mark.parametrize(("name", "refused"), [("PreToolUse", True), ("PostToolUse", False)])
def test_a_verdict_that_is_too_long_lets_no_call_through(name: str, refused: bool) -> None:
    """R15: a guard's reason may quote what the agent wants to write."""
    ran = judge(
        rule(name, name="guard"), CommandResult(0, b'{"decision": "block", "reason": "' + b"x" * 99, cut=True)
    )
    assert "longer" in ran.problem
    assert decide(ran.results).refused == refused


# Exit codes.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CAN_BE_DENIED)
def test_exit_2_denies_with_what_stands_on_stderr(name: str, shape: str) -> None:
    """R15: exit code 2 blocks, and stderr is the reason, in both formats."""
    ran = said(name, "this is not context", 2, "not on a Friday\n", shape)
    assert decide(ran.results).action == "deny"
    assert decide(ran.results).reason == "not on a Friday"
    assert kinds(ran) == [("hook_blocking_error", "not on a Friday")]
    assert ran.results[0].source == ran.attachments[0].rule == "guard"


def test_exit_2_with_an_empty_stderr_has_a_reason_all_the_same() -> None:
    """R15."""
    reason = decide(said("PreToolUse", code=2, stderr=" \n").results).reason
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
    ran = said("PreToolUse", stdout, 2, "from stderr")
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
    assert [(each.action, each.reason) for each in said("PreToolUse", stdout, 2, "no").results] == [
        ("deny", "no")
    ]


@pytest.mark.parametrize("name", AFTER_TOOL)
def test_exit_2_after_a_tool_tells_the_model(name: str) -> None:
    """R15: what has happened cannot be denied; the model gets stderr."""
    ran = said(name, code=2, stderr="E501 line too long")
    assert injected(ran.results) == ["E501 line too long"]
    assert kinds(ran) == [("hook_blocking_error", "E501 line too long")]


def test_exit_2_at_a_stop_has_the_agent_go_on() -> None:
    """R27: stderr becomes the next user turn."""
    (result,) = said("Stop", code=2, stderr="the tests fail").results
    assert (result.force_continue, result.context_injection) == (True, "the tests fail")
    assert result.context_injection_role == "user"


@pytest.mark.parametrize("name", ONLY_SEEN)
def test_where_nothing_can_be_blocked_exit_2_tells_the_user(name: str) -> None:
    """R34: a compaction, and the start and end of a session, proceed."""
    ran = said(name, code=2, stderr="no!")
    assert not decide(ran.results).refused
    assert not injected(ran.results)
    assert told(ran) == ["no!"]
    assert kinds(ran) == [("hook_blocking_error", "no!")]


@pytest.mark.parametrize("name", ONLY_SEEN)
@pytest.mark.parametrize(
    "stdout",
    [
        {"continue": False, "stopReason": "no"},
        {"decision": "block", "reason": "no"},
        {"attachment_type": "hook_blocking_error", "content": "no"},
    ],
)
def test_where_nothing_can_be_blocked_json_does_not_block(name: str, stdout: object) -> None:
    """R34: the attachment is kept."""
    ran = said(name, stdout)
    assert not decide(ran.results).refused
    assert [content for _, content in kinds(ran)] == ["no"]


@pytest.mark.parametrize("code", [1, 126, 127, 130, 137])
def test_another_exit_code_blocks_nothing_and_is_told(code: int) -> None:
    """R15."""
    ran = said("UserPromptSubmit", "half an answer", code, "Traceback\nValueError")
    assert (ran.results, ran.attachments) == ((), ())
    assert f"exit code {code}" in ran.problem
    assert "ValueError" in ran.problem


def test_json_decides_at_another_exit_code_too() -> None:
    """R15."""
    ran = said("UserPromptSubmit", {"decision": "block", "reason": "no"}, 1, "oops")
    assert decide(ran.results).reason == "no"
    assert "exit code 1" in ran.problem


def test_a_command_that_was_ended_decides_nothing() -> None:
    """R15: a timeout is no decision, whatever was printed before."""
    printed = json.dumps({"decision": "block", "reason": "no"}).encode()
    ran = judge(rule("PreToolUse"), CommandResult(None, printed, problem="It took too long."))
    assert (ran.results, ran.attachments, ran.problem) == ((), (), "It took too long.")


# Plain text.


@pytest.mark.parametrize("text", ["on branch main", "[main] clean", "12", "null", '"quoted"', "[1, 2]"])
@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionStart"])
def test_plain_text_is_context_for_prompts_and_at_the_start(name: str, text: str) -> None:
    """R23: only text that begins with `{`, or is a list of objects, is JSON."""
    ran = said(name, f"\n{text}\n")
    assert injected(ran.results) == [text]
    assert kinds(ran) == [("hook_additional_context", text)]
    assert not ran.problem


@pytest.mark.parametrize("name", sorted(EVENTS.keys() - {"UserPromptSubmit", "SessionStart"}))
def test_plain_text_is_no_context_elsewhere(name: str) -> None:
    """R23: the command has succeeded, nothing more."""
    ran = said(name, "checked 3 files")
    assert ran.results == ()
    assert kinds(ran) == [("hook_success", "checked 3 files")]


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_nothing_printed_is_a_success(name: str) -> None:
    """R23."""
    ran = said(name)
    assert (ran.results, kinds(ran), ran.problem) == ((), [("hook_success", "")], "")


@pytest.mark.parametrize("text", ["{broken", '{"decision": "block"', '[{"attachment_type"', "[{" * 9000])
def test_broken_json_is_a_problem_and_no_context(text: str) -> None:
    """R15."""
    ran = said("UserPromptSubmit", text)
    assert (ran.results, ran.attachments) == ((), ())
    assert "JSON" in ran.problem


def test_bytes_that_are_no_utf8_harm_nothing() -> None:
    """R15."""
    ran = judge(rule("SessionStart"), CommandResult(0, b"\xff\xfe caf\xe9", b"\xff"))
    assert injected(ran.results) == ["\ufffd\ufffd caf\ufffd"]


def test_half_a_surrogate_pair_can_be_written_down() -> None:
    """R15: JSON can contain one, a file cannot."""
    ran = said("UserPromptSubmit", '{"decision": "block", "reason": "\\ud800"}')
    assert decide(ran.results).reason.encode()


# Claude Code's keys.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CAN_BE_DENIED)
def test_a_block_with_its_reason_denies(name: str, shape: str) -> None:
    """R15."""
    ran = said(name, {"decision": "block", "reason": "no"}, shape=shape)
    assert (decide(ran.results).action, decide(ran.results).reason) == ("deny", "no")


@pytest.mark.parametrize("name", sorted(EVENTS))
@pytest.mark.parametrize("reason", [{}, {"reason": ""}, {"reason": " \n"}, {"reason": None}, {"reason": 7}])
def test_a_block_without_a_reason_is_no_block(name: str, reason: dict[str, Any]) -> None:
    """R15."""
    ran = said(name, {"decision": "block", **reason})
    assert ran.results == ()
    assert "reason" in ran.problem


@pytest.mark.parametrize("name", AFTER_TOOL)
def test_a_block_after_a_tool_tells_the_model_why(name: str) -> None:
    """R15."""
    ran = said(name, {"decision": "block", "reason": "fix it"})
    assert injected(ran.results) == ["fix it"]
    assert kinds(ran) == [("hook_blocking_error", "fix it")]


def test_a_block_of_a_stop_has_the_agent_go_on() -> None:
    """R27."""
    (result,) = said("Stop", {"decision": "block", "reason": "not yet"}).results
    assert (result.force_continue, result.context_injection) == (True, "not yet")


@pytest.mark.parametrize("name", ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"])
def test_continue_false_ends_the_turn(name: str) -> None:
    """R23."""
    ran = said(name, {"continue": False, "stopReason": "enough"})
    assert (decide(ran.results).action, decide(ran.results).reason) == ("halt", "enough")
    assert kinds(ran) == [("hook_stopped_continuation", "enough")]


def test_continue_false_has_a_default_reason() -> None:
    """R39."""
    assert decide(said("UserPromptSubmit", {"continue": False}).results).reason == STOPPED


def test_continue_false_outranks_a_decision() -> None:
    """R15: a Stop that asks to continue ends."""
    answer = {"continue": False, "decision": "block", "reason": "more", "stopReason": "enough"}
    assert decide(said("PreToolUse", answer).results).action == "halt"
    assert not any(each.force_continue for each in said("Stop", answer).results)


def test_a_message_for_the_user() -> None:
    """R79: the model does not get it."""
    ran = said("PostToolUse", {"systemMessage": "slow today"})
    assert told(ran) == ["slow today"]
    assert not injected(ran.results)


def test_suppressed_output() -> None:
    """R29: with contexts and without."""
    ran = said("UserPromptSubmit", {"suppressOutput": True, "additionalContext": "psst"})
    assert [each.suppress_output for each in ran.results] == [True]
    assert [each.suppress_output for each in said("Stop", {"suppress_output": True}).results] == [True]


def specific(name: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": name, **fields}}


@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_a_permission_decision(action: str) -> None:
    """R15."""
    answer = specific("PreToolUse", permissionDecision=action, permissionDecisionReason="because")
    (result,) = said("PreToolUse", answer).results
    assert (result.action, result.reason) == (action, "because")


def test_a_denial_without_a_reason_still_denies() -> None:
    """R15: a guard that says deny means it."""
    ran = said("PreToolUse", specific("PreToolUse", permissionDecision="deny"))
    assert decide(ran.results).action == "deny"


def test_a_changed_input_is_the_whole_input() -> None:
    """R15."""
    answer = specific("PreToolUse", permissionDecision="allow", updatedInput={"command": "ls"})
    decision = decide(said("PreToolUse", answer).results)
    assert (decision.updated_input, decision.allowed) == ({"command": "ls"}, True)


@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionStart", "PreToolUse", "PostToolUse"])
def test_additional_context(name: str) -> None:
    """R23."""
    ran = said(name, specific(name, additionalContext="on main"))
    assert injected(ran.results) == ["on main"]
    assert kinds(ran) == [("hook_additional_context", "on main")]


def test_additional_context_at_a_stop_has_the_agent_go_on() -> None:
    """R8."""
    (result,) = said("Stop", specific("Stop", additionalContext="look at this")).results
    assert (result.force_continue, result.context_injection) == (True, "look at this")


@pytest.mark.parametrize(
    "answer", [specific("PostToolUse", permissionDecision="deny"), {"hookSpecificOutput": {}}]
)
def test_what_is_for_another_event_is_ignored_and_told(answer: object) -> None:
    """R15."""
    ran = said("PreToolUse", answer)
    assert ran.results == ()
    assert "PreToolUse" in ran.problem


def test_the_old_form_approves() -> None:
    """R15: the old form works only for a tool call."""
    (result,) = said("PreToolUse", {"decision": "approve", "reason": "fine"}).results
    assert (result.action, result.reason) == ("allow", "fine")
    assert said("UserPromptSubmit", {"decision": "approve"}).results == ()


# Verdict keys and attachments.


@pytest.mark.parametrize("key", ["blockingError", "blocking_error"])
@pytest.mark.parametrize("name", CAN_BE_DENIED)
def test_a_blocking_error_denies(name: str, key: str) -> None:
    """R24."""
    ran = said(name, {key: "no"})
    assert decide(ran.results).reason == "no"
    assert kinds(ran) == [("hook_blocking_error", "no")]


def test_a_blocking_error_at_a_stop_is_told_to_the_user() -> None:
    """R26: the turn ends; only force_continue, a decision or exit code 2 continues it."""
    ran = said("Stop", {"blockingError": "the disk is full"})
    assert told(ran) == ["the disk is full"]
    assert not any(each.force_continue for each in ran.results)


def test_an_empty_blocking_error_blocks_nothing() -> None:
    """R15."""
    for answer in ({"blockingError": " "}, {"attachment_type": "hook_blocking_error"}):
        ran = said("PreToolUse", answer)
        assert ran.results == ()
        assert "blockingError" in ran.problem


@pytest.mark.parametrize("prevents", ["preventContinuation", "prevent_continuation"])
@pytest.mark.parametrize("reason", ["stopReason", "stop_reason"])
def test_prevent_continuation(prevents: str, reason: str) -> None:
    """R24."""
    ran = said("UserPromptSubmit", {prevents: True, reason: "enough"})
    assert (decide(ran.results).action, decide(ran.results).reason) == ("halt", "enough")


@pytest.mark.parametrize("force", ["force_continue", "forceContinue"])
@pytest.mark.parametrize("message", ["follow_up_message", "followUpMessage"])
def test_force_continue(force: str, message: str) -> None:
    """R27."""
    (result,) = said("Stop", {force: True, message: "and the tests?"}).results
    assert (result.force_continue, result.context_injection) == (True, "and the tests?")
    (result,) = said("Stop", {force: True}).results
    assert (result.force_continue, result.context_injection) == (True, None)


def test_force_continue_is_for_a_stop_alone() -> None:
    """R27."""
    ran = said("PreToolUse", {"force_continue": True})
    assert ran.results == ()
    assert "force_continue" in ran.problem


def test_a_follow_up_alone_does_not_go_on() -> None:
    """R27."""
    ran = said("Stop", {"follow_up_message": "more"})
    assert ran.results == ()
    assert "force_continue" in ran.problem


@pytest.mark.parametrize("key", ["additionalContext", "additional_context"])
def test_contexts_one_or_several(key: str) -> None:
    """R25."""
    assert injected(said("UserPromptSubmit", {key: "a"}).results) == ["a"]
    assert injected(said("UserPromptSubmit", {key: ["a", "b"]}).results) == ["a", "b"]


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
def test_attachments(attachment: object, action: str, content: str) -> None:
    """R23: the four types, each with a text, texts or an object."""
    ran = said("PreToolUse", attachment)
    assert decide(ran.results).action == action
    assert [text for _, text in kinds(ran)] == [content]
    assert not ran.problem


def test_an_attachment_forces_a_stop_to_go_on() -> None:
    """R27."""
    content = {"force_continue": True, "follow_up_message": "go on"}
    ran = said("Stop", {"attachment_type": "hook_stopped_continuation", "content": content})
    assert kinds(ran) == [("hook_stopped_continuation", "go on")]
    assert [each.force_continue for each in ran.results] == [True]


def test_a_list_of_attachments_keeps_its_order() -> None:
    """R25."""
    ran = said(
        "UserPromptSubmit",
        [
            {"attachment_type": "hook_additional_context", "content": ["a", "b"]},
            {"attachment_type": "hook_success", "content": "ok"},
            {"attachment_type": "hook_additional_context", "content": "c"},
        ],
    )
    assert injected(ran.results) == ["a", "b", "c"]
    assert [kind for kind, _ in kinds(ran)].count("hook_success") == 1


def test_an_unknown_attachment_is_a_problem_and_the_rest_holds() -> None:
    """R23."""
    ran = said(
        "PreToolUse",
        [{"attachment_type": "hook_unheard_of"}, {"attachment_type": "hook_blocking_error", "content": "no"}],
    )
    assert decide(ran.results).reason == "no"
    assert "hook_unheard_of" in ran.problem
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
def test_a_wrong_type_is_a_problem_that_names_the_key(key: str, value: object) -> None:
    """R15: the rest of the answer counts."""
    ran = said("PreToolUse", {"continue": False} | {key: value})
    assert decide(ran.results).action == ("continue" if key in {"continue", "attachment_type"} else "halt")
    assert key in ran.problem


def test_a_wrong_content_is_a_problem() -> None:
    """R23."""
    assert "content" in said("Stop", {"attachment_type": "hook_success", "content": 7}).problem
    assert said("PreToolUse", "[{}, 4]").problem


def test_unknown_keys_are_ignored() -> None:
    """R15."""
    ran = said("PreToolUse", {"async": True, "hook": {"a": 1}})
    assert (ran.results, ran.problem) == ((), "")


def test_a_long_context_is_left_whole() -> None:
    """R71: the injector applies its limit."""
    text = "x" * 100_000
    assert injected(said("UserPromptSubmit", {"additionalContext": text}).results) == [text]


def test_a_prompt_is_context() -> None:
    """R16."""
    ran = prompted(rule("UserPromptSubmit", "", kind="prompt", prompt="Answer in markdown.", name="style"))
    assert ran.results == (HookResult("inject_context", "Answer in markdown.", source="style"),)
    assert kinds(ran) == [("hook_additional_context", "Answer in markdown.")]
