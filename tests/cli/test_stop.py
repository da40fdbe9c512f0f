"""`relay stop` of an agent that is just starting or ending."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from relay.cli import stop
from relay.cli.output import Outcomes
from relay.control.sessions import UNRESPONSIVE, SessionInfo
from relay.home import Home


def test_an_agent_whose_processes_are_not_known_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent's claim did not name them yet, and it has ended. Process id 0 is `relay stop`'s own group."""
    killed: list[int] = []
    monkeypatch.setattr(stop, "_LAST_STEPS", 0.0)
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(pid))
    home = Home(tmp_path / "config", tmp_path / "state", tmp_path / "run").ensure()
    socket = home.run / "sessions" / "default" / "bob.sock"
    bob = SessionInfo("bob", "default", "", None, None, UNRESPONSIVE, None, None, "", "", socket)
    report = Outcomes(argparse.Namespace(json=False))
    stop.end(home, [bob], report, now=True)
    assert killed == []
    assert report.failed
    assert capsys.readouterr().err == "relay: bob is just starting or ending. Try again in a moment.\n"
