"""The bridge in a real session: `relay wrap` of an agent that calls the hooks in its settings."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agents.hooked import Claude, Json
from relay import data
from relay.agents.hook_setup import call
from relay.home import Home
from relay.session.bridge import bridged
from relay.session.options import Options
from session.fake_agent import project, ps
from support import Relay, wait_until

PACKAGE = Path(data.__file__).parent


def silent(call: Json) -> bool:
    return (call["stdout"], call["stderr"], call["code"]) == ("", "", 0)


DENY = """
from relay import on
from relay.hooks.result import HookResult

@on("tool_pre")
def guard(event):
    if "rm" in str(event.tool_input):
        return HookResult("deny", reason="not that")
"""


def test_events_reach_the_session_and_its_verdict_reaches_the_agent(relay: Relay) -> None:
    """R91, R92, R93: the decider prints a refusal, and nothing if the call is allowed."""
    claude = Claude(relay).wrap(cwd=project(relay, DENY))
    claude.fire("SessionStart", source="startup")
    (allowed,) = claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    (denied,) = claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "rm x"})
    assert (allowed["stderr"], allowed["code"]) == (denied["stderr"], denied["code"]) == ("", 0)
    assert "deny" not in allowed["stdout"]
    assert json.loads(denied["stdout"])["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "not that",
    }
    assert [e["hook"] for e in claude.events("hook")] == ["session_start", "tool_pre", "tool_pre"]


def test_hooks_outlive_relay(relay: Relay, tmp_path: Path) -> None:
    """relay is removed while its agent runs: its session answers, and afterwards a guard asks the user."""
    package = tmp_path / "relay"
    shutil.copytree(PACKAGE, package)  # with its compiled files
    for name in ("config", "patterns"):
        shutil.copytree(data.directory(name), package / "_data" / name)
    relay.environment["PYTHONPATH"] = str(tmp_path)
    relay.command.insert(1, "-P")
    claude = Claude(relay).wrap(cwd=project(relay, DENY))
    claude.fire("SessionStart", source="startup")
    (row,) = ps(relay)
    shutil.rmtree(package)
    (denied,) = claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "rm x"})
    assert "not that" in denied["stdout"]
    os.kill(row["session_pid"], signal.SIGKILL)
    (asked,) = claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    assert '"permissionDecision": "ask"' in asked["stdout"]
    for event in ("UserPromptSubmit", "Stop", "PostToolUse"):
        assert all(map(silent, claude.fire(event))), event


@pytest.mark.parametrize(
    ("tool", "prompt"), [("ExitPlanMode", "plan_approval"), ("AskUserQuestion", "question")]
)
def test_the_observer_prints_nothing_and_the_session_learns_of_the_prompt(
    relay: Relay, tool: str, prompt: str
) -> None:
    """R88, R89, R92, R94, R96"""
    claude = Claude(relay).wrap()
    claude.fire("UserPromptSubmit", prompt="do it")
    observed, _ = claude.fire("PreToolUse", tool_name=tool, tool_input={})
    assert "pretooluse" in observed["command"]
    assert silent(observed)
    wait_until(
        lambda: [(e["state"], e["prompt"]) for e in claude.events("state")][-1:] == [("prompting", prompt)],
        message=lambda: str(claude.events("state")),
    )


def test_a_waiting_message_is_delivered_in_one_reply(relay: Relay) -> None:
    claude = Claude(relay).wrap()
    claude.fire("SessionStart", source="startup")
    claude.fire("UserPromptSubmit", prompt="do it")
    relay("send", "Ann", "look at the tests")
    wait_until(lambda: claude.events("message_received"))
    (answered,) = claude.fire("PostToolUse", tool_name="Bash", tool_input={}, tool_response="")
    assert "look at the tests" in json.loads(answered["stdout"])["hookSpecificOutput"]["additionalContext"]
    wait_until(
        lambda: [e["result"] for e in claude.events("injection") if e["route"] == "native"] == ["injected"]
    )
    (again,) = claude.fire("PostToolUse", tool_name="Bash", tool_input={}, tool_response="")
    assert silent(again)


def test_a_write_of_five_megabytes_gets_a_verdict(relay: Relay) -> None:
    claude = Claude(relay).wrap(cwd=project(relay, DENY))
    (denied,) = claude.fire("PreToolUse", tool_name="Write", tool_input={"content": 1_700_000 * "rm "})
    assert "not that" in denied["stdout"]


def test_the_users_files_are_unchanged_and_their_hooks_run(relay: Relay, tmp_path: Path) -> None:
    """R95"""
    ran = tmp_path / "their hook ran"
    own = {"model": "x", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"touch '{ran}'"}]}]}}
    files = [relay.home / ".claude" / "settings.json", tmp_path / "own.json"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(own))
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    claude = Claude(relay).wrap("--settings", str(files[1]))
    claude.fire("Stop", last_assistant_message="done")
    assert ran.exists()
    assert json.loads(claude.settings.read_text())["model"] == "x"
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before
    assert not [path for path in claude.folder.iterdir() if path.name == ".claude"]


def test_the_files_of_a_run_are_deleted_when_it_ends(relay: Relay) -> None:
    claude = Claude(relay).wrap()
    assert claude.settings.exists()
    claude.exit()
    wait_until(lambda: not claude.settings.parent.exists())


def test_an_agent_that_cannot_be_bridged_starts_unchanged(relay: Relay) -> None:
    claude = Claude(relay)
    broken = claude.folder / "broken.json"
    broken.write_text('{"hooks": 7}')
    claude.wrap("--settings", str(broken))
    assert json.loads((claude.folder / "arguments").read_text()) == ["--settings", str(broken)]


# The guard rail.


def ask(path: Path) -> Json:
    """Return the session's answer at `path` to a hook call by this process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect(str(path))
        request = {"op": "hook", "agent": "claude", "event": "Stop", "decide": True, "payload": "{}"}
        channel.sendall(json.dumps(request).encode() + b"\n")
        with channel.makefile("rb") as lines:
            return dict(json.loads(lines.readline()))


def test_a_hook_call_from_outside_the_agent_is_rejected(relay: Relay) -> None:
    claude = Claude(relay).wrap()
    assert ask(claude.socket)["type"] == "NotAllowed"
    assert claude.events("hook") == []
    assert [e["operation"] for e in claude.events("refused")] == ["hook"]
    done = subprocess.run(
        call(str(claude.settings.parent), "decide", "Stop"), input=b"{}", capture_output=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


HOLD = """
import socket, sys
held = []
for _ in range(300):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
    held[-1].sendall(b'{"op": "info"}\\n' + b'{"op": "info", "x": "' + 4000 * b"x")
open(sys.argv[2], "w").close()
input()
"""


def test_another_agents_connections_keep_no_hook_waiting(relay: Relay, tmp_path: Path) -> None:
    """It holds more than a session accepts. The session still answers its own agent and the user."""
    claude = Claude(relay).wrap(cwd=project(relay, DENY))
    claude.fire("SessionStart", source="startup")
    held = tmp_path / "held"
    relay("wrap", "-d", "-n", "Eve", sys.executable, "-c", HOLD, claude.socket, held)
    wait_until(held.exists)
    (denied,) = claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "rm x"})
    assert "not that" in denied["stdout"]
    assert {row["state"] for row in ps(relay)}.isdisjoint({"unresponsive"})


def test_a_hook_call_from_another_agent_is_rejected(relay: Relay) -> None:
    """Bob's hooks point at Ann's session, which refuses them."""
    ann, bob = Claude(relay, "Ann").wrap(), Claude(relay, "Bob").wrap()
    stolen = json.loads(bob.settings.read_text())
    stolen["hooks"]["Stop"][0]["hooks"][0]["args"][-3] = str(ann.settings.parent / "hook")
    bob.exit()
    wait_until(lambda: not bob.socket.exists())
    (bob.folder / "strings").unlink()
    forged = bob.folder / "forged.json"
    forged.write_text(json.dumps({"hooks": {"Stop": stolen["hooks"]["Stop"]}}))
    bob.wrap("--settings", str(forged))
    for each in bob.fire("Stop"):
        assert each["code"] == 0
    assert ann.events("hook") == []
    assert [e["operation"] for e in ann.events("refused")] == ["hook"]
    assert len(bob.events("hook")) == 1


# The public interface.


def test_relay_hook_in_an_agent_works_like_the_bridge(relay: Relay, tmp_path: Path) -> None:
    """R86, R92: the agent's name comes from the environment or an argument; the observer prints nothing."""
    command = f"{shlex.quote(sys.executable)} -m relay hook"
    own = tmp_path / "own.json"
    handlers = [
        f"{command} pretooluse",
        f"{command} decide --agent claude PreToolUse",
        f"env -u RELAY_SOCKET -u RELAY_NAME {command} --name Ann --team=default --agent=claude pretooluse",
        f"env -u RELAY_SOCKET {command} decide --name Nobody PreToolUse",
    ]
    hooks = [{"type": "command", "command": each} for each in handlers]
    own.write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "Mine", "hooks": hooks}]}}))
    claude = Claude(relay).wrap("--settings", str(own), cwd=project(relay, DENY))
    claude._pull({"fire": "PreToolUse", "payload": {"tool_name": "Mine", "tool_input": {"x": "rm"}}})
    wait_until(lambda: len(claude.calls()) == len(handlers) + 1, message=lambda: str(claude.calls()))
    observed, decided, named, nobody, ours = claude.calls()
    assert silent(observed)
    assert silent(named)
    assert silent(nobody)
    assert decided["stdout"] == ours["stdout"] != ""
    assert [e["decide"] for e in claude.events("hook")] == [False, True, False, True]


def test_relay_hook_without_a_session_prints_nothing(relay: Relay) -> None:
    """R92"""
    for words in (["pretooluse"], ["decide", "Stop"], ["decide", "--name", "Nobody", "Stop"]):
        done = relay("hook", *words, input="{bad")
        assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("words", [[], ["decide"], ["a", "b"], ["--name"], ["--odd", "x", "Stop"]])
def test_invalid_arguments_of_relay_hook_are_reported(relay: Relay, words: list[str]) -> None:
    """R92: not with exit code 2, which agents take for a refusal."""
    done = relay("hook", *words, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("relay: ")
    assert "Usage: relay hook" in done.stderr


def test_the_help_of_relay_hook_lists_its_options(relay: Relay) -> None:
    assert "--agent" in relay("hook", "--help").stdout
    assert os.environ.get("RELAY_SOCKET") is None


def test_an_internal_error_does_not_keep_the_agent_from_starting(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is logged with its traceback, and the session has a note for the user."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by us")

    monkeypatch.setattr("relay.agents.hook_setup.bridge", fail)
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()
    directory, socket = str(home / "bridge"), str(home / "ann.sock")
    command, env, about = bridged(Options(["claude"]), {"A": "1"}, place, directory, socket)
    assert (command, env, about["bridge"]) == (["claude"], {"A": "1"}, "")
    assert "ZeroDivisionError: by us" in about["bridge_note"]
    assert "in fail" in (home / "state" / "session.log").read_text()
