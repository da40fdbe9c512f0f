"""Supervised programs that ignore signals, are stopped, or leave children behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from session.fake_agent import ps
from session.test_session_replaced import entry
from session.test_session_supervised import phase, record
from support import Relay, wait_until

POLICY = {"restart": "always", "backoff": 0.05, "backoff_max": 0.05}


def wrap(relay: Relay, script: str, **policy: float) -> None:
    options = ("--supervision", json.dumps({**POLICY, **policy}))
    relay("wrap", "-d", "-n", "Alice", *options, "sh", "-c", script)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("how", ["deaf", "stopped"])
def test_an_agent_that_ignores_a_stop_is_killed(relay: Relay, how: str) -> None:
    """It is killed, and not restarted."""
    deaf = "trap '' TERM HUP INT; " if how == "deaf" else ""
    wrap(relay, f"{deaf}echo up; while :; do sleep 0.1; done")
    agent = wait_until(lambda: entry(relay).get("agent_pid"))
    if how == "stopped":
        os.kill(agent, signal.SIGSTOP)
    relay("stop", "Alice")
    assert not is_alive(agent)
    ended = record(relay)
    assert (ended["phase"], ended["wanted"], ended["restarts"]) == ("off", "down", 0)


def test_children_left_by_an_agent_are_ended(relay: Relay, tmp_path: Path) -> None:
    """Each restart has a new terminal, and ends the processes left in the previous one."""
    children = tmp_path / "children"
    wrap(relay, f"trap '' HUP; sleep 1000 & echo $! >> {children}; exit 3", max_restarts=2)
    assert phase(relay, "failed")["restarts"] == 2
    wait_until(lambda: ps(relay) == [])
    pids = [int(pid) for pid in children.read_text().split()]
    assert len(pids) == 3
    wait_until(lambda: not any(map(is_alive, pids)))
