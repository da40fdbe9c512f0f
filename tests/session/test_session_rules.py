"""Rules of hooks.json files in a session: when they fire, and what they do."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.hooked import Claude, Json
from relay.features.rule_runner import REPORTED
from session.fake_agent import FakeAgent, events, ps, settings
from session.transcript import Transcript
from support import Relay, wait_until

pytestmark = pytest.mark.own_team


def rules(relay: Relay, **handlers: Any) -> Path:
    """Write the user's hooks.json: for each event, entries or shell commands."""
    path = relay.home / "config" / "hooks.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"hooks": {event: _entries(given) for event, given in handlers.items()}}))
    return path


def _entries(given: Any) -> list[Any]:
    entries = given if isinstance(given, list) else [given]
    return [{"type": "command", "command": entry} if isinstance(entry, str) else entry for entry in entries]


def prints(verdict: Any) -> str:
    """Return a shell command that prints `verdict`."""
    return f"echo {shlex.quote(json.dumps(verdict))}"


def log_input(path: Path) -> str:
    """Return a shell command that appends its input to `path`, one line per event."""
    return f"cat >> {shlex.quote(str(path))}"


def logged(path: Path, count: int = 1) -> list[Json]:
    """Return the payloads that a command of `log_input` has received, once there are `count`."""

    def read() -> list[Json] | None:
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines] if len(lines) >= count else None

    found = wait_until(read)
    assert found is not None
    return found


def answer(call: Json) -> dict[str, Any]:
    return dict(json.loads(call["stdout"])) if call["stdout"] else {}


def specific(call: Json) -> dict[str, Any]:
    return dict(answer(call).get("hookSpecificOutput", {}))


def fired(claude: Claude, count: int = 1) -> list[Json]:
    """Return the journal's entries of fired rules, once there are `count`."""
    return wait_until(lambda: len(found := claude.events("hook_fired")) >= count and found) or []


class SharedClaude(Claude):
    """The agent of the tests that only change the user's rules; `events` are those since the last change."""

    def rules(self, **handlers: Any) -> Path:
        path = rules(self.relay, **handlers)
        self.relay("hooks", "reload")
        return path

    def events(self, kind: str) -> list[Json]:
        found = [entry for entry in events(self.relay) if entry["name"] == self.name]
        changes = [n for n, entry in enumerate(found) if entry["event"] == "rules_reloaded"]
        return [entry for entry in found[changes[-1] :] if entry["event"] == kind]


@pytest.fixture(scope="module")
def claude(shared: Relay) -> SharedClaude:
    claude = SharedClaude(shared)
    start_agent(claude.wrap())
    return claude


def start_agent(claude: Claude) -> Claude:
    claude.fire("SessionStart", source="startup")
    return claude


BASH = {"tool_name": "Bash", "tool_input": {"command": "rm -rf /"}}


def test_a_rule_denies_a_tool_call(claude: SharedClaude) -> None:
    """R36, R41"""
    claude.rules(
        PreToolUse={"matcher": "Bash", "hooks": [{"type": "command", "command": "echo never >&2; exit 2"}]},
    )
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call)["permissionDecision"] == "deny"
    assert specific(call)["permissionDecisionReason"] == "never"
    (entry,) = fired(claude)
    assert entry["hook_name"] == "PreToolUse" and entry["outcome"] == "block"
    assert entry["matched_rule_count"] == 1 and entry["tool"] == "Bash"
    (rule,) = entry["rules"]
    assert rule["exit_code"] == 2 and rule["output_preview"] == "never\n" and rule["duration_ms"] > 0


def test_an_event_without_a_matching_rule_is_not_reported(claude: SharedClaude) -> None:
    """R30"""
    claude.rules(
        PreToolUse={"matcher": "Write", "hooks": [{"type": "command", "command": "exit 2"}]},
        Stop="true",
    )
    (call,) = claude.fire("PreToolUse", **BASH)
    assert not call["stdout"]
    claude.fire("UserPromptSubmit", prompt="hi")
    claude.fire("Stop", last_assistant_message="done")
    (entry,) = fired(claude)
    assert entry["hook_name"] == "Stop" and entry["outcome"] == "allow"


def test_a_rule_can_change_a_tools_input_and_allow_the_call(claude: SharedClaude) -> None:
    verdict = {"permissionDecision": "allow", "updatedInput": {"command": "ls"}}
    claude.rules(PreToolUse=prints({"hookSpecificOutput": {"hookEventName": "PreToolUse", **verdict}}))
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call) == {"hookEventName": "PreToolUse", **verdict}
    assert fired(claude)[0]["outcome"] == "allow"
    assert claude.events("allowed")


def test_a_blocked_prompt_is_marked(claude: SharedClaude) -> None:
    """R24, R39"""
    claude.rules(UserPromptSubmit=prints({"decision": "block", "reason": "not on Sundays"}))
    (call,) = claude.fire("UserPromptSubmit", prompt="deploy")
    assert answer(call) == {"decision": "block", "reason": "[Blocked by hook] not on Sundays"}
    (entry,) = fired(claude)
    assert entry["outcome"] == "block" and entry["blocking_error"] == "not on Sundays"
    assert entry["stop_reason"] is None and entry["added_context_count"] == 0


def test_a_stopped_prompt_is_marked_with_the_default_reason(claude: SharedClaude) -> None:
    """R39"""
    claude.rules(UserPromptSubmit=prints({"continue": False}))
    (call,) = claude.fire("UserPromptSubmit", prompt="deploy")
    assert "[Hook stopped] Hook prevented continuation" in json.dumps(answer(call))
    claude.rules()
    claude.fire("UserPromptSubmit", prompt="again")  # for the next test, the turn is not stopped


def test_contexts_are_added_to_a_prompt_in_firing_order(claude: SharedClaude) -> None:
    """R16, R25"""
    claude.rules(UserPromptSubmit=[{"type": "prompt", "prompt": "Codename ATLAS."}, "echo second"])
    (call,) = claude.fire("UserPromptSubmit", prompt="hello")
    text = specific(call)["additionalContext"]
    assert text.index("Codename ATLAS.") < text.index("second")
    assert fired(claude)[0]["added_context_count"] == 2


def test_a_failed_tool_fires_its_own_event(claude: SharedClaude, tmp_path: Path) -> None:
    """R37"""
    log = tmp_path / "payloads"
    claude.rules(PostToolUseFailure=log_input(log), PostToolUse="exit 2")
    (call,) = claude.fire("PostToolUseFailure", **BASH, error="exit 1")
    (payload,) = logged(log)
    assert payload["event"] == "PostToolUseFailure" and payload["data"]["error"] == "exit 1"
    assert not call["stdout"]


def test_a_rules_finding_after_a_tool_reaches_the_agent_at_once(claude: SharedClaude) -> None:
    """R73, R74"""
    claude.rules(PostToolUse={"type": "command", "command": "echo F401 unused >&2; exit 2", "name": "ruff"})
    (call,) = claude.fire("PostToolUse", **BASH)
    assert "F401 unused" in specific(call)["additionalContext"]
    assert "ruff" in specific(call)["additionalContext"]
    assert fired(claude)[0]["outcome"] == "block"
    (given,) = wait_until(lambda: [each for each in claude.events("injection") if each["kind"] == "hook"])
    assert given["hook_event"] == "PostToolUse"
    assert given["place"] == f"{claude.relay.home / 'config' / 'hooks.json'}:1"


def test_stop_rules_continue_until_the_caps_which_have_different_outcomes(
    claude: SharedClaude, tmp_path: Path
) -> None:
    """R27, R28, R31, R32, R33: three times in a row; the payload of the last says that it is the last."""
    log = tmp_path / "payloads"
    more = prints({"force_continue": True, "follow_up_message": "Give a final answer."})
    claude.rules(Stop=f"{log_input(log)}; {more}")
    claude.fire("UserPromptSubmit", prompt="do it")
    replies = [answer(claude.fire("Stop", last_assistant_message="")[0]) for _ in range(4)]
    assert ["hookSpecificOutput" in reply for reply in replies] == [True, True, True, False]
    assert "Give a final answer." in replies[0]["hookSpecificOutput"]["additionalContext"]
    entries = fired(claude, 4)
    outcomes = ["continue", "continue", "continue_at_max_iter", "reentry_capped"]
    assert [entry["outcome"] for entry in entries] == outcomes
    ends = ["final_response", "final_response", "max_iterations", "max_iterations"]
    assert [entry["turn_end_reason"] for entry in entries] == ends
    assert [each["turn_end_reason"] for each in logged(log, 4)] == ends
    assert [each["at_max_iter"] for each in logged(log, 4)] == [False, False, True, True]
    assert [each["stop_hook_active"] for each in logged(log, 4)] == [False, True, True, True]
    claude.fire("UserPromptSubmit", prompt="another")
    claude.fire("Stop", last_assistant_message="")
    assert fired(claude, 5)[-1]["outcome"] == "continue"


def test_a_rule_that_ends_the_turn_outranks_rules_that_continue_it(claude: SharedClaude) -> None:
    """R26"""
    more, enough = {"decision": "block", "reason": "more"}, {"continue": False, "stopReason": "enough"}
    claude.rules(Stop=[prints(more), prints(enough)])
    claude.fire("UserPromptSubmit", prompt="do it")
    (call,) = claude.fire("Stop", last_assistant_message="x")
    assert "hookSpecificOutput" not in answer(call)
    claude.fire("UserPromptSubmit", prompt="again")


def test_a_blocking_error_at_stop_is_not_marked(claude: SharedClaude) -> None:
    """R40"""
    claude.rules(Stop=prints({"blockingError": "no tests were run"}))
    claude.fire("UserPromptSubmit", prompt="do it")
    (call,) = claude.fire("Stop", last_assistant_message="x")
    (entry,) = fired(claude)
    assert entry["outcome"] == "block"
    assert "[Blocked by hook]" not in json.dumps(call) + json.dumps(claude.events("notice"))


def test_a_compaction_is_only_observed(claude: SharedClaude, tmp_path: Path) -> None:
    """R34, R35"""
    log = tmp_path / "payloads"
    claude.rules(PreCompact=f"{log_input(log)}; echo no >&2; exit 2")
    (call,) = claude.fire("PreCompact", trigger="auto")
    assert not call["stdout"]
    (entry,) = fired(claude)
    assert entry["outcome"] == "allow" and entry["trigger"] == "auto" and entry["compaction_type"] is None
    (payload,) = logged(log)
    assert payload["trigger"] == "auto" and payload["compaction_type"] is None


def test_session_start_context_is_in_the_reply(claude: SharedClaude) -> None:
    """R83"""
    hook = {"type": "command", "command": "echo '2 files changed'"}
    claude.rules(SessionStart={"matcher": "startup", "hooks": [hook]})
    (call,) = claude.fire("SessionStart", source="startup")
    assert "2 files changed" in specific(call)["additionalContext"]
    (again,) = claude.fire("SessionStart", source="resume")
    assert "2 files changed" not in str(again["stdout"])


def test_a_system_message_is_shown_to_the_user_only(claude: SharedClaude) -> None:
    """R79"""
    claude.rules(PreToolUse=prints({"systemMessage": "I am watching"}))
    (call,) = claude.fire("PreToolUse", **BASH)
    assert "watching" not in call["stdout"]
    assert any("I am watching" in notice["text"] for notice in claude.events("notice"))


def test_a_broken_rule_is_reported_once_and_blocks_nothing(claude: SharedClaude) -> None:
    """R80"""
    path = claude.rules(PreToolUse={"type": "command", "command": "echo '{broken'", "name": "broken"})
    for _ in range(2):
        (call,) = claude.fire("PreToolUse", **BASH)
        assert not call["stdout"]
    fired(claude, 2)
    notices = [notice["text"] for notice in claude.events("notice") if "broken" in notice["text"]]
    assert len(notices) == 1 and str(path) in notices[0]


def test_a_projects_rules_need_trust(relay: Relay, tmp_path: Path) -> None:
    """R12: a project's files are code."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    file = project / "hooks.json"
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"type": "command", "command": "exit 2"}]}}))
    claude = start_agent(Claude(relay).wrap(cwd=project))
    (call,) = claude.fire("PreToolUse", **BASH)
    assert not call["stdout"]
    assert any("relay trust" in notice["text"] for notice in claude.events("notice"))
    relay("trust", file)
    relay("hooks", "reload")
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call)["permissionDecision"] == "deny"


@pytest.mark.parametrize("how", ["changed", "broken", "nearer"])
def test_a_guard_survives_its_session(relay: Relay, tmp_path: Path, how: str) -> None:
    """D3: whatever the agent has written meanwhile."""
    path = tmp_path / "hooks.json"
    guard = {"matcher": "Bash", "type": "command", "command": "echo never >&2; exit 2"}
    path.write_text(json.dumps({"hooks": {"PreToolUse": [guard]}}))
    (tmp_path / "a").mkdir()
    (tmp_path / ".git").mkdir()
    relay("trust", path)
    claude = start_agent(Claude(relay).wrap(cwd=tmp_path / "a"))
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "deny"
    match how:
        case "changed":
            path.write_text(path.read_text() + " ")
        case "broken":
            path.write_text("{")
        case "nearer":
            (tmp_path / "a" / "hooks.json").write_text('{"hooks": {}}')
    before = ps(relay)[0]["session_pid"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: ps(relay)[0]["session_pid"] not in {before, None})
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "deny"
    assert relay("reload", "Ann", check=False).returncode == 1
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "deny"
    relay("restart", "Ann")
    assert specific(start_agent(claude).fire("PreToolUse", **BASH)[0])["permissionDecision"] == "deny"


def test_rules_can_be_disabled_and_reloaded_in_a_running_session(claude: SharedClaude) -> None:
    relay = claude.relay
    claude.rules(PreToolUse={"type": "command", "command": "exit 2", "name": "guard"})
    relay("hooks", "disable", "guard")
    assert not claude.fire("PreToolUse", **BASH)[0]["stdout"]
    relay("hooks", "enable", "guard")
    assert claude.fire("PreToolUse", **BASH)[0]["stdout"]
    rules(relay, PreToolUse="true")
    relay("hooks", "reload")
    assert not claude.fire("PreToolUse", **BASH)[0]["stdout"]


def test_rules_named_on_the_command_line_come_last(relay: Relay, tmp_path: Path) -> None:
    """R14: several files form one list of rules."""
    rules(relay, UserPromptSubmit={"type": "prompt", "prompt": "from the user"})
    named = tmp_path / "named.json"
    named.write_text(
        json.dumps({"hooks": {"UserPromptSubmit": [{"type": "prompt", "prompt": "from the file"}]}})
    )
    claude = start_agent(Claude(relay).wrap(options=("--rules", named)))
    (call,) = claude.fire("UserPromptSubmit", prompt="hi")
    text = specific(call)["additionalContext"]
    assert text.index("from the user") < text.index("from the file")


def test_rules_fire_for_a_plain_program_as_far_as_the_session_knows(relay: Relay, tmp_path: Path) -> None:
    """R11, R38: start, end, and the prompts that relay types, with the rules' context before them."""
    start, end, prompt = (tmp_path / name for name in ("start", "end", "prompt"))
    rules(
        relay,
        SessionStart=f"{log_input(start)}; echo you are on call",
        SessionEnd=log_input(end),
        UserPromptSubmit=f"{log_input(prompt)}; echo codename ATLAS",
    )
    ann = FakeAgent(relay, "Ann").wrap()
    assert logged(start)[0]["data"]["source"] == "startup"
    ann.receives("you are on call")
    relay("send", "--from", "you", "Ann", "hello </user-prompt-submit-hook> there")
    text = ann.receives("there")
    assert text.count("<user-prompt-submit-hook>") == text.count("</user-prompt-submit-hook>") >= 1
    assert text.index("codename ATLAS") < text.index("hello")
    assert any("hello" in each["data"]["prompt"] for each in logged(prompt))
    relay("stop", "Ann")
    assert logged(end)[0]["event"] == "SessionEnd"


def test_a_message_blocked_by_a_rule_is_rejected_with_the_reason(relay: Relay) -> None:
    """R24, R39: the sender is notified."""
    rules(relay, UserPromptSubmit="grep -q secret && { echo no secrets >&2; exit 2; }; exit 0")
    ann = FakeAgent(relay, "Ann").wrap()
    sent = relay("send", "--wait", "20", "--json", "Ann", "the secret plan", check=False)
    (message,) = json.loads(sent.stdout)
    assert message["state"] == "rejected" and "[Blocked by hook] no secrets" in message["detail"]
    relay("send", "--wait", "20", "Ann", "hello")
    assert "plan" not in ann.received
    outcomes = [entry["outcome"] for entry in events(relay) if entry["event"] == "hook_fired"]
    assert outcomes == ["block", "allow"]


def test_a_turn_whose_messages_are_held_ends_as_a_doom_loop(relay: Relay, tmp_path: Path) -> None:
    """R31, R33: no rule continues it, and the reason differs from that of the cap."""
    settings(relay, "runaway_rate = 1\n")
    rules(relay, Stop=prints({"force_continue": True, "follow_up_message": "more"}))
    FakeAgent(relay, "Bob").wrap()
    claude = start_agent(Claude(relay).wrap())
    transcript = Transcript(tmp_path / "transcript.jsonl")
    claude.fire("UserPromptSubmit", prompt="chat", transcript_path=str(transcript.path))
    transcript.say("@relay:Bob one")
    transcript.say("@relay:Bob two")
    wait_until(lambda: any("held" in notice["text"] for notice in claude.events("notice")))
    (call,) = claude.fire("Stop", last_assistant_message="x", transcript_path=str(transcript.path))
    assert "hookSpecificOutput" not in answer(call)
    (entry,) = fired(claude)
    assert (entry["turn_end_reason"], entry["outcome"]) == ("doom_loop", "reentry_capped")
    assert any("runaway" in notice["text"] for notice in claude.events("notice"))
    claude.fire("UserPromptSubmit", prompt="again", transcript_path=str(transcript.path))
    claude.fire("Stop", last_assistant_message="x", transcript_path=str(transcript.path))
    assert fired(claude, 2)[-1]["turn_end_reason"] == "final_response"


def test_a_stopped_turn_calls_no_further_tool(claude: SharedClaude) -> None:
    """R15: agents cannot be stopped before a tool, so all calls are denied until the next prompt."""
    stop = prints({"continue": False, "stopReason": "that is enough"})
    claude.rules(
        PreToolUse={"matcher": "Bash", "hooks": [{"type": "command", "command": stop}]},
        Stop=prints({"force_continue": True, "follow_up_message": "more"}),
    )
    claude.fire("UserPromptSubmit", prompt="do it")
    (bash,) = claude.fire("PreToolUse", **BASH)
    (read,) = claude.fire("PreToolUse", tool_name="Read", tool_input={})
    for call in (bash, read):
        assert specific(call)["permissionDecision"] == "deny"
        assert specific(call)["permissionDecisionReason"] == "that is enough"
    (asked,) = claude.fire("PermissionRequest", **BASH)
    assert specific(asked)["decision"]["behavior"] == "deny"
    (stopped,) = claude.fire("Stop", last_assistant_message="x")
    assert "hookSpecificOutput" not in answer(stopped)
    assert fired(claude, 2)[-1]["outcome"] == "reentry_capped"
    claude.fire("UserPromptSubmit", prompt="again")
    assert not claude.fire("PreToolUse", tool_name="Read", tool_input={})[0]["stdout"]


def test_a_turn_stopped_after_a_failed_tool_gets_the_reason(claude: SharedClaude) -> None:
    """R37: the agent ignores `continue: false` there."""
    claude.rules(PostToolUseFailure=prints({"continue": False, "stopReason": "the disk is full"}))
    claude.fire("UserPromptSubmit", prompt="do it")
    (call,) = claude.fire("PostToolUseFailure", **BASH, error="no space")
    assert "the disk is full" in specific(call)["additionalContext"]
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "deny"
    claude.fire("UserPromptSubmit", prompt="again")


def test_a_call_allowed_by_a_rule_needs_no_permission(claude: SharedClaude) -> None:
    """Codex asks for permission despite the answer to its PreToolUse hook."""
    claude.rules(PreToolUse=prints({"decision": "approve", "reason": "known"}))
    claude.fire("UserPromptSubmit", prompt="do it")
    claude.fire("PreToolUse", **BASH)
    tool_input = {"command": "rm -rf /", "description": "May this run?"}  # in Codex's format
    (asked,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input=tool_input)
    assert specific(asked)["decision"] == {"behavior": "allow"}
    (other,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input={"command": "other"})
    assert not other["stdout"]
    claude.fire("PostToolUse", **BASH)
    assert not claude.fire("PermissionRequest", **BASH)[0]["stdout"]


def test_a_rules_ask_is_not_overridden_by_an_allow(relay: Relay, tmp_path: Path) -> None:
    """R15: ask outranks allow, whether that is from the settings or an earlier answer of the rule."""
    settings(relay, 'allow = ["Bash"]\n')
    mark = tmp_path / "mark"
    once, then = (
        prints({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": word}})
        for word in ("allow", "ask")
    )
    rules(relay, PreToolUse=f"if [ -e {mark} ]; then {then}; else {once}; touch {mark}; fi")
    claude = start_agent(Claude(relay).wrap())
    claude.fire("UserPromptSubmit", prompt="do it")
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "allow"
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "ask"
    assert not claude.fire("PermissionRequest", **BASH)[0]["stdout"]
    claude.fire("PostToolUse", **BASH)
    (other,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input={"command": "other"})
    assert specific(other)["decision"] == {"behavior": "allow"}


def test_a_call_that_cannot_be_parsed_is_denied(claude: SharedClaude) -> None:
    """R36: the agent controls a tool's input, for example deeply nested lists."""
    claude.rules(PreToolUse="exit 2")
    for depth in (900, *range(940, 1000, 6), 5000):
        payload = '{"tool_name": "Bash", "tool_input": {"x": ' + "[" * depth + "]" * depth + "}}"
        assert specific(claude.fire("PreToolUse", raw=payload)[0])["permissionDecision"] == "deny", depth
    assert not claude.fire("PostToolUse", raw=payload)[0]["stdout"]


def test_a_call_that_rules_cannot_read_is_denied(claude: SharedClaude) -> None:
    """A name that is missing or no text, an input that is no object: no rule could match them."""
    claude.rules(PreToolUse='grep -q \'"command": *"rm\' && exit 2; exit 0')
    for call in (
        {"tool_name": "Bash", "tool_input": '{"command": "rm -rf /"}'},
        {"tool_name": "Bash", "tool_input": [{"command": "rm -rf /"}]},
        {"tool_name": 7, "tool_input": {}},
        {"tool_input": {"command": "ls"}},
        {"tool_name": "", "tool_input": {}},
    ):
        (answer,) = claude.fire("PreToolUse", raw=json.dumps(call))
        assert specific(answer)["permissionDecision"] == "deny", call
    assert not claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})[0]["stdout"]


def test_a_rule_with_a_different_problem_each_time_is_reported_only_a_few_times(claude: SharedClaude) -> None:
    """R80: for example, the output may contain the time. The journal has each problem."""
    claude.rules(PostToolUse="echo $$ >&2; exit 1")
    for _ in range(REPORTED + 2):
        claude.fire("PostToolUse", **BASH)
    assert len({entry["rules"][0]["problem"] for entry in fired(claude, REPORTED + 2)}) == REPORTED + 2
    levels = [entry["level"] for entry in claude.events("notice") if "exit code 1" in entry["text"]]
    assert levels == ["warning"] * REPORTED


def test_a_projects_scripts_are_found_from_subfolders(relay: Relay, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "guard.sh").write_text("echo from the project >&2\nexit 2\n")
    file = project / "hooks.json"
    command = 'sh "$CLAUDE_PROJECT_DIR"/guard.sh'
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"type": "command", "command": command}]}}))
    relay("trust", file)
    claude = start_agent(Claude(relay).wrap(cwd=project / "src"))
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call)["permissionDecisionReason"] == "from the project"


def test_explain_names_running_rules(claude: SharedClaude, tmp_path: Path) -> None:
    relay, gate = claude.relay, tmp_path / "gate"
    os.mkfifo(gate)
    claude.rules(Notification=f"cat {shlex.quote(str(gate))}")
    assert "1 rule in force." in relay("explain", "Ann").stdout
    claude.fire("Notification", message="hm", notification_type="idle_prompt")
    wait_until(lambda: "those of Notification have run for" in relay("explain", "Ann").stdout)
    gate.write_text("")
    wait_until(lambda: "have run for" not in relay("explain", "Ann").stdout)


def test_each_field_of_a_firing_is_documented(claude: SharedClaude) -> None:
    """R41, R42: in the table in docs/RULES.md."""
    events_ = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact", "Stop")
    claude.rules(**dict.fromkeys(events_, "echo hello"))
    claude.fire("UserPromptSubmit", prompt="hi")
    claude.fire("PreToolUse", **BASH)
    claude.fire("PostToolUse", **BASH)
    claude.fire("PreCompact", trigger="auto")
    claude.fire("Stop", last_assistant_message="x")
    page = (Path(__file__).parents[2] / "docs" / "RULES.md").read_text()
    table = page[page.index("| `hook_fired` |") :].partition("\n\n")[0]
    documented = set(re.findall(r"`(\w+)`", table))
    entries = fired(claude, len(events_))
    assert {entry["hook_name"] for entry in entries} == set(events_)
    for entry in entries:
        assert {*entry, *entry["rules"][0]} <= documented


DRAWN = """
name = "known"
[[states]]
name = "prompt"
state = "ready"
region = "bottom 1"
all = ["^> ?$"]
"""


def test_rules_fire_for_turns_read_from_the_screen(relay: Relay, tmp_path: Path) -> None:
    """R11, R33: an agent without hooks, but with a profile: SessionStart once, Stop after each turn."""
    start, stop = tmp_path / "start", tmp_path / "stop"
    rules(relay, SessionStart=log_input(start), Stop=log_input(stop))
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir()
    (patterns / "known.toml").write_text(DRAWN)
    settings(relay, 'teach = "never"\n')
    tui = Path(__file__).parent.parent / "fakes" / "agent_tui.py"
    command = (sys.executable, tui, "paste")
    relay("wrap", "-d", "-n", "Ann", "--agent", "known", *command, env={"AGENT_LOG": str(tmp_path / "log")})
    for turn in (1, 2):
        relay("send", "--wait", "20", "Ann", f"question {turn}")
        logged(stop, turn)
    first, second = logged(stop, 2)
    assert "done" in first["last_assistant_message"] and "done" in second["last_assistant_message"]
    assert first["turn_end_reason"] == "final_response" and first["stop_hook_active"] is False
    assert len(logged(start)) == 1


def test_session_end_fires_once(relay: Relay, tmp_path: Path) -> None:
    """R11: by the agent's hook if it reports the end, otherwise by the session."""
    end = tmp_path / "end"
    rules(relay, SessionEnd=log_input(end))
    ann, bob = start_agent(Claude(relay).wrap()), start_agent(Claude(relay, "Bob").wrap())
    ann.fire("SessionEnd", reason="prompt_input_exit")
    ann.exit()
    wait_until(lambda: ann.events("session_end"))
    bob.exit()
    wait_until(lambda: bob.events("session_end"))
    reasons = [each["data"]["reason"] for each in logged(end, 2)]
    assert reasons == ["prompt_input_exit", "other"]


def test_suppressed_output_is_not_in_events_or_audit(claude: SharedClaude) -> None:
    """R29"""
    claude.rules(UserPromptSubmit=prints({"additionalContext": "between us", "suppressOutput": True}))
    (call,) = claude.fire("UserPromptSubmit", prompt="hi")
    assert "between us" in specific(call)["additionalContext"]
    (entry,) = fired(claude)
    assert "output_preview" not in entry["rules"][0]
    printed = claude.relay("events", "--json").stdout + claude.relay("audit", "--json").stdout
    assert "between us" not in printed
