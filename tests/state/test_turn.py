"""What an agent is doing, according to its hooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.profile import PromptKind
from relay.state.turn import Turn


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turn(clock: Callable[[], float]) -> Turn:
    return Turn(clock)


def report(turn: Turn, name: NativeName, *, agent: str = "claude", **fields: Any) -> None:
    turn.take(NativeEvent(name, agent, **fields))


def state(turn: Turn) -> tuple[str, PromptKind | None] | None:
    evidence = turn.hooks.evidence()
    return None if evidence is None else (evidence.state, evidence.kind)


def test_a_turn_lasts_from_its_prompt_to_its_end(turn: Turn, clock: Clock) -> None:
    assert turn.hooks.evidence() is None
    report(turn, NativeName.SESSION_START, source="startup")
    assert turn.hooks.evidence() is None
    report(turn, NativeName.PROMPT_SUBMIT, prompt="hello")
    assert state(turn) == ("working", None) and turn.active
    clock.now += 2
    evidence = turn.hooks.evidence()
    assert evidence is not None and evidence.age == 2 and evidence.source == "hooks"
    turn.say("Hi.")
    turn.end()
    assert state(turn) == ("ready", None) and not turn.active
    assert turn.messages == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hi."}]


@pytest.mark.parametrize(
    ("tool", "kind"),
    [("ExitPlanMode", PromptKind.PLAN_APPROVAL), ("AskUserQuestion", PromptKind.QUESTION)],
)
def test_a_tool_that_asks_makes_the_agent_prompting(turn: Turn, tool: str, kind: PromptKind) -> None:
    """R88, R89, R96: the permission that such a tool also needs is the same dialog."""
    report(turn, NativeName.TOOL_PRE, tool_name=tool, tool_input={"plan": "x"})
    assert state(turn) == ("prompting", kind)
    report(turn, NativeName.PERMISSION, tool_name=tool, tool_input={"plan": "x"})
    report(turn, NativeName.NOTIFICATION, notification_type="permission_prompt")
    assert state(turn) == ("prompting", kind)
    report(turn, NativeName.TOOL_POST, tool_name=tool, tool_input={"plan": "x"})
    assert state(turn) == ("working", None)


@pytest.mark.parametrize("tool", ["EnterPlanMode", "Bash", ""])
def test_other_tools_leave_the_agent_working(turn: Turn, tool: str) -> None:
    """R90"""
    report(turn, NativeName.TOOL_PRE, tool_name=tool)
    assert state(turn) == ("working", None)


def test_an_open_permission_outlives_the_end_of_another_tool(turn: Turn) -> None:
    bash = {"tool_name": "Bash", "tool_input": {"command": "rm x"}}
    read = {"tool_name": "Read", "tool_input": {"path": "y"}}
    report(turn, NativeName.TOOL_PRE, **bash)
    report(turn, NativeName.PERMISSION, **bash)
    report(turn, NativeName.TOOL_PRE, **read)
    report(turn, NativeName.TOOL_POST, **read)
    assert state(turn) == ("prompting", PromptKind.PERMISSION)
    report(turn, NativeName.TOOL_FAILED, **bash, error="denied")
    assert state(turn) == ("working", None)


def test_a_permission_notification_alone_means_prompting(turn: Turn) -> None:
    report(turn, NativeName.NOTIFICATION, notification_type="idle_prompt")
    assert turn.hooks.evidence() is None
    asks = {"notification_type": "ToolPermission", "message": "Run it?\x1b[31m"}
    report(turn, NativeName.NOTIFICATION, agent="gemini", **asks)
    evidence = turn.hooks.evidence()
    assert evidence is not None and evidence.kind is PromptKind.PERMISSION
    assert "\x1b" not in evidence.detail
    report(turn, NativeName.TOOL_POST, tool_name="any")
    assert state(turn) == ("working", None)


def test_a_model_error_means_failed(turn: Turn) -> None:
    report(turn, NativeName.PROMPT_SUBMIT, prompt="hello")
    report(turn, NativeName.STOP_FAILURE, error="529 overloaded")
    evidence = turn.hooks.evidence()
    assert evidence is not None and (evidence.state, evidence.detail) == ("failed", "529 overloaded")
    report(turn, NativeName.PROMPT_SUBMIT, prompt="again")
    assert state(turn) == ("working", None)


def test_clear_resets_the_evidence_and_compacting_does_not(turn: Turn) -> None:
    report(turn, NativeName.PROMPT_SUBMIT, prompt="hello")
    report(turn, NativeName.SESSION_START, source="compact")
    assert state(turn) == ("working", None)
    report(turn, NativeName.SESSION_END, reason="clear")
    report(turn, NativeName.SESSION_START, source="clear")
    assert turn.hooks.evidence() is None


def test_a_subagents_turn_is_part_of_the_agents(turn: Turn) -> None:
    """Codex also reports a subagent's prompt; Qwen an empty one after each tool."""
    report(turn, NativeName.PROMPT_SUBMIT, prompt="hello")
    turn.continue_with("more")
    report(turn, NativeName.PROMPT_SUBMIT, prompt="look there", agent_id="a1")
    report(turn, NativeName.PROMPT_SUBMIT, prompt="")
    report(turn, NativeName.STOP_FAILURE, error="it failed", agent_id="a1")
    assert state(turn) == ("working", None) and turn.continuations == 1
    assert [message["content"] for message in turn.messages] == ["hello", "more"]
    report(turn, NativeName.PERMISSION, tool_name="Bash", agent_id="a1")
    assert state(turn) == ("prompting", PromptKind.PERMISSION)


def test_continuations_are_counted_until_a_new_prompt(turn: Turn) -> None:
    """R10, R28: an agent that submits its continuation, as Gemini does, has not been prompted."""
    report(turn, NativeName.PROMPT_SUBMIT, prompt="hello")
    for times in (1, 2, 3):
        turn.continue_with("[relay ab12 hook] more [/relay ab12]")
        assert turn.continuations == times and state(turn) == ("working", None)
        report(turn, NativeName.PROMPT_SUBMIT, prompt="[relay ab12 hook] more [/relay ab12]")
        assert turn.continuations == times
    turn.end()
    report(turn, NativeName.PROMPT_SUBMIT, prompt="something new")
    assert turn.continuations == 0


def test_the_text_of_an_ended_continuation_is_a_users_prompt(turn: Turn) -> None:
    """R28: a user who types exactly that has started a new turn."""
    report(turn, NativeName.PROMPT_SUBMIT, prompt="hello")
    for submits in (True, False):
        turn.continue_with("Go on.")
        turn.halt("enough")
        if submits:
            report(turn, NativeName.PROMPT_SUBMIT, prompt="Go on.")
        turn.end()
        report(turn, NativeName.PROMPT_SUBMIT, prompt="Go on.")
        assert (turn.continuations, turn.halted) == (0, "")


CAPTURED = Path(__file__).parent.parent / "agents" / "payloads" / "claude"


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
def test_an_answered_question_of_the_real_agent_is_closed(turn: Turn, tool: str) -> None:
    """Claude adds the answers to the tool's input."""
    for name in ("PreToolUse", "PermissionRequest", "PostToolUse"):
        assert state(turn) in (None, ("prompting", kinds.find("claude").dialogs.get(tool)))
        event = kinds.find("claude").parse(name, (CAPTURED / f"{name}-{tool}.json").read_bytes())
        assert event is not None
        turn.take(event)
    assert state(turn) == ("working", None)


def test_other_tools_do_not_renew_an_open_permission(turn: Turn, clock: Clock) -> None:
    """A call that was denied ends without an event."""
    report(turn, NativeName.PERMISSION, tool_name="Bash", tool_input={"command": "rm x"})
    clock.now += 10
    report(turn, NativeName.TOOL_PRE, tool_name="Read", tool_input={"file_path": "x"})
    evidence = turn.hooks.evidence()
    assert evidence is not None and (evidence.state, evidence.age) == ("prompting", 10)
