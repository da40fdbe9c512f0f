"""`relay ps -a`: agents that have ended, and how they ended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from relay.control.ended import KEPT
from relay.home import Home
from relay.supervision.records import Records
from session.fake_agent import FakeAgent, ps
from session.test_session_supervised import phase
from support import Relay, wait_until


def rows(relay: Relay) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(relay("ps", "-a", "--json").stdout)}


def test_ended_agents_are_listed(relay: Relay) -> None:
    FakeAgent(relay, "Alice").wrap().exit(4)
    FakeAgent(relay, "Bob").wrap()
    phase(relay, "failed")
    wait_until(lambda: len(ps(relay)) == 1)
    found = rows(relay)
    assert found["Bob"]["state"] not in {"failed", "gone"}
    assert (found["Alice"]["state"], found["Alice"]["exit_code"], found["Alice"]["pid"]) == (
        "failed",
        4,
        None,
    )
    shown = relay("ps", "-a").stdout.splitlines()
    assert "failed (exited with 4)" in shown[1]
    assert "Alice" not in relay("ps").stdout


def test_an_unsupervised_agent_is_forgotten_after_a_week(relay: Relay) -> None:
    FakeAgent(relay, "Alice").wrap().exit(4)
    phase(relay, "failed")
    wait_until(lambda: not ps(relay))
    records = Records(Home.from_env(relay.environment))
    records.change("default", "Alice", lambda record: replace(record, at=record.at - KEPT, supervised=True))
    assert rows(relay).keys() == {"Alice"}
    records.change("default", "Carol", lambda record: replace(record, parent="Bob", supervised=True))
    assert rows(relay).keys() == {"Alice"}  # another agent had started it
    records.change("default", "Alice", lambda record: replace(record, supervised=False))
    assert rows(relay) == {}
    assert not records.path("default", "Alice").exists()


def test_a_detached_agent_that_ends_at_once_is_reported(relay: Relay) -> None:
    """The command exits with the agent's exit code, as without -d."""
    done = relay("wrap", "-d", "-n", "Alice", "sh", "-c", "exit 3", check=False)
    assert done.returncode == 3
    assert "Alice has ended with exit code 3." in done.stderr
