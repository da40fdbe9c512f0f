"""Rules of hooks.json files in a session: when they fire, and their effects."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from agents.hooked import Claude, Json
from relay.features.rule_runner import REPORTED
from session.fake_agent import FakeAgent, events, settings
from session.transcript import Transcript
from support import Relay, wait_until


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
    """Return a shell command that answers `verdict`."""
    return f"echo {shlex.quote(json.dumps(verdict))}"


def keeps(path: Path) -> str:
    """Return a shell command that appends its input to `path`, one line per event."""
    return f"cat >> {shlex.quote(str(path))}"


def kept(path: Path, count: int = 1) -> list[Json]:
    """Return what a command of `keeps` was told, once there are `count` entries."""

    def look() -> list[Json] | None:
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines] if len(lines) >= count else None

    found = wait_until(look)
    assert found is not None
    return found


def answer(call: Json) -> dict[str, Any]:
    return dict(json.loads(call["stdout"])) if call["stdout"] else {}


def specific(call: Json) -> dict[str, Any]:
    return dict(answer(call).get("hookSpecificOutput", {}))


def fired(claude: Claude, count: int = 1) -> list[Json]:
    """Return the journal's entries of fired rules, once there are `count`."""
    return wait_until(lambda: len(found := claude.events("hook_fired")) >= count and found) or []


def begun(claude: Claude) -> Claude:
    claude.fire("SessionStart", source="startup")
    return claude


BASH = {"tool_name": "Bash", "tool_input": {"command": "rm -rf /"}}


def test_a_rule_stops_a_tool_call_of_the_agents(relay: Relay) -> None:
    """R36, R41"""
    rules(
        relay,
        PreToolUse={"matcher": "Bash", "hooks": [{"type": "command", "command": "echo never >&2; exit 2"}]},
    )
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call)["permissionDecision"] == "deny"
    assert specific(call)["permissionDecisionReason"] == "never"
    (entry,) = fired(claude)
    assert entry["hook_name"] == "PreToolUse" and entry["outcome"] == "block"
    assert entry["matched_rule_count"] == 1 and entry["tool"] == "Bash"
    (rule,) = entry["rules"]
    assert rule["exit_code"] == 2 and rule["output_preview"] == "never\n" and rule["duration_ms"] > 0


def test_where_no_rule_is_selected_nothing_is_told(relay: Relay) -> None:
    """R30"""
    rules(
        relay,
        PreToolUse={"matcher": "Write", "hooks": [{"type": "command", "command": "exit 2"}]},
        Stop="true",
    )
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PreToolUse", **BASH)
    assert not call["stdout"]
    claude.fire("UserPromptSubmit", prompt="hi")
    claude.fire("Stop", last_assistant_message="done")
    (entry,) = fired(claude)
    assert entry["hook_name"] == "Stop" and entry["outcome"] == "allow"


def test_a_rule_changes_what_a_tool_is_called_with_and_spares_the_question(relay: Relay) -> None:
    verdict = {"permissionDecision": "allow", "updatedInput": {"command": "ls"}}
    rules(relay, PreToolUse=prints({"hookSpecificOutput": {"hookEventName": "PreToolUse", **verdict}}))
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call) == {"hookEventName": "PreToolUse", **verdict}
    assert fired(claude)[0]["outcome"] == "allow"
    assert claude.events("allowed")


def test_a_blocked_prompt_is_marked(relay: Relay) -> None:
    """R24, R39"""
    rules(relay, UserPromptSubmit=prints({"decision": "block", "reason": "not on Sundays"}))
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("UserPromptSubmit", prompt="deploy")
    assert answer(call) == {"decision": "block", "reason": "[Blocked by hook] not on Sundays"}
    (entry,) = fired(claude)
    assert entry["outcome"] == "block" and entry["blocking_error"] == "not on Sundays"
    assert entry["stop_reason"] is None and entry["added_context_count"] == 0


def test_a_stopped_prompt_is_marked_with_the_default_reason(relay: Relay) -> None:
    """R39"""
    rules(relay, UserPromptSubmit=prints({"continue": False}))
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("UserPromptSubmit", prompt="deploy")
    assert "[Hook stopped] Hook prevented continuation" in json.dumps(answer(call))


def test_contexts_go_with_a_prompt_in_firing_order(relay: Relay) -> None:
    """R16, R25"""
    rules(relay, UserPromptSubmit=[{"type": "prompt", "prompt": "Codename ATLAS."}, "echo second"])
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("UserPromptSubmit", prompt="hello")
    text = specific(call)["additionalContext"]
    assert text.index("Codename ATLAS.") < text.index("second")
    assert fired(claude)[0]["added_context_count"] == 2


def test_a_failed_tool_has_rules_of_its_own(relay: Relay, tmp_path: Path) -> None:
    """R37"""
    told = tmp_path / "told"
    rules(relay, PostToolUseFailure=keeps(told), PostToolUse="exit 2")
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PostToolUseFailure", **BASH, error="exit 1")
    (payload,) = kept(told)
    assert payload["event"] == "PostToolUseFailure" and payload["data"]["error"] == "exit 1"
    assert not call["stdout"]


def test_what_a_rule_finds_after_a_tool_reaches_the_agent_at_once(relay: Relay) -> None:
    """R73, R74"""
    rules(relay, PostToolUse={"type": "command", "command": "echo F401 unused >&2; exit 2", "name": "ruff"})
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PostToolUse", **BASH)
    assert "F401 unused" in specific(call)["additionalContext"]
    assert "ruff" in specific(call)["additionalContext"]
    assert fired(claude)[0]["outcome"] == "block"
    (given,) = wait_until(lambda: [each for each in claude.events("injection") if each["kind"] == "hook"])
    assert given["hook_event"] == "PostToolUse"
    assert given["place"] == f"{relay.home / 'config' / 'hooks.json'}:1"


def test_stop_goes_on_until_its_caps_which_are_told_apart(relay: Relay, tmp_path: Path) -> None:
    """R27, R28, R31, R32, R33: three times in a row; the last time, the rule learns that it is the last."""
    told = tmp_path / "told"
    more = prints({"force_continue": True, "follow_up_message": "Give a final answer."})
    rules(relay, Stop=f"{keeps(told)}; {more}")
    claude = begun(Claude(relay).wrap())
    claude.fire("UserPromptSubmit", prompt="do it")
    replies = [answer(claude.fire("Stop", last_assistant_message="")[0]) for _ in range(4)]
    assert ["hookSpecificOutput" in reply for reply in replies] == [True, True, True, False]
    assert "Give a final answer." in replies[0]["hookSpecificOutput"]["additionalContext"]
    entries = fired(claude, 4)
    assert [entry["outcome"] for entry in entries] == [
        "continue",
        "continue",
        "continue_at_max_iter",
        "reentry_capped",
    ]
    ends = ["final_response", "final_response", "max_iterations", "max_iterations"]
    assert [entry["turn_end_reason"] for entry in entries] == ends
    assert [each["turn_end_reason"] for each in kept(told, 4)] == ends
    assert [each["at_max_iter"] for each in kept(told, 4)] == [False, False, True, True]
    assert [each["stop_hook_active"] for each in kept(told, 4)] == [False, True, True, True]
    claude.fire("UserPromptSubmit", prompt="another")
    claude.fire("Stop", last_assistant_message="")
    assert fired(claude, 5)[-1]["outcome"] == "continue"


def test_a_rule_that_ends_the_turn_outranks_those_that_go_on(relay: Relay) -> None:
    """R26"""
    rules(
        relay,
        Stop=[
            prints({"decision": "block", "reason": "more"}),
            prints({"continue": False, "stopReason": "enough"}),
        ],
    )
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("Stop", last_assistant_message="x")
    assert "hookSpecificOutput" not in answer(call)


def test_a_stop_that_fails_has_no_marker(relay: Relay) -> None:
    """R40"""
    rules(relay, Stop=prints({"blockingError": "no tests were run"}))
    claude = begun(Claude(relay).wrap())
    claude.fire("Stop", last_assistant_message="x")
    (entry,) = fired(claude)
    assert entry["outcome"] == "block"
    assert "[Blocked by hook]" not in json.dumps(claude.calls()) + json.dumps(claude.events("notice"))


def test_a_compaction_is_only_observed(relay: Relay, tmp_path: Path) -> None:
    """R34, R35"""
    told = tmp_path / "told"
    rules(relay, PreCompact=f"{keeps(told)}; echo no >&2; exit 2")
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PreCompact", trigger="auto")
    assert not call["stdout"]
    (entry,) = fired(claude)
    assert entry["outcome"] == "allow" and entry["trigger"] == "auto" and entry["compaction_type"] is None
    (payload,) = kept(told)
    assert payload["trigger"] == "auto" and payload["compaction_type"] is None


def test_context_of_the_sessions_start_is_there_at_once(relay: Relay) -> None:
    """R83"""
    rules(
        relay,
        SessionStart={
            "matcher": "startup",
            "hooks": [{"type": "command", "command": "echo '2 files changed'"}],
        },
    )
    claude = Claude(relay).wrap()
    (call,) = claude.fire("SessionStart", source="startup")
    assert "2 files changed" in specific(call)["additionalContext"]
    (again,) = claude.fire("SessionStart", source="resume")
    assert "2 files changed" not in str(again["stdout"])


def test_what_is_for_the_user_is_kept_from_the_agent(relay: Relay) -> None:
    """R79"""
    rules(relay, PreToolUse=prints({"systemMessage": "I am watching"}))
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("PreToolUse", **BASH)
    assert "watching" not in call["stdout"]
    assert any("I am watching" in notice["text"] for notice in claude.events("notice"))


def test_a_rule_that_fails_is_told_once_and_harms_nobody(relay: Relay) -> None:
    """R80"""
    path = rules(relay, PreToolUse={"type": "command", "command": "echo '{broken'", "name": "broken"})
    claude = begun(Claude(relay).wrap())
    for _ in range(2):
        (call,) = claude.fire("PreToolUse", **BASH)
        assert not call["stdout"]
    fired(claude, 2)
    notices = [notice["text"] for notice in claude.events("notice") if "broken" in notice["text"]]
    assert len(notices) == 1 and str(path) in notices[0]


def test_a_projects_rules_wait_for_trust(relay: Relay, tmp_path: Path) -> None:
    """R12: a project's files are code."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    file = project / "hooks.json"
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"type": "command", "command": "exit 2"}]}}))
    claude = begun(Claude(relay).wrap(cwd=project))
    (call,) = claude.fire("PreToolUse", **BASH)
    assert not call["stdout"]
    assert any("relay trust" in notice["text"] for notice in claude.events("notice"))
    relay("trust", file)
    relay("hooks", "reload")
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call)["permissionDecision"] == "deny"


def test_rules_are_switched_off_and_read_anew_while_a_session_runs(relay: Relay) -> None:
    rules(relay, PreToolUse={"type": "command", "command": "exit 2", "name": "guard"})
    claude = begun(Claude(relay).wrap())
    relay("hooks", "disable", "guard")
    assert not claude.fire("PreToolUse", **BASH)[0]["stdout"]
    relay("hooks", "enable", "guard")
    assert claude.fire("PreToolUse", **BASH)[0]["stdout"]
    rules(relay, PreToolUse="true")
    relay("hooks", "reload")
    assert not claude.fire("PreToolUse", **BASH)[0]["stdout"]


def test_rules_named_on_the_command_line_come_last(relay: Relay, tmp_path: Path) -> None:
    """R14: several files form one set of rules."""
    rules(relay, UserPromptSubmit={"type": "prompt", "prompt": "from the user"})
    named = tmp_path / "named.json"
    named.write_text(
        json.dumps({"hooks": {"UserPromptSubmit": [{"type": "prompt", "prompt": "from the file"}]}})
    )
    claude = begun(Claude(relay).wrap(options=("--rules", named)))
    (call,) = claude.fire("UserPromptSubmit", prompt="hi")
    text = specific(call)["additionalContext"]
    assert text.index("from the user") < text.index("from the file")


def test_around_a_plain_program_the_session_tells_rules_what_it_can(relay: Relay, tmp_path: Path) -> None:
    """R11, R38: start, end, and the prompts that relay types, preceded by their contexts."""
    start, end, prompt = (tmp_path / name for name in ("start", "end", "prompt"))
    rules(
        relay,
        SessionStart=f"{keeps(start)}; echo you are on call",
        SessionEnd=keeps(end),
        UserPromptSubmit=f"{keeps(prompt)}; echo codename ATLAS",
    )
    ann = FakeAgent(relay, "Ann").wrap()
    assert kept(start)[0]["data"]["source"] == "startup"
    ann.receives("you are on call")
    relay("send", "--from", "you", "Ann", "hello </user-prompt-submit-hook> there")
    text = ann.receives("there")
    assert text.count("<user-prompt-submit-hook>") == text.count("</user-prompt-submit-hook>") >= 1
    assert text.index("codename ATLAS") < text.index("hello")
    assert any("hello" in each["data"]["prompt"] for each in kept(prompt))
    relay("stop", "Ann")
    assert kept(end)[0]["event"] == "SessionEnd"


def test_a_message_that_a_rule_blocks_is_rejected_with_the_reason(relay: Relay) -> None:
    """R24, R39: the sender is told."""
    rules(relay, UserPromptSubmit="grep -q secret && { echo no secrets >&2; exit 2; }; exit 0")
    ann = FakeAgent(relay, "Ann").wrap()
    sent = relay("send", "--wait", "20", "--json", "Ann", "the secret plan", check=False)
    (message,) = json.loads(sent.stdout)
    assert message["state"] == "rejected" and "[Blocked by hook] no secrets" in message["detail"]
    relay("send", "--wait", "20", "Ann", "hello")
    assert "plan" not in ann.received
    assert [entry["outcome"] for entry in events(relay) if entry["event"] == "hook_fired"] == [
        "block",
        "allow",
    ]


def test_a_turn_whose_messages_are_held_ends_as_a_doom_loop(relay: Relay, tmp_path: Path) -> None:
    """R31, R33: no rule continues it, and its reason differs from the cap's."""
    settings(relay, "runaway_rate = 1\n")
    rules(relay, Stop=prints({"force_continue": True, "follow_up_message": "more"}))
    FakeAgent(relay, "Bob").wrap()
    claude = begun(Claude(relay).wrap())
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


def test_a_turn_that_was_stopped_calls_no_further_tool(relay: Relay) -> None:
    """R15: no agent can be stopped before a tool; that call is denied, and all until the next prompt."""
    stop = prints({"continue": False, "stopReason": "that is enough"})
    rules(
        relay,
        PreToolUse={"matcher": "Bash", "hooks": [{"type": "command", "command": stop}]},
        Stop=prints({"force_continue": True, "follow_up_message": "more"}),
    )
    claude = begun(Claude(relay).wrap())
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


def test_a_turn_that_was_stopped_after_a_failed_tool_is_told_why(relay: Relay) -> None:
    """R37: the agent ignores `continue: false` there."""
    rules(relay, PostToolUseFailure=prints({"continue": False, "stopReason": "the disk is full"}))
    claude = begun(Claude(relay).wrap())
    claude.fire("UserPromptSubmit", prompt="do it")
    (call,) = claude.fire("PostToolUseFailure", **BASH, error="no space")
    assert "the disk is full" in specific(call)["additionalContext"]
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "deny"


def test_a_call_that_a_rule_has_allowed_is_not_asked_for(relay: Relay) -> None:
    """Codex asks despite the answer to its first hook."""
    rules(relay, PreToolUse=prints({"decision": "approve", "reason": "known"}))
    claude = begun(Claude(relay).wrap())
    claude.fire("UserPromptSubmit", prompt="do it")
    claude.fire("PreToolUse", **BASH)
    told = {"command": "rm -rf /", "description": "May this run?"}  # in Codex's format
    (asked,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input=told)
    assert specific(asked)["decision"] == {"behavior": "allow"}
    (other,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input={"command": "other"})
    assert not other["stdout"]
    claude.fire("PostToolUse", **BASH)
    assert not claude.fire("PermissionRequest", **BASH)[0]["stdout"]


def test_what_a_rule_asks_the_user_about_nobody_else_allows(relay: Relay, tmp_path: Path) -> None:
    """R15: ask outranks allow, whether from the settings or from the rule's own earlier answer."""
    settings(relay, 'allow = ["Bash"]\n')
    mark = tmp_path / "mark"
    once, then = (
        prints({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": word}})
        for word in ("allow", "ask")
    )
    rules(relay, PreToolUse=f"if [ -e {mark} ]; then {then}; else {once}; touch {mark}; fi")
    claude = begun(Claude(relay).wrap())
    claude.fire("UserPromptSubmit", prompt="do it")
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "allow"
    assert specific(claude.fire("PreToolUse", **BASH)[0])["permissionDecision"] == "ask"
    assert not claude.fire("PermissionRequest", **BASH)[0]["stdout"]
    claude.fire("PostToolUse", **BASH)
    (other,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input={"command": "other"})
    assert specific(other)["decision"] == {"behavior": "allow"}


def test_a_call_that_cannot_be_read_gets_around_no_rule(relay: Relay) -> None:
    """R36: the agent decides a tool's input, for example nested lists."""
    rules(relay, PreToolUse="exit 2")
    claude = begun(Claude(relay).wrap())
    for depth in (900, *range(940, 1000, 6), 5000):
        payload = '{"tool_name": "Bash", "tool_input": {"x": ' + "[" * depth + "]" * depth + "}}"
        assert specific(claude.fire("PreToolUse", raw=payload)[0])["permissionDecision"] == "deny", depth
    assert not claude.fire("PostToolUse", raw=payload)[0]["stdout"]


def test_a_rule_whose_every_problem_is_another_is_told_of_for_a_while(relay: Relay) -> None:
    """R80: a rule's output may contain the time, for example; the journal has each problem."""
    rules(relay, PostToolUse="echo $$ >&2; exit 1")
    claude = begun(Claude(relay).wrap())
    for _ in range(REPORTED + 2):
        claude.fire("PostToolUse", **BASH)
    assert len({entry["rules"][0]["problem"] for entry in fired(claude, REPORTED + 2)}) == REPORTED + 2
    told = [entry["level"] for entry in claude.events("notice") if "exit code 1" in entry["text"]]
    assert told == ["warning"] * REPORTED


def test_a_projects_scripts_are_found_from_its_subfolders(relay: Relay, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "guard.sh").write_text("echo from the project >&2\nexit 2\n")
    file = project / "hooks.json"
    command = 'sh "$CLAUDE_PROJECT_DIR"/guard.sh'
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"type": "command", "command": command}]}}))
    relay("trust", file)
    claude = begun(Claude(relay).wrap(cwd=project / "src"))
    (call,) = claude.fire("PreToolUse", **BASH)
    assert specific(call)["permissionDecisionReason"] == "from the project"


def test_explain_says_which_rules_keep_the_agent_waiting(relay: Relay, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    rules(relay, Notification=f"cat {shlex.quote(str(gate))}")
    claude = begun(Claude(relay).wrap())
    assert "1 rule in force." in relay("explain", "Ann").stdout
    claude.fire("Notification", message="hm", notification_type="idle_prompt")
    wait_until(lambda: "those of Notification have run for" in relay("explain", "Ann").stdout)
    gate.write_text("")
    wait_until(lambda: "have run for" not in relay("explain", "Ann").stdout)


def test_each_field_of_a_firing_is_documented(relay: Relay) -> None:
    """R41, R42: the table of the stream's fields lists them."""
    events_ = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact", "Stop")
    rules(relay, **dict.fromkeys(events_, "echo hello"))
    claude = begun(Claude(relay).wrap())
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


def test_the_turns_that_a_screen_shows_are_told_to_rules(relay: Relay, tmp_path: Path) -> None:
    """R11, R33: a known agent without hooks starts once, and stops at each turn's end."""
    start, stop = tmp_path / "start", tmp_path / "stop"
    rules(relay, SessionStart=keeps(start), Stop=keeps(stop))
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir()
    (patterns / "known.toml").write_text(DRAWN)
    settings(relay, 'teach = "never"\n')
    tui = Path(__file__).parent.parent / "fakes" / "agent_tui.py"
    command = (sys.executable, tui, "paste")
    relay("wrap", "-d", "-n", "Ann", "--agent", "known", *command, env={"AGENT_LOG": str(tmp_path / "log")})
    for turn in (1, 2):
        relay("send", "--wait", "20", "Ann", f"question {turn}")
        kept(stop, turn)
    first, second = kept(stop, 2)
    assert "done" in first["last_assistant_message"] and "done" in second["last_assistant_message"]
    assert first["turn_end_reason"] == "final_response" and first["stop_hook_active"] is False
    assert len(kept(start)) == 1


def test_the_end_of_a_session_is_told_once(relay: Relay, tmp_path: Path) -> None:
    """R11: by the agent if it reports it, otherwise by the session."""
    end = tmp_path / "end"
    rules(relay, SessionEnd=keeps(end))
    ann, bob = begun(Claude(relay).wrap()), begun(Claude(relay, "Bob").wrap())
    ann.fire("SessionEnd", reason="prompt_input_exit")
    ann.exit()
    wait_until(lambda: ann.events("session_end"))
    bob.exit()
    wait_until(lambda: bob.events("session_end"))
    reasons = [each["data"]["reason"] for each in kept(end, 2)]
    assert reasons == ["prompt_input_exit", "other"]


def test_what_is_to_be_kept_quiet_is_not_in_relays_own_displays(relay: Relay) -> None:
    """R29"""
    rules(relay, UserPromptSubmit=prints({"additionalContext": "between us", "suppressOutput": True}))
    claude = begun(Claude(relay).wrap())
    (call,) = claude.fire("UserPromptSubmit", prompt="hi")
    assert "between us" in specific(call)["additionalContext"]
    (entry,) = fired(claude)
    assert "output_preview" not in entry["rules"][0]
    assert "between us" not in relay("events", "--json").stdout + relay("audit", "--json").stdout
