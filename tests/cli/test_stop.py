"""`relay stop` of an agent that is just starting or ending, and of one named twice."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path

import pytest

from relay.cli import stop
from relay.cli.output import Outcomes
from relay.control.sessions import UNRESPONSIVE, SessionInfo
from relay.home import Home
from session.fake_agent import FakeAgent, ps, settings
from support import Relay, session_patch


def starting_or_ending(home: Home) -> SessionInfo:
    """Return a session that is just starting or ending: its processes are not known."""
    socket = home.run / "sessions" / "default" / "bob.sock"
    return SessionInfo("bob", "default", "", None, None, UNRESPONSIVE, None, None, "", "", socket)


def test_an_agent_with_unknown_processes_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent's claim did not name them yet, and it has ended. Process id 0 is `relay stop`'s own group."""
    killed: list[int] = []
    monkeypatch.setattr(stop, "_LAST_STEPS", 0.0)
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(pid))
    home = Home(tmp_path / "config", tmp_path / "state", tmp_path / "run").ensure()
    bob = starting_or_ending(home)
    report = Outcomes(argparse.Namespace(json=False))
    stop.end(home, [bob], report, now=True)
    assert killed == []
    assert report.failed
    assert capsys.readouterr().err == "relay: bob is just starting or ending. Try again in a moment.\n"


def test_an_agent_that_could_not_be_stopped_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_HOME", str(tmp_path))
    monkeypatch.setattr(stop, "live", lambda home, *_: [starting_or_ending(home)])
    assert stop.run(argparse.Namespace(names=[], all=True, now=True, team=None, json=False)) == 1


BUSY = session_patch(
    "from functools import wraps\nfrom itertools import count\nfrom relay.features.requests import Requests\n"
    "original, numbers = Requests.info, count()\n"
    "@wraps(original)\nasync def info(self, request):\n"
    "    answer = await original(self, request)\n"
    "    return {'info': answer['info'] | {'tokens': next(numbers)}}\n"
    "Requests.info = info\n"
)
"""Makes a session describe itself differently each time, like a working agent's."""


def test_an_agent_named_twice_is_not_killed(relay: Relay) -> None:
    """A second request would otherwise count as that of an impatient user."""
    settings(relay, "closing_seconds = 0.1\n")
    alice = FakeAgent(relay, "Alice").wrap("--think", "1000", "--reply", "", "", env=BUSY)
    assert relay("stop", "Alice", "alice").stdout == "Alice has ended.\n"
    assert alice.events("session_end")[0]["code"] == 128 + signal.SIGTERM


@pytest.mark.parametrize("command", ["stop", "restart", "resume", "reload", "hooks reload"])
def test_each_agent_is_reported_once(command: str, shared: Relay) -> None:
    if not ps(shared):
        FakeAgent(shared, "Alice").wrap(env=BUSY)
    done = shared(*command.split(), "--json", "Alice", "alice", "ALICE", check=False)
    assert [row["name"] for row in json.loads(done.stdout)] == ["Alice"]
