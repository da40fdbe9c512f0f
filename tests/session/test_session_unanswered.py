"""Hooks and commands of an agent while its session does not answer."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agents.hooked import Claude
from relay.agents import hook_guards, hook_setup
from session.fake_agent import FakeAgent, messages, project, ps
from session.test_session_chaos import wrap_dying
from session.test_session_replaced import entry
from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team

BLOCK = """echo '{"decision": "block", "reason": "no"}'"""
GUARD = {"PreToolUse": [{"type": "command", "name": "guard", "command": BLOCK}]}

HANDLER = """
from relay import on

@on("prompt_submit")
def looks(event):
    return None
"""

ROWS = hook_setup.refusals("claude")


def rules(relay: Relay, hooks: dict[str, Any]) -> None:
    """Write the user's hooks.json."""
    path = relay.home / "config" / "hooks.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"hooks": hooks}))


def note(claude: Claude) -> list[str]:
    """Return the file beside the session's socket: the agent's name, and the guarded events."""
    return Path(hook_guards.path_of(str(claude.socket))).read_text().split()


def hook_output(claude: Claude, event: str, *, decide: bool = True) -> str:
    """Return what the agent's hook prints for `event`, with a short wait for the session."""
    code = (
        f"from relay.agents import hook_client; hook_client.TAKEN = 0.05; hook_client.GUARDED_TIMEOUT = 0.2; "
        f"hook_client.hook({event!r}, {str(claude.socket)!r}, 'claude', lambda: {ROWS!r}, decide={decide})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="{}", capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def patient_settings(relay: Relay) -> str:
    """Return settings for the agent whose `Ask` hook waits longer than usual."""
    path = relay.home / "run" / "sessions" / (relay.team or "default") / "ann.sock"
    code = (
        "from relay.agents import hook_client; hook_client.TAKEN = 0.05; hook_client.GUARDED_TIMEOUT = 90; "
        f"hook_client.hook('PreToolUse', {str(path)!r}, 'claude', lambda: {ROWS!r}, decide=True)"
    )
    entry = {"type": "command", "command": shlex.join([sys.executable, "-c", code])}
    return json.dumps({"hooks": {"Ask": [{"hooks": [entry]}]}})


def ask(claude: Claude) -> Future[str]:
    """Have the agent call its `Ask` hook; return what it prints."""
    pool = ThreadPoolExecutor(1)
    return pool.submit(lambda: str(claude.fire("Ask", tool_name="Bash", tool_input={})[0]["stdout"]))


def decision(printed: str) -> str:
    return str(json.loads(printed)["hookSpecificOutput"]["permissionDecision"])


def session(relay: Relay) -> int:
    return int(entry(relay, "Ann")["session_pid"])


def test_the_list_of_guarded_events_is_kept_up_to_date(relay: Relay) -> None:
    """Also as rules are switched and reloaded, and for the next session."""
    rules(relay, GUARD)
    claude = Claude(relay).wrap(cwd=project(relay, HANDLER))
    wait_until(lambda: note(claude) == ["Ann", "prompt_submit", "tool_pre"])
    relay("hooks", "disable", "guard")
    assert note(claude) == ["Ann", "prompt_submit"]
    relay("hooks", "enable", "guard")
    assert note(claude) == ["Ann", "prompt_submit", "tool_pre"]
    rules(relay, {"PreToolUse": [{**GUARD["PreToolUse"][0], "async": True}], "Stop": GUARD["PreToolUse"]})
    relay("hooks", "reload")
    assert note(claude) == ["Ann", "prompt_submit"], "a rule in the background cannot refuse"
    rules(relay, GUARD)
    relay("hooks", "reload")
    before = session(relay)
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: session(relay) != before)
    assert note(claude) == ["Ann", "prompt_submit", "tool_pre"]
    claude.exit()
    wait_until(lambda: not Path(hook_guards.path_of(str(claude.socket))).exists())


@pytest.mark.parametrize("hooks", [GUARD, {}])
def test_an_event_is_guarded_until_the_rules_are_known(relay: Relay, hooks: dict[str, Any]) -> None:
    """The first session never reads the rules. Without any rules nothing is guarded."""
    if hooks:
        rules(relay, hooks)
    claude = Claude(relay).wrap(env=session_patch("raise SystemExit('broken')"))
    assert ("`relay reload Ann`" in hook_output(claude, "PreToolUse")) is bool(hooks)
    assert hook_output(claude, "PostToolUse") == ""
    relay("stop", "--now", "Ann")


@pytest.mark.parametrize("continues", [True, False], ids=["it continues", "it is replaced"])
def test_the_user_is_asked_while_the_session_hangs(relay: Relay, continues: bool) -> None:
    """The rule cannot run, so the user decides. Hooks that only observe proceed."""
    rules(relay, GUARD)
    claude = Claude(relay).wrap("--settings", patient_settings(relay))
    os.kill(stopped := session(relay), signal.SIGSTOP)
    printed = hook_output(claude, "PreToolUse")
    assert decision(printed) == "ask"
    assert "`relay reload Ann`" in printed
    for event in ("UserPromptSubmit", "PostToolUse", "Stop"):
        assert hook_output(claude, event) == ""
    assert hook_output(claude, "PreToolUse", decide=False) == ""
    asked = ask(claude)
    os.kill(stopped, signal.SIGCONT if continues else signal.SIGKILL)
    assert decision(asked.result(120)) == "deny"
    assert [e["tool"] for e in claude.events("denied")] == ["Bash"], "it is denied once"


def test_the_user_is_asked_while_no_session_can_start(relay: Relay) -> None:
    """The shim has given the session up, so the user decides until `relay reload`."""
    rules(relay, GUARD)
    broken = relay.home / "broken"
    patch = session_patch(f"import os\nif os.path.exists({str(broken)!r}):\n    raise SystemExit('broken')\n")
    claude = Claude(relay).wrap("--settings", patient_settings(relay), env=patch)
    before = session(relay)
    broken.touch()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: '"ask"' in hook_output(claude, "PreToolUse"))
    assert hook_output(claude, "Stop") == ""
    asked = ask(claude)
    broken.unlink()
    relay("reload", "Ann")
    assert decision(asked.result(120)) == "deny"
    assert [e["tool"] for e in claude.events("denied")] == ["Bash"]


DEATHS = {
    "before it is read": ("relay.features.requests:Requests.answer", "before"),
    "before the effect": ("relay.messaging.outbox:Outbox.send", "before"),
    "after the effect": ("relay.messaging.outbox:Outbox.send", "after"),
    "before the answer": ("relay.features.sender:MessageSender.on_send", "after"),
}


def test_an_agents_message_is_sent_once_even_if_its_session_dies(
    relay: Relay, subtests: pytest.Subtests
) -> None:
    """The command succeeds, and there is one message."""
    bob = FakeAgent(relay, "Bob").wrap()
    for number, (death, (target, when)) in enumerate(DEATHS.items()):
        with subtests.test(death):
            alice, text = FakeAgent(relay, f"Alice{number}"), f"from agent {number}"
            sent, go, died = (alice.folder / name for name in ("sent", "go", "died"))
            send = shlex.join([*relay.command, "send", "--json", "Bob", text])
            said = f"{send} > {sent}.new 2>&1; mv {sent}.new {sent}"
            script = f"while [ ! -e {go} ]; do sleep 0.1; done\n{said}; cat"
            arm = (
                "import os\n"
                f"if not os.path.exists({str(died)!r}):\n"
                "    from failpoints import Failpoint, Point, When, arm\n"
                f"    arm(Failpoint(Point({target!r}), When({when!r}), note={str(died)!r}))\n"
            )
            relay("wrap", "-d", "-n", alice.name, "sh", "-c", script, env=session_patch(arm))
            if not target.startswith("relay.features.requests:"):
                wait_until(lambda name=alice.name: name in {row["name"] for row in ps(relay)})
            go.touch()
            wait_until(sent.exists, 120)
            (row,) = json.loads(sent.read_text())
            assert died.exists()
            bob.receives(text)
            assert [m["id"] for m in messages(relay, "--from", alice.name)] == [row["id"]]
            assert [body for _, body in bob.texts()].count(text) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_joining_and_leaving_a_channel_survive_the_death_of_the_session(relay: Relay, when: str) -> None:
    alice = FakeAgent(relay, "Alice")
    died = wrap_dying(alice, "relay.messaging.channels:ChannelRegistry.join", when)
    assert relay("join", "-n", "Alice", "ops").stdout == "Alice is in #ops now.\n"
    assert died.exists()
    bob = FakeAgent(relay, "Bob")
    bob.folder.joinpath("died").touch()
    wrap_dying(bob, "relay.messaging.channels:ChannelRegistry.leave", when)
    relay("join", "-n", "Bob", "ops")
    bob.folder.joinpath("died").unlink()
    relay("reload", "Bob")
    relay("leave", "-n", "Bob", "ops")
    assert bob.folder.joinpath("died").exists()
    assert [row["members"] for row in json.loads(relay("channels", "--json").stdout)] == [["Alice"]]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("relay.features.rule_runner:RuleRunner.switch", ("hooks", "disable", "guard")),
        ("relay.features.rule_runner:RuleRunner.reload", ("hooks", "reload")),
        ("relay.session.shutdown:Shutdown.request", ("stop", "Alice")),
    ],
)
@pytest.mark.own_home
def test_a_command_whose_session_dies_is_repeated_to_the_next_one(
    relay: Relay, target: str, command: tuple[str, ...], when: str
) -> None:
    rules(relay, GUARD)
    alice = FakeAgent(relay, "Alice")
    died = wrap_dying(alice, target, when)
    done = relay(*command)
    assert died.exists()
    assert "Alice has " in done.stdout
    if command[0] == "stop":
        assert ps(relay) == []
    else:
        (rule,) = json.loads(relay("hooks", "list", "Alice", "--json").stdout)["rules"]
        assert rule["enabled"] is (command[1] == "reload")


@pytest.mark.shared_home
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_whose_session_dies_is_typed_at_most_once(relay: Relay, when: str) -> None:
    """The keys may or may not have been typed; relay reports that, and how to check."""
    bob = FakeAgent(relay, f"Bob-{when}")
    died = wrap_dying(bob, "relay.features.dialog_answers:DialogAnswers.answer", when)
    bob.say("Overwrite notes.txt? [y/N] ", end="")
    wait_until(lambda: bob.state() == "prompting")
    failed = relay("answer", bob.name, "y", check=False)
    assert died.exists()
    assert failed.returncode == 1
    assert f"It may or may not have done what you asked: `relay answer {bob.name}` shows" in failed.stderr
    if when == "after":
        bob.receives("y\n")
    wait_until(lambda: bob.state() == ("prompting" if when == "before" else "ready"))
    assert bob.received == ("" if when == "before" else "y\n")
    relay("stop", bob.name)
