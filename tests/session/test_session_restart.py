"""`relay restart`: an agent ends and starts again with its name, in its terminal."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.hooked import Claude
from relay.control.sessions import call
from session.fake_agent import FakeAgent, events, ps
from session.test_session_replaced import bodies, entry, wait_for_body, wait_until_gone
from support import Relay, wait_until

pytestmark = pytest.mark.own_team


def restarted(relay: Relay, before: dict[str, Any]) -> dict[str, Any]:
    """Wait for the restart of the agent in the entry `before`; return its new entry."""
    return wait_until(
        lambda: (row := entry(relay, before["name"]))["restarts"] == before["restarts"] + 1 and row,
        message=lambda: (relay.home / "state" / "session.log").read_text(),
    )


def send_request(relay: Relay, name: str, **fields: Any) -> dict[str, Any]:
    """Send a request to the session as `relay restart` does, without waiting for the new agent."""
    path = relay.home / "run" / "sessions" / f"{relay.team}" / f"{name.lower()}.sock"
    return call(path, fields, 60)


def test_restart_keeps_the_name_the_shim_and_the_mailbox(relay: Relay) -> None:
    """The new agent keeps the name, the shim and the mailbox; its session is new."""
    alice = FakeAgent(relay, "Alice").wrap()
    before = entry(relay)
    for turn in range(2):
        alice.say(f"@relay:you turn {turn}")
        wait_for_body(relay, f"turn {turn}")
        printed = relay("restart", "Alice").stdout
        after = restarted(relay, before)
        assert f"Alice is running again (pid {after['agent_pid']})." in printed
        assert after["agent_pid"] != before["agent_pid"]
        assert (after["terminal_pid"], after["name"]) == (before["terminal_pid"], "Alice")
        assert after["id"] != before["id"]
        relay("send", "--wait", "60", "Alice", f"are you number {turn}?")
        alice.receives(f"are you number {turn}?")
        before = after
    alice.say("@relay:you the third")
    wait_for_body(relay, "the third")
    assert bodies(relay) == ["turn 0", "turn 1", "the third"]
    assert [e["event"] for e in alice.events() if e["event"].startswith("session_")] == [
        *("session_start", "session_end") * 2,
        "session_start",
    ]
    alice.exit(7)
    wait_until_gone(relay, "Alice")
    assert [e["code"] for e in alice.events("session_end")][-1] == 7


def test_waiting_messages_are_delivered_after_a_restart(relay: Relay) -> None:
    """The first agent never reads."""
    alice = FakeAgent(relay, "Alice")
    busy, idle = (shlex.join(map(str, alice.command(*more))) for more in (("--busy",), ()))
    script = f"cd {alice.folder}; [ -e again ] && exec {idle}; touch again; exec {busy}"
    relay("wrap", "-d", "-n", "Alice", "sh", "-c", script)
    wait_until((alice.folder / "received").exists)
    relay("send", "Alice", "for the next agent")
    relay("restart", "Alice")
    alice.receives("for the next agent")
    assert len(alice.texts()) == 1


def test_a_restart_continues_if_the_session_dies(relay: Relay) -> None:
    """The next session ends the agent, and restarts it."""
    alice = FakeAgent(relay, "Alice").wrap("--deaf", "SIGTERM", "--deaf", "SIGHUP")
    before = entry(relay)
    send_request(relay, "Alice", op="restart")
    os.kill(before["session_pid"], signal.SIGKILL)
    wait_until(alice.ended)
    after = restarted(relay, before)
    assert after["agent_pid"] != before["agent_pid"]
    relay("send", "Alice", "hello")
    alice.receives("hello")
    alice.exit()  # it would be deaf to the end of the test


PROMPT_FAREWELL = """
import sys
from relay.shim.loop import Loop
from relay.shim.session_process import SessionProcess
from relay.shim.shim import FAREWELL
later, renew, due = Loop.later, SessionProcess.renew, []

def noted(self, seconds, call):
    due.extend([call] * (seconds == FAREWELL))
    return later(self, seconds, call)

def renewed(self, hello):
    renew(self, hello)
    for call in due:
        call()

Loop.later, SessionProcess.renew = noted, renewed
from relay.__main__ import main
sys.exit(main())
"""
"""A shim in which FAREWELL is over for the last agent just as the session of the next one starts."""


@pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc when the terminal is closed")
def test_the_last_agents_farewell_does_not_end_the_next_session(relay: Relay) -> None:
    """The last agent closed its terminal before it ended, and the next session is slow to start."""
    closed = (
        'exec <&- >&- 2>&-; while [ -n "$(find /proc/$PPID/fd -lname *ptmx)" ]; do sleep 0.02; done; exit 0'
    )
    script = f"trap '{closed}' TERM; echo up; while :; do sleep 0.1; done"
    patched = Relay(relay.home, relay.team)
    patched.command[1:] = ["-c", PROMPT_FAREWELL]
    patched("wrap", "-d", "-n", "Alice", "sh", "-c", script)
    before = entry(relay)
    relay("restart", "Alice")
    restarted(relay, before)
    starts = [e["event"] for e in events(relay) if e["event"] in {"session_start", "session_resumed"}]
    assert starts == ["session_start"] * 2


def test_a_stop_overrides_a_restart(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap("--deaf", "SIGTERM", "--deaf", "SIGHUP")
    before = entry(relay)
    send_request(relay, "Alice", op="restart")
    assert "Alice has ended" in relay("stop", "--now", "Alice").stdout
    assert ps(relay) == []
    assert len(alice.events("session_start")) == 1
    assert before["restarts"] == 0


def test_a_restart_that_fails_ends_the_session(relay: Relay, tmp_path: Path) -> None:
    """The session ends as after a failed first start, and the command reports it."""
    script = tmp_path / "agent"
    script.write_text("#!/bin/sh\nexec cat\n")
    script.chmod(0o700)
    relay("wrap", "-d", "-n", "Alice", script)
    entry(relay)
    script.unlink()
    done = relay("restart", "Alice", check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "relay: Alice: it has ended and was not restarted. See session.log.\n",
    )
    assert ps(relay) == []


def test_restart_now_kills_the_agent(relay: Relay) -> None:
    """The agent ignores signals."""
    alice = FakeAgent(relay, "Alice").wrap("--deaf", "SIGTERM", "--deaf", "SIGHUP")
    before = entry(relay)
    relay("restart", "--now", "Alice")
    assert restarted(relay, before)["agent_pid"] != before["agent_pid"]
    alice.exit()


def test_handlers_get_restart_as_the_reason(relay: Relay) -> None:
    (relay.home / "relay.config.py").write_text(
        "from relay import on\n\n@on('session_end')\ndef ended(event):\n"
        "    with open('reasons', 'a') as log:\n        log.write(event.reason + '\\n')\n"
    )
    relay("trust", cwd=relay.home)
    FakeAgent(relay, "Alice").wrap()
    relay("restart", "Alice")
    relay("stop", "Alice")
    assert (relay.home / "reasons").read_text() == "restart\nstop\n"


def test_the_bridge_is_set_up_again(relay: Relay, tmp_path: Path) -> None:
    """The agent gets each of its hooks once, and its variables are unchanged."""
    program = tmp_path / "qwen"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "path = os.environ['QWEN_CODE_SYSTEM_DEFAULTS_PATH']\n"
        "hooks = json.load(open(path))['hooks']\n"
        f"with open({str(tmp_path / 'seen')!r}, 'a') as log:\n"
        "    print(sum(len(each) for each in hooks.values()), file=log)\n"
        "sys.stdin.read()\n"
    )
    program.chmod(0o700)
    relay("wrap", "-d", "-n", "Alice", program)
    seen = tmp_path / "seen"
    wait_until(lambda: seen.exists() and seen.read_text().endswith("\n"))
    relay("restart", "Alice")
    wait_until(lambda: len(seen.read_text().split()) == 2)
    first, second = seen.read_text().split()
    assert first == second
    relay("stop", "Alice")
    assert not list((relay.home / "state" / "native").glob("alice*"))


@pytest.mark.parametrize("command", ["relay restart Bob", "relay restart Mallory"])
def test_an_agent_may_not_restart_agents(relay: Relay, tmp_path: Path, command: str) -> None:
    from session.test_session_guard import LISTENING, Agent

    FakeAgent(relay, "Bob").wrap()
    agent = Agent(relay, tmp_path, LISTENING + command)
    assert agent.code == 1
    assert "an agent may not request 'restart'. The user can" in agent.out + agent.err
    assert {row["restarts"] for row in ps(relay)} == {0}


def test_a_restart_keeps_the_conversation_unless_it_is_fresh(relay: Relay) -> None:
    """`resume = "never"` in a policy applies to `relay restart`, not to `relay resume`."""
    claude = Claude(relay).wrap("--model", "opus", "do it")

    def restarted(*arguments: str) -> tuple[list[str], str]:
        """Restart it; return its arguments that name a conversation or a prompt, and what was printed."""
        (claude.folder / "strings").unlink()
        printed = relay(*arguments, "Ann").stdout
        wait_until((claude.folder / "strings").exists)  # it has written its arguments
        found = json.loads((claude.folder / "arguments").read_text())
        return [word for word in found if word in {"--resume", "first", "do it"}], printed

    transcript = claude.folder / "transcript.jsonl"
    claude.fire("SessionStart", source="startup", session_id="first", transcript_path=str(transcript))
    found, printed = restarted("restart")
    assert found == ["do it"] and ", with a new conversation." in printed, "it has no prompt yet"
    claude.fire("SessionStart", source="startup", session_id="first", transcript_path=str(transcript))
    transcript.write_text('{"type":"user","message":{"role":"user","content":"do it"}}\n')
    found, printed = restarted("restart")
    assert found == ["--resume", "first"] and ", with its conversation." in printed
    found, printed = restarted("resume", "--json")
    assert found == ["--resume", "first"] and json.loads(printed)[0]["resumed"] is True
    found, printed = restarted("restart", "--fresh", "--json")
    assert found == ["do it"] and json.loads(printed)[0]["resumed"] is False
    refused = relay("resume", "Ann", check=False)
    assert refused.returncode == 1 and "Ann: it has no conversation to resume." in refused.stderr
    assert entry(relay, "Ann")["restarts"] == 4, "it was left alone"
    relay("stop", "Ann")
    policy = json.dumps({"resume": "never", "prompt": "first thing"})
    claude.wrap(options=("--supervision", policy))
    claude.fire("SessionStart", source="startup", session_id="first", transcript_path=str(transcript))
    assert restarted("restart")[0] == []
    claude.fire("SessionStart", source="startup", session_id="first", transcript_path=str(transcript))
    assert restarted("resume")[0] == ["--resume", "first"]
