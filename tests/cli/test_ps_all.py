"""`relay ps`, and with -a also agents that have ended, and how they ended."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from boards import agent
from relay.cli.ps import _row
from relay.control.ended import KEPT, PLAIN
from relay.home import Home
from relay.supervision.records import Records
from relay.supervision.states import Phase
from session.fake_agent import FakeAgent, ps
from session.test_session_supervised import phase
from support import Relay, wait_until


def rows(relay: Relay) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(relay("ps", "-a", "--json").stdout)}


def test_the_home_folder_is_abbreviated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    folders = ("/home/you", "/home/you/src", "/home/your", "/")
    assert [_row(agent("A", cwd=cwd))[-1] for cwd in folders] == ["~", "~/src", "/home/your", "/"]


def test_ended_agents_are_listed(relay: Relay) -> None:
    FakeAgent(relay, "Alice").wrap().exit(4)
    FakeAgent(relay, "Bob").wrap()
    phase(relay, "failed")
    wait_until(lambda: len(ps(relay)) == 1)
    found = rows(relay)
    assert found["Bob"]["state"] not in {"failed", "gone"}
    assert (found["Alice"]["state"], found["Alice"]["exit_code"], found["Alice"]["session_pid"]) == (
        "failed",
        4,
        None,
    )
    shown = relay("ps", "-a").stdout.splitlines()
    assert "failed (exited with 4)" in shown[1]
    assert "Alice" not in relay("ps").stdout


def test_ended_agents_leave_the_list_after_a_time(relay: Relay) -> None:
    """A plain program has nothing to come back to; an agent stays as long as its fleet file has it."""
    records, now = Records(Home.from_env(relay.environment)), time.time()
    fleet = relay.home / "relay.toml"
    fleet.write_text('[fleet]\n[agents.Cy]\nrun = "cat"\n')
    for name, keys in {
        "Plain": {},
        "Killed": {"phase": Phase.UP},
        "Talker": {"conversation": {"id": "x"}},
        "Kept": {"supervised": True},
        "Spawned": {"supervised": True, "parent": "Bob", "fleet": str(fleet)},
        "Cy": {"supervised": True, "fleet": str(fleet)},
        "Renamed": {"supervised": True, "fleet": str(fleet)},
        "Moved": {"supervised": True, "fleet": str(relay.home / "none.toml")},
    }.items():
        about: dict[str, Any] = {"phase": Phase.FAILED, "at": now - PLAIN + 60, **keys}
        records.change("default", name, lambda record, about=about: replace(record, **about))

    def later(seconds: float) -> set[str]:
        for each in records.all():
            records.change("default", each.name, lambda record: replace(record, at=record.at - seconds))
        return set(rows(relay))

    everybody = {each.name for each in records.all()}
    assert later(0) == everybody
    assert later(120) == everybody - {"Plain"}
    assert later(KEPT) == {"Cy"}
    fleet.write_text("[fleet]\nnot toml")
    assert later(KEPT) == {"Cy"}, "a file with a mistake may have the agent"
    assert [each.name for each in records.all()] == ["Cy"]


def test_forget_removes_ended_agents_from_the_list(relay: Relay) -> None:
    records = Records(Home.from_env(relay.environment))
    FakeAgent(relay, "Alice").wrap()
    for name in ("Bob", "Cy", "Dan"):
        records.change("default", name, lambda record: replace(record, phase=Phase.FAILED, at=time.time()))
    running = relay("forget", "Alice", check=False)
    assert running.returncode == 1 and "Alice: it is running." in running.stderr
    assert relay("forget", "bob").stdout == "Bob is no longer listed.\n"
    unknown = relay("forget", "Bob", check=False)
    assert unknown.returncode == 1 and "there is no agent called 'Bob'" in unknown.stderr
    assert relay("forget", check=False).returncode == 2
    assert rows(relay).keys() == {"Alice", "Cy", "Dan"}
    assert {each["name"] for each in json.loads(relay("forget", "--all", "--json").stdout)} == {"Cy", "Dan"}
    assert rows(relay).keys() == {"Alice"}


def test_a_detached_agent_that_ends_at_once_is_reported(relay: Relay) -> None:
    """The command exits with the agent's exit code, as without -d."""
    done = relay("wrap", "-d", "-n", "Alice", "sh", "-c", "exit 3", check=False)
    assert done.returncode == 3
    assert "Alice has ended with exit code 3." in done.stderr
