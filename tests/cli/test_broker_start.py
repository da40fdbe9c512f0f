"""`relay broker start` and `stop`, when other processes also control the broker."""

from __future__ import annotations

import shlex

from support import Relay


def test_a_second_broker_on_another_port_is_refused(relay: Relay) -> None:
    relay("broker", "start")
    refused = relay("broker", "start", "--port", "1", check=False)
    assert refused.returncode == 1
    assert "a broker is already running at mqtt://127.0.0.1:" in refused.stderr
    assert "relay broker stop" in refused.stderr


def test_an_agent_may_not_start_or_stop_the_broker(relay: Relay) -> None:
    relay("broker", "start")
    actions = ("start", "run", "stop")
    script = "; ".join(f"{shlex.join(relay.command)} broker {action}" for action in actions)
    inside = relay("wrap", "--", "sh", "-c", script, check=False)
    assert all(f"an agent may not {action} the broker" in inside.stderr for action in actions)
    assert relay("broker", "status").stdout.startswith("The embedded broker runs")
