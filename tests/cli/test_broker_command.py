"""`relay broker`: the plumbing a person may want to see."""

from __future__ import annotations

import json
import socket
import subprocess

from support import Relay, wait_until


def status(relay: Relay) -> dict[str, object]:
    return dict(json.loads(relay("broker", "status", "--json").stdout))


def test_it_starts_shows_and_stops(relay: Relay) -> None:
    nothing = {"running": False, "kind": "embedded", "host": None, "port": None, "url": None, "pid": None}
    assert status(relay) == nothing
    relay("broker", "start")
    shown = status(relay)
    assert shown["running"] is True
    assert shown["url"] == f"mqtt://127.0.0.1:{shown['port']}"
    assert f"(pid {shown['pid']})" in relay("broker", "status").stdout
    assert "has ended" in relay("broker", "stop").stdout
    assert "No broker was running" in relay("broker", "stop").stdout
    assert status(relay) == nothing


def test_it_runs_in_the_foreground(relay: Relay) -> None:
    with subprocess.Popen([*relay.command, "broker", "run"], env=relay.environment) as process:
        try:
            wait_until(lambda: status(relay)["running"])
            second = relay("broker", "run", check=False)
            assert second.returncode == 1
            assert "already running" in second.stderr
        finally:
            process.terminate()
        assert process.wait(20) == 0
    assert status(relay)["running"] is False


def test_a_port_that_is_taken_is_said(relay: Relay) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = relay("broker", "start", "--port", str(other.getsockname()[1]), check=False)
    assert done.returncode == 1
    assert "in use by another program. Choose another port" in done.stderr


def test_an_external_broker_that_is_not_there_is_said(relay: Relay) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"mqtt://me:hidden@127.0.0.1:{probe.getsockname()[1]}"
        done = relay("broker", "status", "--broker", url, "--json")
    row = json.loads(done.stdout)
    assert (row["running"], row["kind"]) == (False, "external")
    assert "no connection to the broker" in row["problem"]
    assert "hidden" not in done.stdout


def test_an_external_broker_that_answers_is_shown(relay: Relay) -> None:
    relay("broker", "start")
    row = json.loads(
        relay("broker", "status", "--broker", f"mqtt://127.0.0.1:{status(relay)['port']}", "--json").stdout
    )
    assert "refuses the login" in row["problem"], "it is ours, and lets nobody in without credentials"
