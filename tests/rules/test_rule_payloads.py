"""What rules' commands get on standard input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from written import event

from relay.agents.hook_event import NativeName, parse
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
    """Return the event of a payload that `agent` really sent."""
    told = parse(agent, "", (RECORDED / agent / f"{name}.json").read_text())
    assert told is not None
    found = from_native(told, **more)
    assert found is not None
    return found


def read(shape: Shape, told: RuleEvent) -> dict[str, Any]:
    value = json.loads(payload(shape, told))
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    "path", sorted(RECORDED.glob("*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_recorded_event_has_claudes_fields(path: Path) -> None:
    """R18: every agent's events have them."""
    told = parse(path.parent.name, "", path.read_text())
    assert told is not None
    found = from_native(told)
    if told.name in UNRULED:
        assert found is None
        return
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
def test_a_group_gets_what_claude_code_would_have_sent(agent: str, name: str) -> None:
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
    ("agent", "name", "said"),
    [
        ("claude", "Stop", "Hi there."),
        ("qwen", "Stop", "Touched."),
        ("codex", "Stop", "Hi there."),
        ("gemini", "AfterAgent", "ok: [relay"),
        ("opencode", "Stop", "After the tool."),
    ],
)
def test_a_stop_is_flat(agent: str, name: str, said: str, shape: Shape) -> None:
    """R18, R33: the payload has snake case at the top level, in both formats, and how the turn ended."""
    value = read(shape, native(agent, name))
    assert value["hook_event_name"] == "Stop"
    assert value["last_assistant_message"].startswith(said)
    assert value["stop_hook_active"] is (agent == "qwen")
    assert (value["turn_end_reason"], value["at_max_iter"]) == ("final_response", False)


def test_the_session_says_how_the_turn_has_ended() -> None:
    """R33."""
    value = read("flat", native("claude", "Stop", turn_end_reason="max_iterations", at_max_iter=True))
    assert (value["turn_end_reason"], value["at_max_iter"]) == ("max_iterations", True)


@pytest.mark.parametrize("shape", ["flat", "group"])
def test_a_compaction_is_flat(shape: Shape) -> None:
    """R18, R35: the compaction's type is null if unknown."""
    value = read(shape, native("gemini", "PreCompress"))
    assert (value["hook_event_name"], value["trigger"]) == ("PreCompact", "auto")
    assert value["compaction_type"] is None
    assert read(shape, native("gemini", "PreCompress", compaction_type="full"))["compaction_type"] == "full"


def test_a_subagent_is_named() -> None:
    """R18."""
    raw = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "agent_id": "a42", "agent_type": "reviewer"}
    told = parse("claude", "", json.dumps(raw))
    assert told is not None
    found = from_native(told)
    assert found is not None
    assert read("group", found)["agent_id"] == read("flat", found)["data"]["agent_id"] == "a42"


def test_what_has_a_wrong_type_is_left_out() -> None:
    """R18: a payload is untrusted."""
    raw = {"tool_name": ["Bash"], "tool_input": "rm", "cwd": 7, "notification_type": {}, "custom": 1}
    told = parse("claude", "PreToolUse", json.dumps(raw))
    assert told is not None
    found = from_native(told)
    assert found is not None
    assert found.data == {"tool_input": {}, "custom": 1, "hook_event_name": "PreToolUse"}


def test_geminis_request_for_permission_is_called_as_claudes() -> None:
    """R18."""
    value = read("group", native("gemini", "Notification-ToolPermission"))
    assert value["notification_type"] == "permission_prompt"


@pytest.mark.parametrize("shape", ["flat", "group"])
def test_any_text_becomes_json(shape: Shape) -> None:
    """R15: even characters that cannot be encoded, such as half a surrogate pair."""
    line = payload(shape, event("UserPromptSubmit", prompt="\ud800 é \n\x1b[31m", odd=Path("/x")))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)
