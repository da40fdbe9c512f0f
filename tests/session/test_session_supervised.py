"""Agents that their session restarts automatically."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from session.fake_agent import FakeAgent, ps, settings
from session.test_session_replaced import entry, wait_for_body, wait_until_gone
from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team


def record(relay: Relay, name: str = "Alice", team: str = "") -> dict[str, Any]:
    folder = relay.home / "state" / "agents" / (team or relay.team or "default")
    path = folder / f"{name.lower()}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def supervised(relay: Relay, *arguments: str, name: str = "Alice", **policy: Any) -> FakeAgent:
    """Wrap a fake agent that restarts almost at once, unless `policy` says otherwise."""
    keys = {"restart": "on-failure", "backoff": 0.05, **policy}
    return FakeAgent(relay, name).wrap(*arguments, options=("--supervision", json.dumps(keys)))


def wait_for_restart(relay: Relay, before: dict[str, Any]) -> dict[str, Any]:
    """Wait for the restart of the agent in the entry `before`; return its new entry."""
    return wait_until(
        lambda: (row := entry(relay, before["name"])).get("restarts") == before["restarts"] + 1 and row,
        message=lambda: (relay.home / "state" / "session.log").read_text(),
    )


def phase(relay: Relay, *phases: str, name: str = "Alice") -> dict[str, Any]:
    """Wait until the agent is in one of `phases`; return its record."""
    return wait_until(
        lambda: (found := record(relay, name)).get("phase") in phases and found,
        message=lambda: f"{phases} in {record(relay, name)}",
    )


def test_a_crashed_or_killed_agent_is_restarted(relay: Relay) -> None:
    """It keeps its name, shim and mailbox."""
    alice = supervised(relay)
    before = entry(relay)
    alice.exit(3)
    after = wait_for_restart(relay, before)
    assert after["agent_pid"] != before["agent_pid"]
    assert (after["terminal_pid"], after["name"]) == (before["terminal_pid"], "Alice")
    relay("send", "--wait", "60", "Alice", "welcome back")
    alice.receives("welcome back")
    alice.say("@relay:you I am back")
    wait_for_body(relay, "I am back")
    os.kill(after["agent_pid"], signal.SIGKILL)
    wait_for_restart(relay, after)
    assert [(e["phase"], e.get("code")) for e in alice.events("phase")] == [
        ("backoff", 3),
        ("starting", None),
        ("backoff", 128 + signal.SIGKILL),
        ("starting", None),
    ]
    assert len(record(relay)["history"]["restarts"]) == 2


def test_an_agent_that_succeeds_is_not_restarted(relay: Relay) -> None:
    supervised(relay).exit(0)
    assert phase(relay, "done")["exit_code"] == 0
    wait_until_gone(relay, "Alice")


def test_an_agent_that_is_always_restarted_ends_once_it_is_stopped(relay: Relay) -> None:
    alice = supervised(relay, restart="always")
    before = entry(relay)
    alice.exit(0)
    wait_for_restart(relay, before)
    relay("stop", "Alice")
    assert ps(relay) == []
    ended = record(relay)
    assert (ended["phase"], ended["wanted"], ended["by"]) == ("off", "down", "stop")


def test_an_agent_that_keeps_failing_is_no_longer_restarted(relay: Relay) -> None:
    options = ("--supervision", json.dumps({"restart": "on-failure", "backoff": 0.01, "max_restarts": 2}))
    relay("wrap", "-d", "-n", "Alice", *options, "sh", "-c", "echo once >> lives; exit 7", check=False)
    ended = phase(relay, "failed")
    assert ended["exit_code"] == 7
    assert ended["reason"] == "exited with 7; restarted 2 times within 15 min"
    wait_until_gone(relay, "Alice")
    assert (relay.home / "lives").read_text() == "once\n" * 3


def test_the_last_failure_is_escalated(relay: Relay) -> None:
    """By a message, as no terminal may be attached."""
    bob = FakeAgent(relay, "Bob").wrap()
    settings(relay, 'escalate_to = "Bob"\n')
    alice = supervised(relay, backoff=0.01, max_restarts=1)
    before = entry(relay)
    alice.exit(7)
    wait_for_restart(relay, before)
    alice.exit(7)
    bob.receives("Alice exited with 7; restarted once within 15 min. It will not be restarted again.")
    assert "`relay resume Alice` starts it." in bob.received


def test_an_agent_held_during_the_pause_is_escalated_once(relay: Relay) -> None:
    alice = supervised(relay, resume="require")
    entry(relay)
    alice.exit(1)
    notice = alice.notice("there is no known conversation to resume")
    assert notice.startswith("Alice exited with 1, and is held") and "`relay restart Alice`" in notice
    pid = entry(relay)["session_pid"]
    relay("reload", "Alice")
    wait_until(lambda: (row := entry(relay))["session_pid"] != pid and row["state"] == "held")
    assert len(alice.events("escalated")) == 1


def test_messages_sent_during_the_pause_reach_the_restarted_agent(relay: Relay) -> None:
    """`relay ps` shows the pause, and a stop ends it."""
    alice = supervised(relay, backoff=3600, backoff_max=3600)
    before = entry(relay)
    alice.exit(1)
    paused = wait_until(lambda: (row := entry(relay))["state"] == "backoff" and row)
    assert paused["exit_code"] == 1
    assert paused["next_try"] > paused["since"]
    assert "exited with 1" in relay("explain", "Alice").stdout
    relay("send", "Alice", "for the next one")
    relay("restart", "Alice")
    after = wait_for_restart(relay, before)
    alice.receives("for the next one")
    assert len(alice.texts()) == 1
    alice.exit(1)
    wait_until(lambda: entry(relay)["state"] == "backoff")
    relay("stop", "Alice")
    assert ps(relay) == []
    assert record(relay)["phase"] == "off" and after["restarts"] == 1


@pytest.mark.parametrize("order", ["reload", "kill"])
def test_the_pause_outlives_its_session(relay: Relay, order: str) -> None:
    """The next session waits for the rest of it, and counts the agent's end once."""
    alice = supervised(relay, backoff=3600, backoff_max=3600)
    before = entry(relay)
    alice.exit(1)
    paused = wait_until(lambda: (row := entry(relay))["state"] == "backoff" and row)
    if order == "kill":
        os.kill(paused["session_pid"], signal.SIGKILL)
    else:
        relay("reload", "Alice")
    again = wait_until(
        lambda: (
            (row := entry(relay))["state"] == "backoff"
            and row["session_pid"] != paused["session_pid"]
            and row
        )
    )
    assert again["next_try"] == paused["next_try"]
    assert len(record(relay)["history"]["restarts"]) == 1
    assert [e["event"] for e in alice.events("session_end")] == ["session_end"]
    relay("restart", "Alice")
    wait_for_restart(relay, before)


def test_an_agent_that_dies_with_its_session_is_restarted(relay: Relay) -> None:
    """The next session finds that the agent has ended, and restarts it."""
    supervised(relay)
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGSTOP)
    os.kill(before["agent_pid"], signal.SIGKILL)
    os.kill(before["session_pid"], signal.SIGKILL)
    wait_for_restart(relay, before)


LATE_DECISION = """
import sys
from relay.shim.loop import Loop
from relay.shim.session_process import SessionProcess
from relay.shim import shim
shim.DECISION = 3600.0
later, ordered, timers = Loop.later, SessionProcess._ordered, []

def noted(self, seconds, call):
    timer = later(self, seconds, call)
    if seconds == shim.DECISION:
        timers.append(timer)
        open("deciding", "w").close()
    return timer

def due(self, fields, fds):
    if self.generation == 2:
        for timer in timers:
            if timer.call is not None:
                timer.call()
        timers.clear()
    ordered(self, fields, fds)

Loop.later, SessionProcess._ordered = noted, due
from relay.__main__ import main
sys.exit(main())
"""
"""A shim in which the first session's time to decide ends with the first command of the second."""


def test_the_time_to_decide_starts_again_for_the_next_session(relay: Relay) -> None:
    """The next session gets the full time."""
    late = Relay(relay.home, relay.team)
    late.command[1:] = ["-c", LATE_DECISION]
    supervised(late)
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGSTOP)
    os.kill(before["agent_pid"], signal.SIGKILL)
    wait_until((relay.home / "deciding").exists)
    os.kill(before["session_pid"], signal.SIGKILL)
    wait_for_restart(relay, before)


LAST_WORDS = """
import os, signal
from relay.terminal.shim_link import ShimLink

pause = ShimLink.pause

def pause_and_die(self, text):
    os.kill(self.hello.fields["shim"], signal.SIGSTOP)
    self.keep(False, ordered="stop")
    pause(self, text)
    os.kill(os.getpid(), signal.SIGKILL)

ShimLink.pause = pause_and_die
"""
"""A session whose commands reach the shim after its death."""


@pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc that the session has ended")
def test_a_stop_survives_a_session_killed_as_it_requests_a_pause(relay: Relay) -> None:
    """The next session completes the stop that preceded the pause."""
    log = relay.home / "state" / "session.log"
    logged = log.stat().st_size if log.exists() else 0
    relay.environment |= session_patch(LAST_WORDS)
    alice = supervised(relay, backoff=3600, backoff_max=3600)
    before = entry(relay)
    alice.exit(1)
    status = Path(f"/proc/{before['session_pid']}/status")
    wait_until(lambda: "State:\tZ" in status.read_text())
    os.kill(before["terminal_pid"], signal.SIGCONT)
    wait_until_gone(relay, "Alice")
    assert phase(relay, "off")["exit_code"] == 1
    assert "Traceback" not in log.read_text()[logged:]


def test_an_agent_stopped_by_the_system_is_still_wanted(relay: Relay) -> None:
    """For example, after a shutdown of the machine, so that `relay up` starts it again."""
    supervised(relay, restart="always")
    os.kill(entry(relay)["terminal_pid"], signal.SIGTERM)
    wait_until_gone(relay, "Alice")
    ended = record(relay)
    assert (ended["phase"], ended["wanted"]) == ("off", "up")


def test_the_exit_code_of_an_unsupervised_agent_is_recorded(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    alice.exit(4)
    ended = phase(relay, "failed")
    assert (ended["exit_code"], ended["reason"], ended["supervised"]) == (4, "exited with 4", False)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("sometimes", "--restart must be one of no, on-failure, always, not 'sometimes'."),
        ("always --pipe", "--restart and --pipe cannot be combined: a pipe cannot be read twice."),
    ],
)
def test_an_invalid_restart_policy_is_a_usage_error(relay: Relay, policy: str, message: str) -> None:
    done = relay("wrap", "--restart", *shlex.split(policy), "true", check=False)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("policy", ["no", "[]", pytest.param("[" * 100_000, id="nested too deeply")])
def test_a_policy_must_be_a_json_object(relay: Relay, policy: str) -> None:
    done = relay("wrap", "--supervision", policy, "true", check=False)
    assert done.returncode == 2
    assert "--supervision takes a JSON object" in done.stderr


def test_input_from_a_pipe_is_not_read_twice(relay: Relay, tmp_path: Path) -> None:
    script = f"cat; echo once >> {tmp_path / 'lives'}; exit 5"
    done = relay("wrap", "--restart", "always", "sh", "-c", script, input="hello\n", check=False)
    assert done.returncode == 5
    assert (tmp_path / "lives").read_text() == "once\n"


def test_a_stop_outlives_its_session(relay: Relay) -> None:
    """The next session completes it, and the agent's end does not count as a failure."""
    supervised(relay, "--deaf", "SIGTERM", "--deaf", "SIGHUP")  # makes the stop take a while
    row = entry(relay)
    stop = subprocess.Popen(
        [*relay.command, "stop", "Alice"], env=relay.environment, stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: record(relay)["wanted"] == "down")
    os.kill(row["session_pid"], signal.SIGKILL)
    message, _ = stop.communicate()
    assert message == "Alice has ended.\n"
    ended = record(relay)
    assert (ended["phase"], ended["wanted"], ended["next_try"]) == ("off", "down", None)


@pytest.mark.parametrize("paused", [False, True])
def test_a_stop_is_recorded_even_if_the_session_hangs(relay: Relay, paused: bool) -> None:
    """It is recorded without the session, so that `relay up` does not start the agent."""
    alice = supervised(relay, backoff=3600, backoff_max=3600)
    row = entry(relay)
    if paused:
        alice.exit(1)
        phase(relay, "backoff")
    os.kill(row["session_pid"], signal.SIGSTOP)
    relay("stop", "--now", "Alice")
    ended = record(relay)
    assert (ended["phase"], ended["wanted"], ended["by"]) == ("off", "down", "stop")


def test_an_agent_that_cannot_be_restarted_has_failed(relay: Relay, tmp_path: Path) -> None:
    """The session has ended by then, so the shim records the failure."""
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\nexit 3\n")
    agent.chmod(0o755)
    options = ("--supervision", json.dumps({"restart": "always", "backoff": 3600, "backoff_max": 3600}))
    relay("wrap", "-d", "-n", "Alice", *options, agent)
    agent.unlink()
    relay("restart", "Alice", check=False)
    ended = phase(relay, "failed")
    assert ended["reason"].startswith("could not be started again: ")
    wait_until_gone(relay, "Alice")


@pytest.mark.parametrize("back", [True, False])
def test_a_missing_program_is_retried_within_the_limit(relay: Relay, tmp_path: Path, back: bool) -> None:
    """For example, while it is updated. Each attempt counts."""
    agent, away = tmp_path / "agent", tmp_path / "away"
    agent.write_text("#!/bin/sh\nread line\nexit 3\n")
    agent.chmod(0o755)
    policy = {"restart": "on-failure", "backoff": 0.2, "backoff_max": 0.2, "max_restarts": 50 if back else 2}
    relay("wrap", "-d", "-n", "Alice", "--supervision", json.dumps(policy), agent)
    before = entry(relay)
    agent.rename(away)
    os.kill(before["agent_pid"], signal.SIGKILL)
    why = f"cannot be started: there is no program '{agent}'"
    if back:
        wait_until(lambda: record(relay)["reason"] == why)
        assert record(relay)["exit_code"] == 127
        away.rename(agent)
        wait_for_restart(relay, before)
    else:
        assert phase(relay, "failed")["reason"] == f"{why}; restarted 2 times within 15 min"
        wait_until_gone(relay, "Alice")
