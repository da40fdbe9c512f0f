"""`relay messages`: the messages that were sent, and their states."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledgers import send
from relay.cli import messages
from relay.cli.main import dispatch
from relay.home import Home
from relay.message import Message
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import message_of
from relay.storage.journal import Journal
from support import Relay


@pytest.fixture
def ledger(home: Path) -> Ledger:
    found = Ledger(Home.from_env({"RELAY_HOME": str(home)}).ensure().ledger)
    send(found, "default", "Alice", ["Bob"], "first")
    send(found, "default", "Bob", ["Alice"], "second \x1b[31mred\x1b[0m \u202egnihtemos", "thread")
    send(found, "other", "Carol", ["Dan"], "third")
    return found


def bodies(relay: Relay, *arguments: str, env: dict[str, str] | None = None) -> list[str]:
    shown = relay("messages", "--json", *arguments, env=env).stdout
    return [row["body"][:6].strip() for row in json.loads(shown)]


def test_the_json_shape_is_stable(relay: Relay, ledger: Ledger) -> None:
    with ledger:
        row = json.loads(relay("messages", "--json", "--from", "bob").stdout)[0]
    assert {"id", "from", "to", "body", "state", "time", "thread"} <= row.keys()
    assert isinstance(row["time"], float)
    assert (row["from"], row["to"], row["state"], row["thread"]) == ("Bob", "Alice", "queued", "thread")
    assert row["body"].startswith("second \x1b[31mred"), "JSON has the text as it was sent"


def test_messages_are_filtered(relay: Relay, ledger: Ledger) -> None:
    with ledger:
        assert bodies(relay) == ["first", "second", "third"]
        assert bodies(relay, "--to", "BOB") == ["first"]
        assert bodies(relay, "--from", "bob") == ["second"]
        assert bodies(relay, "--team", "other") == ["third"]
        assert bodies(relay, "--limit", "1") == ["third"]


def test_an_agent_sees_only_its_own_messages(relay: Relay, ledger: Ledger) -> None:
    inside = {"RELAY_SOCKET": "/nowhere", "RELAY_NAME": "Dan", "RELAY_TEAM": "other"}
    with ledger:
        assert bodies(relay, env=inside) == ["third"]
        assert (
            "only its own messages" in relay("messages", "--team", "default", env=inside, check=False).stderr
        )


def test_control_characters_in_a_body_do_not_reach_the_terminal(relay: Relay, ledger: Ledger) -> None:
    with ledger:
        shown = relay("messages").stdout
    assert "first" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_control_characters_in_an_id_do_not_reach_the_terminal(relay: Relay, ledger: Ledger) -> None:
    with ledger:
        ledger.registry.register("default", "Bob")
        (kept,) = send(ledger, "default", "Alice", ["Bob"], "from afar")
        with sqlite3.connect(Home.from_env({"RELAY_HOME": str(relay.home)}).ledger) as other:
            other.execute("UPDATE messages SET id = '\x1b[2Jx\n' || id WHERE id = ?", (kept.id,))
        other.close()
    shown = relay("messages").stdout
    assert "␛[2Jx" in shown and "\x1b" not in shown


def test_json_output_escapes_control_and_bidi_characters(relay: Relay, ledger: Ledger) -> None:
    """Besides C0, which JSON itself escapes, there are DEL, C1 (CSI as one character) and bidi controls."""
    nasty = "\x7f \x9b31m \u202e \u2066"
    with ledger:
        ledger.registry.register("default", "Bob")
        send(ledger, "default", "Alice", ["Bob"], nasty)
        shown = relay("messages", "--json")
        Journal(relay.home / "state" / "events.jsonl", "session", "Alice").write("notice", text=nasty)
    sent = relay("send", "--json", "Bob", nasty)
    assert json.loads(shown.stdout)[-1]["body"] == json.loads(sent.stdout)[0]["body"] == nasty
    relay("memory", "save", nasty)
    for done in (shown, sent, relay("events", "--json"), relay("memory", "list", "--json")):
        assert done.stdout.isascii() and "\x7f" not in done.stdout


def test_messages_are_chosen_by_an_agents_name_or_an_id(relay: Relay, ledger: Ledger) -> None:
    """C19: by the name alone, as with `relay logs`, `relay events` and `relay hooks list`."""
    with ledger:
        (third,) = json.loads(relay("messages", "--json", "--from", "carol").stdout)
        assert bodies(relay, "bob") == ["first", "second"]
        assert bodies(relay, "bob", "--from", "Bob") == ["second"]
        assert bodies(relay, third["id"][:8]) == ["third"]
        assert bodies(relay, "dan", "alice") == ["first", "second", "third"]
        assert bodies(relay, "you") == []
        error = relay("messages", "Eve", check=False)
        assert error.returncode == 1 and "begins with 'Eve'" in error.stderr


def test_a_list_reads_no_more_messages_than_it_shows(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many there are."""
    monkeypatch.setenv("RELAY_HOME", str(home))
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ensure().ledger) as ledger:
        for number in range(60):
            send(ledger, "default", "Alice", ["Bob"], f"body {number}")
    read: list[Message] = []

    def reads(row: list[object]) -> Message:
        read.append(message_of(row))
        return read[-1]

    monkeypatch.setattr("relay.messaging.ledger.message_of", reads)
    for arguments, most in (([], 51), (["-n", "3"], 4), (["--to", "Bob", "-n", "3"], 4), (["--all"], 60)):
        read.clear()
        assert dispatch(["messages", *arguments]) == 0
        assert len(read) == most, "one more shows that there are earlier ones"
        capsys.readouterr()


def test_only_the_latest_messages_are_shown_by_default(relay: Relay, home: Path) -> None:
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ensure().ledger) as ledger:
        for number in range(1, 61):
            send(ledger, "default", "Alice", ["Bob"], f"body {number}")
    done = relay("messages")
    assert len(done.stdout.splitlines()) == 50
    assert done.stdout.splitlines()[-1].endswith("body 60")
    assert done.stderr == "(Earlier messages omitted; --all shows all.)\n"
    for wrong in ("0", "-3"):
        assert relay("messages", f"--limit={wrong}", check=False).returncode == 2
    assert relay("messages", "-n", "1").stdout.endswith("body 60\n")
    all_ = relay("messages", "--all")
    assert (len(all_.stdout.splitlines()), all_.stderr) == (60, "")
    assert len(bodies(relay)) == 60
    assert "not allowed with" in relay("messages", "--all", "-n", "1", check=False).stderr


def test_an_empty_list_is_reported(relay: Relay) -> None:
    done = relay("messages")
    assert (done.returncode, done.stdout) == (0, "")
    assert "There are no messages." in done.stderr
    assert json.loads(relay("messages", "--json").stdout) == []


def test_a_filter_without_a_match_and_an_invalid_state_are_reported(relay: Relay, ledger: Ledger) -> None:
    for option in (("--to", "Nobody"), ("--state", "held"), ("--team", "red")):
        assert "No message matches." in relay("messages", *option).stderr
    error = relay("messages", "--state", "foo", check=False).stderr
    assert "'held'" in error and "State" not in error


def test_follow_shows_new_messages_and_changed_states(relay: Relay, ledger: Ledger) -> None:
    with (
        ledger,
        subprocess.Popen(
            [*relay.command, "messages", "-f", "--json", "--limit", "1"],
            env=relay.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as follower,
    ):
        assert follower.stdout is not None

        def following() -> tuple[str, str]:
            assert follower.stdout is not None
            row = json.loads(follower.stdout.readline())
            return row["body"], row["state"]

        try:
            assert following() == ("third", "queued")
            (sent,) = send(ledger, "default", "Alice", ["Bob"], "new")
            assert following() == ("new", "queued")
            ledger.transit.sent([sent.id])
            assert following() == ("new", "sent")
        finally:
            follower.kill()


def test_follow_shows_what_becomes_of_a_message_that_has_waited_long(
    ledger: Ledger, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RELAY_HOME", str(home))
    monkeypatch.setattr(messages, "_FOLLOWED", 1)
    with ledger:
        first, *_ = (entry.message for entry in ledger.messages())
        waiting = [first.id]

        def sleep(_: float) -> None:
            if not waiting:
                raise KeyboardInterrupt
            ledger.drop(waiting.pop())

        monkeypatch.setattr(messages, "time", SimpleNamespace(sleep=sleep))
        assert dispatch(["messages", "-f", "--json"]) == 130
    *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (last["body"], last["state"]) == ("first", "expired")


def test_a_file_that_is_not_a_ledger_is_reported(relay: Relay, home: Path) -> None:
    path = Home.from_env({"RELAY_HOME": str(home)}).ensure().ledger
    path.write_text("this is not a database, whatever its name says " * 100)
    done = relay("messages", check=False)
    assert done.returncode == 1
    assert "it is not a ledger. Move it away" in done.stderr
