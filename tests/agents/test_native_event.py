"""Parsing events of agents' hooks, from real and from hostile payloads."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents import kinds
from relay.agents.hook_event import DIALOGS, OBSERVED, NativeEvent, NativeName
from relay.agents.profile import PromptKind

PAYLOADS = Path(__file__).parent / "payloads"
CAPTURED = sorted(PAYLOADS.glob("*/*.json"))


def test_payloads_of_real_agents_are_parsed(subtests: pytest.Subtests) -> None:
    """R99: the payloads were captured from the CLI versions listed in docs/AGENTS.md."""
    for path in CAPTURED:
        with subtests.test(f"{path.parent.name}-{path.stem}"):
            agent, event = path.parent.name, path.stem.split("-")[0]
            raw = json.loads(path.read_text())
            parsed = kinds.find(agent).parse(event, path.read_bytes())
            assert parsed is not None
            assert parsed.name is kinds.find(agent).events[event]
            assert parsed.event == raw["hook_event_name"] == event
            assert (
                parsed.session_id or path.stem == "SessionStart-startup"
            )  # opencode has none before its first prompt
            assert parsed.cwd == "/home/dev/project"
            assert parsed.tool_name == raw.get("tool_name", "")
            assert parsed.tool_input == raw.get("tool_input", {})
            assert parsed.agent_id == raw.get("agent_id", "")
            assert kinds.find(agent).parse("", path.read_bytes()) == parsed, (
                "the payload also names its event"
            )


def test_fields_of_claudes_events_are_parsed() -> None:
    def read(name: str) -> bytes:
        return (PAYLOADS / "claude" / f"{name}.json").read_bytes()

    stop = kinds.find("claude").parse("Stop", read("Stop"))
    assert stop is not None
    assert (stop.last_assistant_message, stop.stop_hook_active) == ("Hi there.", False)
    failed = kinds.find("claude").parse("PostToolUseFailure", read("PostToolUseFailure-Bash"))
    assert failed is not None
    assert (failed.name, failed.error, failed.duration_ms) == (NativeName.TOOL_FAILED, "Exit code 1", 89.0)
    sub = kinds.find("claude").parse("SubagentStop", read("SubagentStop"))
    assert sub is not None
    assert (sub.agent_type, sub.last_assistant_message) == ("general-purpose", "Sub says hi.")
    ended = kinds.find("gemini").parse("AfterAgent", (PAYLOADS / "gemini" / "AfterAgent.json").read_bytes())
    assert ended is not None
    assert ended.last_assistant_message.startswith("ok: ")
    start = kinds.find("claude").parse("SessionStart", read("SessionStart-clear"))
    assert start is not None
    assert start.source == "clear"


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"nonsense"]
)
def test_malformed_json_is_ignored(payload: bytes) -> None:
    """R87"""
    assert kinds.find("claude").parse("PreToolUse", payload) is None


@pytest.mark.parametrize(
    ("agent", "event"), [("claude", "Unheard"), ("nobody", "Stop"), ("codex", ""), ("", "")]
)
def test_an_unknown_event_or_agent_is_ignored(agent: str, event: str) -> None:
    """R90"""
    assert kinds.find(agent).parse(event, b"{}") is None


@pytest.mark.parametrize("event", ["PreToolUse", "pretooluse", "tool_pre"])
def test_events_are_recognised_in_any_case_and_by_relays_names(event: str) -> None:
    """R86: `relay hook pretooluse`."""
    parsed = kinds.find("claude").parse(event, b"{}")
    assert parsed is not None
    assert parsed.event == "PreToolUse"


def test_fields_of_a_wrong_type_are_ignored() -> None:
    payload = {"tool_name": 3, "tool_input": "x", "cwd": None, "duration_ms": "1", "stop_hook_active": 1}
    parsed = kinds.find("claude").parse("PreToolUse", json.dumps(payload))
    assert parsed is not None
    assert (parsed.tool_name, parsed.tool_input, parsed.cwd) == ("", {}, "")
    assert (parsed.duration_ms, parsed.stop_hook_active) == (0.0, False)


@pytest.mark.parametrize("duration", ["1" + "0" * 400, "-5", "NaN", "Infinity", "true"])
def test_an_invalid_duration_is_ignored(duration: str) -> None:
    event = kinds.find("claude").parse("PostToolUse", f'{{"duration_ms": {duration}}}')
    assert event is not None and event.duration_ms == 0.0


def test_a_lone_surrogate_is_replaced() -> None:
    parsed = kinds.find("claude").parse(
        "UserPromptSubmit", b'{"prompt": "a\\ud83db \\ud83d\\ude00", "x": ["\\udc00"]}'
    )
    assert parsed is not None
    assert parsed.prompt == "a?b \N{GRINNING FACE}"
    assert parsed.raw["x"] == ["?"]


KEYS = st.sampled_from([each.name for each in fields(NativeEvent)])
OBJECTS = st.dictionaries(
    KEYS | st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
)


@given(st.binary(max_size=200) | OBJECTS.map(lambda value: json.dumps(value).encode()))
def test_any_json_object_is_an_event_and_other_bytes_are_not(payload: bytes) -> None:
    """R86"""
    event = kinds.find("gemini").parse("BeforeTool", payload)
    try:
        value = json.loads(payload.decode("utf-8", "replace"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        assert event is None
        return
    assert event is not None
    assert (event.agent, event.event, event.name) == ("gemini", "BeforeTool", NativeName.TOOL_PRE)
    assert repr(event.raw) == repr(value)
    for field in fields(NativeEvent):
        kept = getattr(event, field.name)
        if field.type == "str":
            assert isinstance(kept, str)
        if field.name in set(value) - {"agent", "event", "name", "raw"}:
            given = value[field.name]
            number = field.name == "duration_ms" and type(given) is int
            assert not kept or repr(kept) == repr(float(given) if number else given)


def test_each_observed_tool_has_its_kind_of_prompt() -> None:
    """R88, R89, R90; EnterPlanMode is recognised and asks nothing."""
    assert DIALOGS.get("ExitPlanMode") is PromptKind.PLAN_APPROVAL
    assert DIALOGS.get("AskUserQuestion") is PromptKind.QUESTION
    assert DIALOGS.get("EnterPlanMode") is None
    assert DIALOGS.get("Bash") is None
    assert set(DIALOGS) == set(OBSERVED.split("|"))
