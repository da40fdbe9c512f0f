"""`relay broker start` and `stop`, when other processes also control the broker."""

from __future__ import annotations

import pytest

from support import Relay


def test_a_second_broker_on_another_port_is_refused(relay: Relay) -> None:
    relay("broker", "start")
    refused = relay("broker", "start", "--port", "1", check=False)
    assert refused.returncode == 1
    assert "a broker is already running at mqtt://127.0.0.1:" in refused.stderr
    assert "relay broker stop" in refused.stderr


@pytest.mark.parametrize("action", ["start", "run"])
def test_an_agent_may_not_start_a_broker(relay: Relay, action: str) -> None:
    relay("broker", "start")
    inside = relay("wrap", "--", *relay.command, "broker", action, check=False)
    assert f"an agent may not {action} the broker" in inside.stderr


def test_an_agent_may_not_stop_the_broker(relay: Relay) -> None:
    relay("broker", "start")
    inside = relay("wrap", "--", *relay.command, "broker", "stop", check=False)
    assert "an agent may not stop the broker" in inside.stderr
    assert relay("broker", "status").stdout.startswith("The embedded broker runs")
