"""The payload that a rule's command reads on standard input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from written import event

from relay.agents import kinds
from relay.agents.hook_event import NativeName
from relay.rules.event import EVENTS, RuleEvent, Shape, from_native, payload

RECORDED = Path(__file__).parent.parent / "agents" / "payloads"
UNRULED = {
    NativeName.PERMISSION,
    NativeName.SUBAGENT_START,
    NativeName.SUBAGENT_STOP,
    NativeName.STOP_FAILURE,
    NativeName.MESSAGE_DISPLAY,
}


def native(agent: str, name: str, **more: Any) -> RuleEvent:
    """Return the event of a payload recorded from `agent`."""
    native_event = kinds.find(agent).parse("", (RECORDED / agent / f"{name}.json").read_text())
    assert native_event is not None
    found = from_native(native_event, **more)
    assert found is not None
    return found


def read(shape: Shape, native_event: RuleEvent) -> dict[str, Any]:
    value = json.loads(payload(shape, native_event))
    assert isinstance(value, dict)
    return value


def test_every_recorded_event_has_claude_codes_fields(subtests: pytest.Subtests) -> None:
    """R18"""
    for path in sorted(RECORDED.glob("*/*.json")):
        with subtests.test(f"{path.parent.name}-{path.stem}"):
            native_event = kinds.find(path.parent.name).parse("", path.read_text())
            assert native_event is not None
            found = from_native(native_event)
            if native_event.name in UNRULED:
                assert found is None
                continue
            assert found is not None
            assert found.agent == path.parent.name
            value = read("group", found)
            assert value["hook_event_name"] == found.name
            assert found.name in EVENTS
            assert {"session_id", "transcript_path", "cwd"} <= value.keys()
            assert not EVENTS[found.name].matched or value[EVENTS[found.name].matched]


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude", "PreToolUse-Bash"),
        ("codex", "PreToolUse-Bash"),
        ("qwen", "PreToolUse-run_shell_command"),
        ("gemini", "BeforeTool-run_shell_command"),
        ("opencode", "PreToolUse-Bash"),
    ],
)
def test_a_group_gets_claude_codes_payload(agent: str, name: str) -> None:
    """R18, R21: the payload has Claude Code's names for the event and the tool."""
    value = read("group", native(agent, name))
    assert (value["hook_event_name"], value["tool_name"]) == ("PreToolUse", "Bash")
    assert value["tool_input"]["command"] == "touch a.txt"


@pytest.mark.parametrize(
    ("agent", "name", "tool"),
    [
        ("claude", "PreToolUse-Bash", "Bash"),
        ("gemini", "BeforeTool-run_shell_command", "run_shell_command"),
    ],
)
def test_a_flat_rule_gets_the_envelope(agent: str, name: str, tool: str) -> None:
    """R18: the envelope has the agent's own tool names."""
    value = read("flat", native(agent, name))
    assert value.keys() == {"event", "data"}
    assert value["event"] == value["data"]["hook_event_name"] == "PreToolUse"
    assert value["data"]["tool_name"] == tool
    assert value["data"]["cwd"] == "/home/dev/project"


@pytest.mark.parametrize("shape", ["flat", "group"])
@pytest.mark.parametrize(
    ("agent", "name", "text"),
    [
        ("claude", "Stop", "Hi there."),
        ("qwen", "Stop", "Touched."),
        ("codex", "Stop", "Hi there."),
        ("gemini", "AfterAgent", "ok: [relay"),
        ("opencode", "Stop", "After the tool."),
    ],
)
def test_the_payload_of_a_stop_is_flat(agent: str, name: str, text: str, shape: Shape) -> None:
    """R18, R33: in both formats, with snake case at the top level and the reason for the end of the turn."""
    value = read(shape, native(agent, name))
    assert value["hook_event_name"] == "Stop"
    assert value["last_assistant_message"].startswith(text)
    assert value["stop_hook_active"] is (agent == "qwen")
    assert (value["turn_end_reason"], value["at_max_iter"]) == ("final_response", False)


def test_a_stop_has_the_reason_for_the_end_of_the_turn() -> None:
    """R33."""
    value = read("flat", native("claude", "Stop", turn_end_reason="max_iterations", at_max_iter=True))
    assert (value["turn_end_reason"], value["at_max_iter"]) == ("max_iterations", True)


@pytest.mark.parametrize("shape", ["flat", "group"])
def test_the_payload_of_a_compaction_is_flat(shape: Shape) -> None:
    """R18, R35: the compaction's type is null if unknown."""
    value = read(shape, native("gemini", "PreCompress"))
    assert (value["hook_event_name"], value["trigger"]) == ("PreCompact", "auto")
    assert value["compaction_type"] is None
    assert read(shape, native("gemini", "PreCompress", compaction_type="full"))["compaction_type"] == "full"


def test_the_payload_names_the_subagent() -> None:
    """R18."""
    raw = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "agent_id": "a42", "agent_type": "reviewer"}
    native_event = kinds.find("claude").parse("", json.dumps(raw))
    assert native_event is not None
    found = from_native(native_event)
    assert found is not None
    assert read("group", found)["agent_id"] == read("flat", found)["data"]["agent_id"] == "a42"


def test_a_field_of_a_wrong_type_is_omitted() -> None:
    """R18: a payload is untrusted."""
    raw = {"tool_name": ["Bash"], "tool_input": "rm", "cwd": 7, "notification_type": {}, "custom": 1}
    native_event = kinds.find("claude").parse("PreToolUse", json.dumps(raw))
    assert native_event is not None
    found = from_native(native_event)
    assert found is not None
    assert found.data == {"tool_input": {}, "custom": 1, "hook_event_name": "PreToolUse"}


def test_a_permission_request_of_gemini_has_claude_codes_name() -> None:
    """R18."""
    value = read("group", native("gemini", "Notification-ToolPermission"))
    assert value["notification_type"] == "permission_prompt"


@pytest.mark.parametrize("shape", ["flat", "group"])
def test_any_text_becomes_json(shape: Shape) -> None:
    """R15: even half a surrogate pair, which cannot be encoded."""
    line = payload(shape, event("UserPromptSubmit", prompt="\ud800 é \n\x1b[31m", odd=Path("/x")))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)
