"""`relay doctor`: problems of this machine and home, and what a broker lets one agent do to another."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
from pathlib import Path

import pytest

from guarded import GuardedMosquitto
from relay.transport.probe_result import CLAIMS
from support import Relay


def rows(relay: Relay, *arguments: str | Path, code: int = 0) -> dict[str, tuple[str, str]]:
    """Return the result and the detail of each check by its name."""
    done = relay("doctor", *arguments, "--json", check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return {row["name"]: (row["result"], row["detail"]) for row in json.loads(done.stdout)}


def test_a_fresh_home_has_no_problems(relay: Relay) -> None:
    found = rows(relay)
    assert {result for result, _ in found.values()} <= {"ok", "warn"}
    assert {
        "python",
        "packages",
        "screen",
        "nats-server",
        "disk",
        "ledger",
        "broker",
        "agents",
    } <= found.keys()
    assert not (relay.home / "state").exists(), "the doctor creates nothing"
    shown = relay("doctor").stdout
    assert "No problems found." in shown
    assert "ok    python: " in shown


def test_a_home_in_use_has_no_problems(relay: Relay) -> None:
    relay("broker", "start")
    relay("send", "--from", "Alice", "you", "makes a ledger")
    found = rows(relay)
    assert found["broker"][0] == "ok"
    assert "answers at mqtt://127.0.0.1" in found["broker"][1]
    assert found["ledger"] == ("ok", str(relay.home / "state" / "ledger.db"))


def test_an_external_broker_is_checked(relay: Relay, tmp_path: Path) -> None:
    toml = relay.home / "config" / "relay.toml"
    toml.parent.mkdir()
    with GuardedMosquitto(tmp_path, None, "") as mosquitto:
        toml.write_text(f"broker = '{mosquitto.url}'\n")
        result, detail = rows(relay)["broker"]
        assert result == "ok"
        assert f"the external one answers at {mosquitto.url}" in detail
    result, detail = rows(relay)["broker"]
    assert result == "warn", "sessions start anyway"
    assert "no connection" in detail
    assert "messages wait" in detail


def test_problems_are_reported_with_a_remedy(relay: Relay) -> None:
    relay("broker", "acl", "mosquitto", "Alice")  # creates credentials
    state = relay.home / "state"
    secret = state / "broker" / "credentials" / "default.alice.json"
    secret.chmod(0o644)
    state.chmod(0o755)
    (state / "ledger.db").write_bytes(b"no ledger" * 1000)
    (relay.home / "config" / "relay.toml").write_text("idle_seconds = 'long'\n")
    guard = {"type": "command", "command": "/nowhere/guard.py"}
    (relay.home / "config" / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [guard]}}))
    dead = relay.home / "run" / "sessions" / "default" / "bob.sock"
    dead.parent.mkdir(parents=True)
    dead.touch()
    found = rows(relay, code=1)
    assert found["credentials"] == ("FAIL", f"{secret} is open to others (644). chmod 600 {secret}")
    assert found["directory state"] == ("FAIL", f"{state} is open to others (755). chmod 700 {state}")
    assert found["ledger"][0] == "FAIL"
    assert found["settings"][0] == "warn"
    assert "idle_seconds" in found["settings"][1]
    assert found["rules"][0] == "warn"
    assert "its command cannot start: there is no file /nowhere/guard.py." in found["rules"][1]
    assert found["sessions"] == ("warn", "1 socket left by ended sessions. `relay ps` removes them.")
    done = relay("doctor", check=False)
    assert done.returncode == 1
    assert "3 of " in done.stdout


@pytest.mark.parametrize(
    ("version", "result", "message"),
    [(2, "ok", "is moved aside when relay first uses it"), (99, "FAIL", "Upgrade relay, or move it away.")],
)
def test_a_ledger_of_another_version_is_checked_but_not_changed(
    relay: Relay, version: int, result: str, message: str
) -> None:
    ledger = relay.home / "state" / "ledger.db"
    ledger.parent.mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(ledger)) as db:
        db.execute("CREATE TABLE outbox (id TEXT)")
        db.execute(f"PRAGMA user_version = {version}")
    before = ledger.read_bytes()
    found = rows(relay, code=0 if result == "ok" else 1)["ledger"]
    assert found[0] == result and message in found[1]
    assert ledger.read_bytes() == before


def test_a_damaged_ledger_is_reported(relay: Relay) -> None:
    relay("send", "--from", "Alice", "you", "x" * 20000)
    ledger = relay.home / "state" / "ledger.db"
    with sqlite3.connect(ledger) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    content = bytearray(ledger.read_bytes())
    for page in range(2, len(content) // size):
        content[page * size : page * size + 8] = b"\xff" * 8
    ledger.write_bytes(content)
    assert rows(relay, code=1)["ledger"][0] == "FAIL"


def test_a_home_path_that_is_too_long_is_reported(relay: Relay, tmp_path: Path) -> None:
    long = tmp_path / ("d" * 80)
    done = relay("doctor", "--json", env={"RELAY_HOME": str(long)}, check=False)
    assert done.returncode == 1
    found = {row["name"]: row["result"] for row in json.loads(done.stdout)}
    assert found["socket path"] == "FAIL"


def test_every_claim_holds_on_the_embedded_broker(relay: Relay) -> None:
    found = rows(relay, "--broker")
    assert {result for result, _ in found.values()} == {"holds"}, found
    assert len(found) == len(CLAIMS)
    assert not list((relay.home / "state" / "broker" / "credentials").iterdir()), (
        "temporary credentials are removed"
    )


def test_the_embedded_broker_can_be_checked_with_existing_credentials(relay: Relay) -> None:
    relay("broker", "start")
    relay("broker", "acl", "mosquitto", "Alice", "Bob")  # creates credentials that the broker does not know
    found = rows(relay, "--broker", "--as", "Alice", "--as", "Bob")
    assert found.pop("nobody sees another team or writes to it")[0] == "cannot be proved"
    assert {result for result, _ in found.values()} == {"holds"}, found
    twice = relay("doctor", "--broker", "--as", "Alice", "--as", "alice", check=False)
    assert twice.returncode == 2
    assert "named twice" in twice.stderr


def test_every_claim_holds_on_a_mosquitto_configured_by_relay(relay: Relay, tmp_path: Path) -> None:
    relay("broker", "acl", "mosquitto", "-o", tmp_path, "--team", "web", "Carol")
    relay("broker", "acl", "mosquitto", "-o", tmp_path, "Alice", "Bob.B")
    acl, passwords = ((tmp_path / file).read_text() for file in ("acl", "passwords"))
    agents = ("--as", "Alice", "--as", "default/bob.b", "--as", "web/Carol")
    with GuardedMosquitto(tmp_path / "guarded", acl, passwords) as mosquitto:
        found = rows(relay, "--broker", mosquitto.url, *agents)
        assert {result for result, _ in found.values()} == {"holds"}, found
    with GuardedMosquitto(tmp_path / "open", None, passwords) as mosquitto:
        done = relay("doctor", "--broker", mosquitto.url, *agents, check=False)
        assert done.returncode == 1
        assert "does NOT hold  nobody reads another's inbox: " in done.stdout
        assert "holds          nobody gets in without credentials: " in done.stdout
        secrets = [path.read_text() for path in (relay.home / "state/broker/credentials").iterdir()]
        assert not any(json.loads(secret)["password"] in done.stdout for secret in secrets)


def test_an_unreachable_broker_is_reported(relay: Relay) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"mqtt://team:hidden@127.0.0.1:{probe.getsockname()[1]}"
        done = relay("doctor", "--broker", url, check=False)
    assert done.returncode == 1
    assert "it can be reached: no connection to the broker at mqtt://127.0.0.1" in done.stdout
    assert "hidden" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--as", "Alice"), 2, "--as needs --broker"),
        (("--broker", "mqtt://127.0.0.1:1"), 2, "--as Alice --as Bob"),
        (("--broker", "mqtt://127.0.0.1:1", "--as", "Alice", "--as", "Bob"), 1, "no credentials of 'Alice'"),
        (("--broker", "mqtt://127.0.0.1:1", "--as", "a/b/c", "--as", "Bob"), 2, "is not a valid team"),
        (("--broker", "localhost"), 1, "is not a broker URL"),
    ],
)
def test_an_invalid_command_line_is_rejected(
    relay: Relay, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = relay("doctor", *arguments, check=False)
    assert done.returncode == code
    assert message in done.stderr
