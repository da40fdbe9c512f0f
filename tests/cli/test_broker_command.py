"""`relay broker`: starting, stopping and inspecting the broker, and its access lists and credentials."""

from __future__ import annotations

import json
import re
import shlex
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from support import Relay, wait_until


def status(relay: Relay) -> dict[str, object]:
    return dict(json.loads(relay("broker", "status", "--json").stdout))


def test_the_broker_is_started_shown_and_stopped(relay: Relay) -> None:
    nothing = {"running": False, "kind": "embedded", "host": None, "port": None, "url": None, "pid": None}
    assert status(relay) == nothing
    relay("broker", "start")
    shown = status(relay)
    assert shown["running"] is True
    assert shown["url"] == f"mqtt://127.0.0.1:{shown['port']}"
    assert f"(pid {shown['pid']})" in relay("broker", "status").stdout
    assert "has stopped" in relay("broker", "stop").stdout
    assert "No broker was running" in relay("broker", "stop").stdout
    assert status(relay) == nothing


def test_stop_says_that_running_sessions_start_another_broker(relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Bob", "cat")
    wait_until(lambda: '"bus": "connected"' in relay("ps", "--json").stdout)
    assert "The next session that needs a broker starts another" in relay("broker", "stop").stdout


def test_the_broker_runs_in_the_foreground(relay: Relay) -> None:
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


def test_a_port_in_use_is_reported(relay: Relay) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = relay("broker", "start", "--port", str(other.getsockname()[1]), check=False)
    assert done.returncode == 1
    assert "in use by another program. Choose another port" in done.stderr


def test_an_unreachable_external_broker_is_reported(relay: Relay) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"mqtt://me:hidden@127.0.0.1:{probe.getsockname()[1]}"
        done = relay("broker", "status", "--broker", url, "--json")
    row = json.loads(done.stdout)
    assert (row["running"], row["kind"]) == (False, "external")
    assert "no connection to the broker" in row["problem"]
    assert "hidden" not in done.stdout


def test_an_external_broker_that_refuses_the_login_is_reported(relay: Relay) -> None:
    relay("broker", "start")
    row = json.loads(
        relay("broker", "status", "--broker", f"mqtt://127.0.0.1:{status(relay)['port']}", "--json").stdout
    )
    assert "refuses the login" in row["problem"], "relay's own broker requires credentials"


def test_acl_writes_an_access_list_and_passwords_for_mosquitto(relay: Relay, tmp_path: Path) -> None:
    out = tmp_path / "made" / "relay"
    done = relay("broker", "acl", "mosquitto", "-o", out, "Alice", "Bob.B")
    assert "3 users" in done.stdout
    assert f"acl_file {out}/acl" in done.stdout
    rights = (out / "acl").read_text()
    assert re.findall(r"^user (.*)$", rights, re.MULTILINE) == [
        "default/alice",
        "default/bob~b",
        "default/you",
    ]
    assert "topic write relay/v1/default/agents/+/inbox/bob~b\n" in rights
    assert (out / "passwords").read_text().count(":$7$") == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in out.iterdir())
    assert stat.S_IMODE(out.stat().st_mode) == 0o700


def test_acl_writes_users_for_nats(relay: Relay, tmp_path: Path) -> None:
    relay("broker", "acl", "nats", "--team", "web", "-o", tmp_path, "Alice")
    path = tmp_path / "relay.conf"
    config = json.loads(path.read_text().partition("authorization: ")[2])
    assert [user["user"] for user in config["users"]] == ["web/alice", "web/you"]
    assert all(user["allowed_connection_types"] == ["MQTT"] for user in config["users"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
def test_no_password_is_printed(relay: Relay, tmp_path: Path, kind: str) -> None:
    printed = relay("broker", "acl", kind, "Alice").stdout
    assert "agents" in printed
    relay("broker", "credentials", "export", "-o", tmp_path / "keys.json", "Alice", "you")
    passwords = [each["password"] for each in json.loads((tmp_path / "keys.json").read_text())]
    assert len(passwords) == 2
    assert not any(password in printed for password in passwords)


def test_credentials_can_be_moved_to_another_home(relay: Relay, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    shown = relay("broker", "credentials", "export", "-o", keys, "Alice").stdout
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert json.loads(keys.read_text())[0]["password"] not in shown
    far = {"RELAY_HOME": str(tmp_path / "far")}
    assert "default/alice" in relay("broker", "credentials", "import", keys, env=far).stdout
    relay("broker", "credentials", "export", "-o", tmp_path / "again.json", "Alice", env=far)
    assert (tmp_path / "again.json").read_text() == keys.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "{}",
        '{"team": "a/b", "name": "bob", "password": "p"}',
        '["x"]',
        pytest.param("[" * 100_000, id="nested too deeply"),
    ],
)
def test_a_file_without_credentials_is_refused(relay: Relay, tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    done = relay("broker", "credentials", "import", file, check=False)
    assert done.returncode == 1
    assert "contains no credentials" in done.stderr


def test_an_unwritable_directory_is_reported(relay: Relay, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = relay("broker", "acl", "nats", "-o", tmp_path / "file", "Alice", check=False)
    assert done.returncode == 1
    assert "cannot write" in done.stderr


def test_an_agent_may_not_handle_credentials(relay: Relay) -> None:
    """A guard rail: with another agent's credentials, an agent could impersonate it."""
    commands = (
        "broker acl nats -o out Bob",
        "broker credentials export -o out Bob",
        "broker credentials import out",
        "doctor --broker",
    )
    script = "; ".join(f"{shlex.join(relay.command)} {command} 2>&1; echo code $?" for command in commands)
    lines = relay("wrap", "--", "sh", "-c", script).stdout.splitlines()
    assert lines[1::2] == ["code 1"] * len(commands)
    assert all("an agent may not" in line for line in lines[::2])
    assert not (relay.home / "out").exists()
