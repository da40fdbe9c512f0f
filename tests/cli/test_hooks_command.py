"""`relay hooks`: listing rules, testing an event against them, switching them, and reloading sessions."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relay.home import Home
from relay.storage import journal
from support import Relay, wait_until

GUARD = {"type": "command", "command": "echo no >&2; exit 2", "matcher": {"tool_name": "run_shell_command"}}

PAYLOADS = Path(__file__).parents[1] / "agents" / "payloads"


def rules(path: Path, event: str = "PreToolUse", *handlers: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"hooks": {event: list(handlers or [GUARD])}}))
    return path


def list_rules(relay: Relay, *arguments: str | Path) -> dict[str, Any]:
    listing: dict[str, Any] = json.loads(relay("hooks", "list", "--json", *arguments).stdout)
    return listing


def evaluate(relay: Relay, event: str, payload: object, *arguments: str | Path) -> dict[str, Any]:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    verdict: dict[str, Any] = json.loads(relay("hooks", "test", event, *arguments, input=text).stdout)
    return verdict


@contextmanager
def session(home: Path, name: str, answers: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Run a fake session that answers each operation from `answers`; yield the requests other than `info`."""
    folder = home / "run" / "sessions" / "default"
    folder.mkdir(parents=True, exist_ok=True)
    info = {"name": name, "team": "default", "agent": "generic", "pid": 1, "agent_pid": 1, "state": "ready"}
    info |= {"prompt": None, "since": 0.0, "cwd": "/", "id": name}
    asked: list[str] = []

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                request = json.loads(stream.readline() or b"{}")
                if not request:
                    return
                if request["op"] != "info":
                    asked.append(request["op"])
                unknown = {"error": "a session has no such operation.", "type": "UsageError"}
                answer = {"info": info} if request["op"] == "info" else answers.get(request["op"], unknown)
                connection.sendall(json.dumps(answer).encode() + b"\n")

    path = folder / f"{name.lower()}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(os.fspath(path))
            thread.join()
            path.unlink()


def test_list_shows_rules_in_firing_order_and_warnings(relay: Relay, home: Path, tmp_path: Path) -> None:
    """R12, R14, R17, R22: each rule comes with its owner, its place, and whether it is on."""
    own = rules(
        home / "config" / "hooks.json",
        "PreToolUse",
        *(
            GUARD | {"name": "guard", "timeout": 5},
            {"type": "http"},
            GUARD | {"command": "cat", "async": True},
        ),
    )
    named = rules(tmp_path / "b.json", "UserPromptSubmit", {"type": "prompt", "prompt": "Be\x1b[2J brief."})
    (guard, waiting, prompt) = list_rules(relay, "--rules", named)["rules"]
    lines = relay("hooks", "list", "--rules", named).stdout.splitlines()
    tool = '{"tool_name": "run_shell_command"}'
    assert lines == [
        f"{guard['id']}  on   PreToolUse  {tool}  command  5 s  guard",
        f"          {own}:1 (user): echo no >&2; exit 2",
        f"{waiting['id']}  on   PreToolUse  {tool}  command  60 s  async  cat",
        f"          {own}:1 (user): cat",
        f"{prompt['id']}  on   UserPromptSubmit  prompt  prompt",
        f"          {named}:1 (named): Be␛[2J brief.",
        f"Warning: {own}:1: PreToolUse: relay does not run rules of the type 'http'. "
        "Allowed for PreToolUse: command. Skipped.",
    ]


def test_without_files_no_rules_apply(relay: Relay) -> None:
    file = relay.home / "config" / "hooks.json"
    text = f"No rules apply here. Write them in {file}, or in a project's hooks.json.\n"
    assert relay("hooks", "list").stdout == text
    assert list_rules(relay) == {"rules": [], "warnings": []}


def test_a_projects_rules_apply_once_they_are_trusted(relay: Relay, tmp_path: Path) -> None:
    """R12"""
    path = rules(tmp_path / "hooks.json")
    result = relay("hooks", "list", cwd=tmp_path)
    assert f"Warning: {path}: is not trusted" in result.stdout
    relay("trust", path)
    place = relay("hooks", "list", cwd=tmp_path).stdout.splitlines()[1]
    assert place == f"          {path}:1 (project): echo no >&2; exit 2"


def test_list_with_a_name_shows_that_sessions_answer(relay: Relay, home: Path) -> None:
    listing = {"rules": [], "warnings": ["hooks.json: \x1b is wrong"]}
    with session(home, "Alice", {"rules": listing}):
        assert list_rules(relay, "alice") == listing
        nothing, warning = relay("hooks", "list", "Alice").stdout.splitlines()
        assert nothing.startswith("No rules apply here. ")
        assert warning == "Warning: hooks.json: ␛ is wrong"
        result = relay("hooks", "list", "Alice", "--rules", "x.json", check=False)
    assert (result.returncode, "give either NAME or --rules" in result.stderr) == (2, True)


# Testing an event.


@pytest.mark.parametrize("tool", ["Bash", "run_shell_command", "exec_command"])
def test_an_event_is_evaluated_and_the_verdict_printed(relay: Relay, tmp_path: Path, tool: str) -> None:
    """R15, R21, R30: with the timing and output of each rule."""
    path = rules(tmp_path / "h.json")
    verdict = evaluate(
        relay, "PreToolUse", {"tool_name": tool, "tool_input": {"command": "ls"}}, "--rules", path
    )
    assert (verdict["event"], verdict["outcome"], verdict["matched_rule_count"]) == ("PreToolUse", "block", 1)
    assert (verdict["action"], verdict["reason"]) == ("deny", "no")
    assert verdict["attachments"] == [
        {"attachment_type": "hook_blocking_error", "content": "no", "rule": verdict["rules"][0]["name"]}
    ]
    (rule,) = verdict["rules"]
    assert rule["id"] == list_rules(relay, "--rules", path)["rules"][0]["id"]
    assert (rule["exit_code"], rule["problem"], rule["output_preview"]) == (2, "", "no\n")
    assert verdict["duration_ms"] >= rule["duration_ms"] > 0


def test_an_event_that_no_rule_matches_is_allowed(relay: Relay, tmp_path: Path) -> None:
    """R30"""
    verdict = evaluate(relay, "PreToolUse", {"tool_name": "Read"}, "--rules", rules(tmp_path / "h.json"))
    assert (verdict["outcome"], verdict["matched_rule_count"], verdict["rules"]) == ("allow", 0, [])


def test_the_verdict_on_a_prompt_has_its_own_fields(relay: Relay, tmp_path: Path) -> None:
    """R16, R24, R25"""
    path = rules(
        tmp_path / "h.json",
        "UserPromptSubmit",
        {"type": "prompt", "prompt": "one"},
        {"type": "command", "command": "echo two"},
    )
    verdict = evaluate(relay, "UserPromptSubmit", {"prompt": "x"}, "--rules", path)
    assert verdict["outcome"] == "allow"
    assert verdict["additional_contexts"] == ["one", "two"]
    assert (verdict["blocking_error"], verdict["prevent_continuation"], verdict["stop_reason"]) == (
        None,
        False,
        None,
    )
    assert "messages" not in verdict


def test_the_verdict_on_a_stop_has_its_own_fields(relay: Relay, tmp_path: Path) -> None:
    """R26, R31"""
    answer = json.dumps({"force_continue": True, "follow_up_message": "Go on."})
    path = rules(tmp_path / "h.json", "Stop", {"type": "command", "command": f"echo '{answer}'"})
    verdict = evaluate(relay, "Stop", {"last_assistant_message": ""}, "--rules", path)
    assert (verdict["outcome"], verdict["force_continue"], verdict["follow_up_message"]) == (
        "continue",
        True,
        "Go on.",
    )
    assert {
        "blocking_error",
        "additional_contexts",
        "stop_reason",
        "suppress_output",
        "system_message",
    } < set(verdict)


def test_only_missing_payload_fields_are_added(relay: Relay, tmp_path: Path) -> None:
    """R18: a group gets Claude Code's payload and a flat rule the envelope, whichever is given."""
    cat = {"type": "command", "command": "cat"}
    path = rules(tmp_path / "h.json", "PreToolUse", {"hooks": [cat]}, cat)
    data = {"tool_name": "run_shell_command", "session_id": "mine"}
    for payload in (data, {"event": "PreToolUse", "data": data}, data | {"hook_event_name": "PreToolUse"}):
        text = "\ufeff" + json.dumps(payload)
        group, flat = (
            json.loads(rule["output_preview"])
            for rule in evaluate(relay, "PreToolUse", text, "--rules", path)["rules"]
        )
        expected = {"hook_event_name": "PreToolUse", "cwd": str(relay.home), "session_id": "mine"}
        assert group == expected | {"tool_name": "Bash"}
        assert flat == {"event": "PreToolUse", "data": expected | {"tool_name": "run_shell_command"}}


@pytest.mark.parametrize(
    ("agent", "theirs", "event", "field", "value"),
    [
        ("gemini", "BeforeTool-run_shell_command", "PreToolUse", "tool_name", "Bash"),
        ("qwen", "PreToolUse-run_shell_command", "PreToolUse", "tool_name", "Bash"),
        ("gemini", "PreCompress", "PreCompact", "trigger", "auto"),
    ],
)
def test_an_event_may_be_in_an_agents_own_format(
    relay: Relay, tmp_path: Path, agent: str, theirs: str, event: str, field: str, value: str
) -> None:
    """R18, R21: --agent selects that agent's names for events and fields."""
    program = (
        f"import json, sys; data = json.load(sys.stdin); print(data['hook_event_name'], data['{field}'])"
    )
    handler = {"type": "command", "command": sys.executable, "args": ["-c", program]}
    path = rules(tmp_path / "h.json", event, {"hooks": [handler]})
    text = (PAYLOADS / agent / f"{theirs}.json").read_text()
    (rule,) = evaluate(relay, event, text, "--rules", path, "--agent", agent)["rules"]
    assert rule["output_preview"] == f"{event} {value}\n"


def test_an_event_that_the_agent_lacks_is_rejected(relay: Relay) -> None:
    result = relay("hooks", "test", "PostToolUseFailure", "--agent", "gemini", input="{}", check=False)
    assert (result.returncode, "gemini does not report PostToolUseFailure" in result.stderr) == (2, True)


@pytest.mark.parametrize("event", ["preToolUse", "pre_tool_use", "pretooluse", "PRE-TOOL-USE"])
def test_an_event_may_be_written_in_any_case(relay: Relay, event: str) -> None:
    """R11"""
    assert evaluate(relay, event, {})["event"] == "PreToolUse"


def test_without_a_named_file_the_rules_that_apply_here_are_tested(
    relay: Relay, home: Path, tmp_path: Path
) -> None:
    rules(home / "config" / "hooks.json", "Stop", {"type": "command", "command": "echo own"})
    other = rules(tmp_path / "h.json", "Stop", {"type": "command", "command": "echo other"})
    assert [rule["output_preview"] for rule in evaluate(relay, "Stop", {})["rules"]] == ["own\n"]
    assert [rule["output_preview"] for rule in evaluate(relay, "Stop", {}, "--rules", other)["rules"]] == [
        "other\n"
    ]


def test_a_background_rule_is_shown_but_decides_nothing(relay: Relay, tmp_path: Path) -> None:
    path = rules(tmp_path / "h.json", "PreToolUse", {"hooks": [GUARD | {"async": True}]})
    verdict = evaluate(relay, "PreToolUse", {"tool_name": "Bash"}, "--rules", path)
    assert (verdict["outcome"], verdict["matched_rule_count"], verdict["attachments"]) == ("allow", 1, [])
    assert verdict["rules"][0]["exit_code"] == 2


def test_warnings_are_shown_and_secrets_are_redacted(relay: Relay, tmp_path: Path) -> None:
    """R17, R44: errors in the file are shown; a key that a rule printed is not."""
    key = "AKIA" + "Q3EGRIPLDKWSZ7XN"
    path = rules(tmp_path / "h.json", "Stop", {"type": "command", "command": f"echo {key}"}, {"type": "http"})
    verdict = evaluate(relay, "Stop", {}, "--rules", path)
    assert len(verdict["warnings"]) == 1
    assert key not in verdict["rules"][0]["output_preview"]


@pytest.mark.parametrize(
    ("event", "payload", "message"),
    [
        ("PreToolUze", "{}", "there is no event 'PreToolUze'. Did you mean PreToolUse? The events are"),
        ("Stop", "", "standard input is empty. Give the event as a JSON object"),
        ("Stop", " \n", "standard input is empty"),
        ("Stop", "{", "standard input is not JSON"),
        ("Stop", "[" * 100_000, "standard input is not JSON"),
        ("Stop", "\udcff", "standard input is not JSON"),
        ("Stop", "[]", "standard input is JSON, but not an object"),
        (
            "Stop",
            '{"hook_event_name": "PreToolUse"}',
            "the event on standard input is 'PreToolUse', not Stop",
        ),
        (
            "Stop",
            '{"event": "PreToolUse", "data": {}}',
            "the event on standard input is 'PreToolUse', not Stop",
        ),
    ],
)
def test_an_invalid_event_is_a_usage_error(relay: Relay, event: str, payload: str, message: str) -> None:
    run = subprocess.run(
        [*relay.command, "hooks", "test", event],
        input=payload.encode("utf-8", "surrogateescape"),
        env=relay.environment,
        cwd=relay.home,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert message in run.stderr.decode()
    assert "Traceback" not in run.stderr.decode()


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, "continue"),
        ({"stop_hook_active": True}, "continue"),
        ({"at_max_iter": True}, "continue_at_max_iter"),
        ({"at_max_iter": True, "turn_end_reason": "max_iterations"}, "continue_at_max_iter"),
        ({"turn_end_reason": "doom_loop"}, "reentry_capped"),
    ],
)
def test_a_stop_has_the_same_outcome_as_in_a_session(
    relay: Relay, tmp_path: Path, payload: dict[str, Any], expected: str
) -> None:
    """R31: the payload may say that a forced continuation is the last one."""
    forces = {"type": "command", "command": """echo '{"force_continue": true}'"""}
    path = rules(tmp_path / "h" / "hooks.json", "Stop", forces)
    assert evaluate(relay, "Stop", payload, "--rules", path)["outcome"] == expected
    allows = rules(tmp_path / "a" / "hooks.json", "Stop", {"type": "command", "command": "true"})
    assert evaluate(relay, "Stop", payload, "--rules", allows)["outcome"] == "allow"


def test_a_terminal_as_standard_input_is_refused(relay: Relay) -> None:
    ours, theirs = pty.openpty()
    try:
        run = subprocess.run(
            [*relay.command, "hooks", "test", "Stop"],
            stdin=theirs,
            env=relay.environment,
            cwd=relay.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert run.returncode == 2
    assert "no event was given. Give the event as a JSON object on standard input" in run.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file '{path}'. Check the path given to --rules."),
        ("{", "{path}:1: it is not JSON"),
        ('{"PreToolUse": []}', "{path}:1: it has no rules"),
    ],
)
def test_an_unusable_file_is_an_error_and_allows_nothing(
    relay: Relay, tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "h.json"
    if content is not None:
        path.write_text(content)
    result = relay("hooks", "test", "Stop", "--rules", path, input="{}", check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert message.format(path=path) in result.stderr


@pytest.mark.parametrize(("size", "too_large"), [(10 * 1024, False), (10 * 1024 + 1, True)])
def test_a_context_too_large_for_a_session_is_reported(
    relay: Relay, tmp_path: Path, size: int, too_large: bool
) -> None:
    path = rules(tmp_path / "h.json", "UserPromptSubmit", {"type": "prompt", "prompt": "x" * size})
    warnings = evaluate(relay, "UserPromptSubmit", {"prompt": "x"}, "--rules", path)["warnings"]
    warning = f"{path}:1: prompt: its context has 10,241 bytes, and a session accepts at most 10,240. "
    assert warnings == (
        [warning + "Write it to a file, and name the file in the context."] if too_large else []
    )


# Switching and reloading.


def test_a_rule_is_switched_off_and_on(relay: Relay, home: Path) -> None:
    """By its id, or all rules with the same name at once."""
    both = {"type": "command", "command": "./lint.sh"}
    (home / "config").mkdir()
    (home / "config" / "hooks.json").write_text(
        json.dumps({"hooks": {"Stop": [both], "PostToolUse": [both, GUARD | {"name": "guard"}]}})
    )

    def off() -> list[str]:
        return [rule["name"] for rule in list_rules(relay)["rules"] if not rule["enabled"]]

    first, second, guard = (rule["id"] for rule in list_rules(relay)["rules"])
    assert relay("hooks", "disable", guard).stdout == f"{guard} (PostToolUse, guard) is off.\n"
    assert off() == ["guard"]
    said = relay("hooks", "list").stdout
    assert f"{guard}  off  PostToolUse" in said
    assert said.count("its command cannot start: there is no file ") == 2
    assert relay("hooks", "disable", "lint.sh", "guard").stdout.splitlines() == [
        f"{first} (Stop, lint.sh) is off.",
        f"{second} (PostToolUse, lint.sh) is off.",
        f"{guard} (PostToolUse, guard) is off.",
    ]
    assert evaluate(relay, "Stop", {})["matched_rule_count"] == 0
    relay("hooks", "enable", first, "guard")
    assert off() == ["lint.sh"]
    assert evaluate(relay, "Stop", {})["matched_rule_count"] == 1


def test_a_rule_can_be_named_by_the_start_of_its_id_or_its_place(
    relay: Relay, home: Path, tmp_path: Path
) -> None:
    own, named = home / "config" / "hooks.json", tmp_path / "hooks.json"
    own.parent.mkdir()
    entry = '\n{"type": "command", "command": "x"}'
    own.write_text(f'{{"hooks": {{"Stop": [{entry}, {entry}]}}}}')
    named.write_text(f'{{"hooks": {{"SessionEnd": [{entry}]}}}}')
    first, second, other = (rule["id"] for rule in list_rules(relay, "--rules", named)["rules"])

    def off(word: str) -> str:
        result = relay("hooks", "disable", word, "--rules", named, cwd=tmp_path, check=False)
        return result.stdout + result.stderr

    assert off(other[:6]) == f"{other} (SessionEnd, x) is off.\n"
    assert f"matches several ids: {first}, {second}. Give more of the id." in off(first[:6])
    assert "there is no rule" in off(other[:3])
    assert off("hooks.json:3") == f"{second} (Stop, x) is off.\n"
    for place in (f"{own}:2", "config/hooks.json:2"):
        assert off(place) == f"{first} (Stop, x) is off.\n"
    assert off("../" * 99 + f"{named}:2".lstrip("/")) == f"{other} (SessionEnd, x) is off.\n"
    assert f"'hooks.json:2' matches several files: {own}, {named}. Give more of the path." in off(
        "hooks.json:2"
    )
    assert "there is no rule 'hooks.json:9'" in off("hooks.json:9")


def test_a_rule_of_a_deleted_file_can_be_switched_on(relay: Relay, tmp_path: Path) -> None:
    path = rules(tmp_path / "h.json")
    (rule,) = list_rules(relay, "--rules", path)["rules"]
    relay("hooks", "disable", rule["id"], "--rules", path)
    path.unlink()
    assert relay("hooks", "enable", rule["id"]).stdout == f"{rule['id']} is on.\n"
    assert relay("hooks", "enable", rule["id"], check=False).returncode == 1


def test_an_unknown_rule_is_reported_with_a_suggestion(relay: Relay, home: Path) -> None:
    rules(home / "config" / "hooks.json", "Stop", GUARD | {"name": "guard"})
    result = relay("hooks", "disable", "gard", check=False)
    assert result.returncode == 1
    assert "there is no rule 'gard'. Did you mean guard? `relay hooks list` lists them." in result.stderr
    assert list_rules(relay)["rules"][0]["enabled"]


def test_sessions_reload_and_one_that_is_too_old_is_reported(relay: Relay, home: Path) -> None:
    rule = {"id": "0123abcd", "name": "theirs", "event": "Stop", "enabled": True}
    answers = {
        "rules": {"rules": [rule], "warnings": []},
        "reload_rules": {"rules": [rule], "warnings": ["x is wrong"]},
        "switch_rules": {"rules": [rule | {"enabled": False}], "warnings": ["x is wrong"]},
    }
    with session(home, "Alice", answers) as alice, session(home, "Bob", {}):
        # A rule known only to a session that was started with --rules.
        older = "relay: Bob keeps its previous rules: a session has no such operation.\n"
        result = relay("hooks", "disable", "theirs", check=False)
        assert result.stdout == "0123abcd (Stop, theirs) is off.\nAlice has 0 rules.\n"
        assert (result.returncode, result.stderr) == (1, older)
        assert alice == ["rules", "switch_rules"]
        result = relay("hooks", "reload", check=False)
        assert result.stdout == "Alice has 1 rule.\n    x is wrong\n"
        assert (result.returncode, result.stderr) == (1, older)
        assert relay("hooks", "reload", "alice", "Alice").stdout == "Alice has 1 rule.\n    x is wrong\n"
    assert relay("hooks", "reload").stdout == "No session is running.\n"


@pytest.mark.parametrize(
    "action", [("disable", "guard"), ("enable", "guard"), ("reload",)], ids=lambda a: a[0]
)
def test_an_agent_may_not_switch_or_reload_rules(relay: Relay, home: Path, action: tuple[str, ...]) -> None:
    rules(home / "config" / "hooks.json", "Stop", GUARD | {"name": "guard"})
    agent = {"RELAY_SOCKET": str(home / "run" / "x.sock"), "RELAY_NAME": "Alice"}
    result = relay("hooks", *action, env=agent, check=False)
    assert result.returncode == 1
    assert f"an agent may not {action[0]} rules." in result.stderr
    assert list_rules(relay)["rules"][0]["enabled"]
    user_home = Home.from_env({"RELAY_HOME": str(home)})
    entries = [(entry["event"], entry["operation"]) for entry in journal.read(user_home.journal)]
    assert entries == [("refused", f"hooks {action[0]}")]
    relay("hooks", "list", env=agent)


def test_a_session_applies_switched_and_reloaded_rules(relay: Relay, home: Path, tmp_path: Path) -> None:
    """R14: the session uses its own files, including those that only it was started with."""
    guard = {"type": "command", "command": "true", "name": "guard"}
    path = rules(tmp_path / "h.json", "Stop", guard, {"type": "http"})
    relay("wrap", "-d", "-n", "Alice", "--rules", path, "cat", cwd=tmp_path)
    wait_until(lambda: list_rules(relay, "Alice")["rules"])
    listing = list_rules(relay, "Alice")
    assert [(rule["name"], rule["origin"], rule["enabled"]) for rule in listing["rules"]] == [
        ("guard", "named", True)
    ]
    assert len(listing["warnings"]) == 1
    assert relay("hooks", "disable", "guard").stdout.splitlines() == [
        f"{listing['rules'][0]['id']} (Stop, guard) is off.",
        "Alice has 0 rules.",
    ]
    assert [rule["enabled"] for rule in list_rules(relay, "Alice")["rules"]] == [False]
    rules(path, "Stop", guard, {"type": "command", "command": "two"})
    relay("hooks", "disable", "guard", "--rules", path)  # this does not reread the files
    assert len(list_rules(relay, "Alice")["rules"]) == 1
    assert relay("hooks", "reload").stdout == "Alice has 1 rule.\n"
    assert [rule["enabled"] for rule in list_rules(relay, "Alice")["rules"]] == [False, True]


def test_a_session_keeps_its_rules_when_their_file_becomes_unusable(relay: Relay, tmp_path: Path) -> None:
    """R12: switching another rule reads no file; a reload keeps the rules of a broken or untrusted file."""
    project = rules(tmp_path / "hooks.json", "PreToolUse", GUARD | {"name": "guard"})
    named = rules(tmp_path / "n.json", "Stop", {"type": "command", "command": "true", "name": "other"})
    relay("trust", project)
    relay("wrap", "-d", "-n", "Alice", "--rules", named, "cat", cwd=tmp_path)
    wait_until(lambda: list_rules(relay, "Alice")["rules"])
    rules(project, "PreToolUse", GUARD | {"command": "theirs"})
    named.write_text("{")
    assert relay("hooks", "disable", "other").stdout.splitlines()[1:] == ["Alice has 1 rule."]
    assert relay("hooks", "enable", "other").stdout.splitlines()[1:] == ["Alice has 2 rules."]
    lines = relay("hooks", "reload").stdout.splitlines()
    assert lines[0] == "Alice has 2 rules."
    assert (
        f"{project}: is not trusted in its current form. The rules that were loaded from it before stay"
        in lines[1]
    )
    assert f"{named}:1: it is not JSON" in lines[2] and lines[2].endswith("stay in force.")
    listing = list_rules(relay, "Alice")
    assert [rule["name"] for rule in listing["rules"]] == ["guard", "other"]
    assert len(listing["warnings"]) == 2


def test_a_session_shows_only_the_first_warnings_about_rules(relay: Relay, home: Path) -> None:
    """R17: the session prints few lines; `relay hooks list` has all of them."""
    rules(home / "config" / "hooks.json", "Stop", *({"type": "http", "n": n} for n in range(5)))
    relay("wrap", "-d", "-n", "Alice", "cat")
    wait_until(lambda: "more" in relay("explain", "Alice", check=False).stdout)
    lines = [line for line in relay("explain", "Alice").stdout.splitlines() if "Not shown to you yet" in line]
    assert sum("relay does not run rules of the type 'http'" in line for line in lines) == 3
    assert lines[-1].endswith("There are 2 more warnings about rules; list them with `relay hooks list`")


def test_warnings_from_before_a_reload_are_no_longer_shown(relay: Relay, tmp_path: Path) -> None:
    """R17: errors that remain are still explained."""
    project = rules(tmp_path / "hooks.json", "Stop", {"type": "command", "command": "true"})
    named = rules(tmp_path / "n.json", "Stop", {"type": "http"})
    relay("wrap", "-d", "-n", "Alice", "--rules", named, "cat", cwd=tmp_path)
    wait_until(lambda: "does not run rules" in relay("explain", "Alice", check=False).stdout)
    assert f"{project}: is not trusted" in relay("explain", "Alice").stdout
    relay("trust", project)
    relay("hooks", "reload")
    explained = relay("explain", "Alice").stdout
    assert "is not trusted" not in explained
    assert "relay does not run rules of the type 'http'" in explained


# relay wrap --rules


@pytest.mark.parametrize("given", [("--rules", "gone.json"), ("--rules=gone.json",), ("--rules", ".")])
def test_an_agent_does_not_start_without_its_named_rules(relay: Relay, given: tuple[str, ...]) -> None:
    """R12: these rules may be the agent's guard."""
    result = relay("wrap", *given, "echo", "started", check=False)
    assert result.returncode == 2
    assert "there is no file" in result.stderr
    assert "started" not in result.stdout
    assert "--rules needs a FILE" in relay("wrap", "--rules", check=False).stderr
