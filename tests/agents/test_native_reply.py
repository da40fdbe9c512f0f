"""Answers to an agent's hooks: the JSON of each protocol, with nothing that the agent would reject."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent
from relay.agents.hook_reply import Reply

EVERYTHING = Reply(context="know this", deny="no", continuation="more", notice="hey")


def event(agent: str, name: str) -> NativeEvent:
    parsed = kinds.find(agent).parse(name, b"{}")
    assert parsed is not None
    return parsed


def plain(agent: str, name: str, reply: Reply) -> str:
    return kinds.find(agent).render(event(agent, name), reply)


def rendered(agent: str, name: str, **parts: Any) -> Any:
    text = plain(agent, name, Reply(**parts))
    return json.loads(text) if text else None


@pytest.mark.parametrize("agent", ["claude", "codex", "qwen", "opencode", "relay"])
def test_a_tool_call_is_denied_in_the_nested_form(agent: str) -> None:
    assert rendered(agent, "PreToolUse", deny="not on Fridays") == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "not on Fridays",
        }
    }


@pytest.mark.parametrize("agent", ["claude", "codex", "qwen"])
def test_a_tool_call_is_denied_if_the_turn_is_to_stop(agent: str) -> None:
    """R36: claude runs the tool before it obeys `continue: false`, codex despite it; qwen continues."""
    denied = rendered(agent, "PreToolUse", deny="enough")
    assert rendered(agent, "PreToolUse", halt="enough") == denied


def test_codex_accepts_updated_input_only_with_allow() -> None:
    """With `allow`, codex still asks the user. Claude would not ask, but needs no `allow`."""
    changed = {"hookEventName": "PreToolUse", "updatedInput": {"command": "ls"}}
    assert rendered("claude", "PreToolUse", input={"command": "ls"}) == {"hookSpecificOutput": changed}
    assert rendered("codex", "PreToolUse", input={"command": "ls"}) == {
        "hookSpecificOutput": {**changed, "permissionDecision": "allow"}
    }
    refused = rendered("qwen", "PreToolUse", input={"command": "ls"})
    assert refused["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_gemini_denies_with_a_decision() -> None:
    assert rendered("gemini", "BeforeTool", deny="no") == {"decision": "deny", "reason": "no"}


def test_a_call_that_the_user_must_allow_is_denied_where_the_agent_cannot_ask() -> None:
    asked = rendered("claude", "PreToolUse", ask="sure?")["hookSpecificOutput"]
    assert (asked["permissionDecision"], asked["permissionDecisionReason"]) == ("ask", "sure?")
    for agent in ("codex", "qwen"):
        denied = rendered(agent, "PreToolUse", ask="sure?")["hookSpecificOutput"]
        assert denied["permissionDecision"] == "deny"
        assert denied["permissionDecisionReason"].startswith("sure? ")
    assert rendered("gemini", "BeforeTool", ask="sure?")["decision"] == "deny"


@pytest.mark.parametrize("agent", ["claude", "codex", "qwen"])
def test_a_denied_prompt_is_blocked(agent: str) -> None:
    assert rendered(agent, "UserPromptSubmit", deny="no") == {"decision": "block", "reason": "no"}


def test_a_permission_is_denied_and_never_granted() -> None:
    assert rendered("claude", "PermissionRequest", deny="no") == {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "deny", "message": "no"},
        }
    }
    assert rendered("claude", "PermissionRequest", context="yes", continuation="yes") is None


@pytest.mark.parametrize(
    ("agent", "name"), [("claude", "PostToolUse"), ("codex", "UserPromptSubmit"), ("gemini", "AfterTool")]
)
def test_context_names_the_event_that_it_answers(agent: str, name: str) -> None:
    assert rendered(agent, name, context="a\n“b”") == {
        "hookSpecificOutput": {"hookEventName": name, "additionalContext": "a\n“b”"}
    }


@pytest.mark.parametrize(("agent", "name"), [("codex", "Stop"), ("qwen", "Stop"), ("gemini", "AfterAgent")])
def test_a_block_continues_the_turn(agent: str, name: str) -> None:
    assert rendered(agent, name, continuation="and the tests?", context="x") == {
        "decision": "block",
        "reason": "and the tests?",
    }


@pytest.mark.parametrize("name", ["Stop", "SubagentStop"])
def test_claudes_turn_continues_without_an_error(name: str) -> None:
    """F9, U12: a block is drawn as an error, and reaches the model twice."""
    specific = {"hookEventName": name, "additionalContext": "and the tests?"}
    assert rendered("claude", name, continuation="and the tests?") == {"hookSpecificOutput": specific}
    assert rendered("claude", name, continuation="")["hookSpecificOutput"]["additionalContext"]


def test_a_block_always_has_a_reason() -> None:
    """Agents ignore a block without a reason, or reject the whole reply."""
    assert rendered("codex", "PreToolUse", deny="")["hookSpecificOutput"]["permissionDecisionReason"]
    assert rendered("codex", "Stop", continuation="")["reason"]


def test_parts_that_the_protocol_cannot_carry_are_omitted() -> None:
    assert plain("claude", "Notification", EVERYTHING) == ""
    assert plain("claude", "SessionEnd", EVERYTHING) == ""
    assert rendered("qwen", "SessionStart", context="never seen by its model") is None
    assert rendered("qwen", "PreToolUse", context="nor this") is None
    assert rendered("gemini", "BeforeTool", context="x") is None
    assert rendered("codex", "PreCompact", deny="its schema has no decision there") is None
    assert rendered("claude", "Stop", context="would begin another turn") is None


@pytest.mark.parametrize("agent", kinds.hooked())
def test_an_empty_reply_is_rendered_as_nothing(agent: str) -> None:
    for name in kinds.find(agent).events:
        assert plain(agent, name, Reply()) == ""


@pytest.mark.parametrize("agent", kinds.hooked())
def test_only_keys_of_the_protocols_are_rendered(agent: str) -> None:
    """codex rejects a reply with an unknown key; copilot's replies are flat."""
    keys = {"decision", "reason", "hookSpecificOutput", "systemMessage"}
    if agent == "copilot":
        keys = {"decision", "reason", "permissionDecision", "permissionDecisionReason"}
        keys |= {"behavior", "message", "additionalContext"}
    for name, kind in kinds.find(agent).events.items():
        text = plain(agent, name, EVERYTHING)
        answer = json.loads(text) if text else {}
        assert set(answer) <= keys
        assert bool(text) == bool(kinds.find(agent).carries(kind))
