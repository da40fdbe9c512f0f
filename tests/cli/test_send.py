"""`relay send`, `retry` and `drop`, with real sessions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgers import post
from relay.cli import obstacle, send
from relay.cli.main import dispatch
from relay.control.claiming import claim
from relay.home import Home
from relay.message import State
from relay.messaging.ledger import Ledger
from relay.state.reasons import BUSY
from support import Relay, wait_until


def rows(relay: Relay, *arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(relay("messages", "--json", *arguments).stdout))


@pytest.fixture(scope="module")
def bob(shared: Relay) -> Relay:
    """Return a home in which Bob, a program that prints what it reads, runs detached."""
    shared("wrap", "-d", "-n", "Bob", "cat")
    return shared


@pytest.fixture
def absent(relay: Relay, home: Path) -> Relay:
    """Return a home in which Bob is known but no agent is running."""
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ensure().ledger) as ledger:
        ledger.registry.register("default", "Bob", here=True)
    return relay


def test_a_message_is_delivered(bob: Relay) -> None:
    done = bob("send", "--wait", "20", "bob", "hello", "there")
    assert done.stdout.count("was delivered to Bob.") == 1
    (row,) = [row for row in rows(bob) if row["body"] == "hello there"]
    assert {key: row[key] for key in ("from", "to", "body", "state", "thread")} == {
        "from": "you",
        "to": "Bob",
        "body": "hello there",
        "state": "injected",
        "thread": None,
    }


def test_send_reports_a_delivery_as_such(bob: Relay) -> None:
    """C9: relay's own typing made Bob *working*, and half of such messages were reported as waiting."""
    for number in range(6):
        output = bob("send", "Bob", f"again {number}").stdout
        assert "was delivered to Bob." in output, number


def test_a_message_is_read_from_standard_input(bob: Relay) -> None:
    done = bob("send", "--json", "--from", "ci", "--thread", "build-7", "Bob", "-", input="line 1\nline 2\n")
    (sent,) = json.loads(done.stdout)
    assert (sent["from"], sent["body"], sent["thread"]) == ("ci", "line 1\nline 2", "build-7")


def test_send_waits_for_the_session_of_an_agent_that_was_just_started(
    relay: Relay, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in relay.environment.items():
        monkeypatch.setenv(name, value)
    shim = claim(Home.from_env().ensure(), "default", "Bob")

    def sleep(_: float) -> None:
        with Ledger(Home.from_env().ledger) as ledger:
            ledger.registry.register("default", "Bob", here=True)  # what its session does first

    monkeypatch.setattr(send, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    assert dispatch(["send", "bob", "hello"]) == 0
    assert [(row["to"], row["body"]) for row in rows(relay)] == [("Bob", "hello")]
    shim.release()


def test_a_message_waits_for_an_agent_that_is_not_running(absent: Relay) -> None:
    done = absent("send", "Bob", "later")
    assert "has arrived, and waits: Bob is not running here." in done.stdout
    assert rows(absent)[0]["state"] == "stored"


def test_without_a_session_a_message_to_another_host_is_queued(absent: Relay, home: Path) -> None:
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ledger) as ledger:
        ledger.registry.register("default", "Far", here=False)
    done = absent("send", "Far", "later")
    assert "is queued; no session of this team is running here, so it is sent when one starts." in done.stdout
    assert [row["state"] for row in rows(absent)] == ["queued"]


def test_a_wait_that_times_out_fails_and_reports_the_state(absent: Relay) -> None:
    done = absent("send", "--wait", "0.1", "Bob", "later", check=False)
    assert done.returncode == 1
    assert "has arrived, and waits: Bob is not running here" in done.stdout


def test_the_json_output_has_the_team(absent: Relay) -> None:
    (row,) = json.loads(absent("send", "--json", "Bob", "hello").stdout)
    assert row.pop("obstacle") == "Bob is not running here"
    assert row == rows(absent)[0] and row["team"] == "default"


def test_a_wait_for_several_agents_names_those_not_reached(
    bob: Relay, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in bob.environment.items():
        monkeypatch.setenv(name, value)
    with Ledger(Home.from_env().ledger) as ledger:
        ledger.registry.register("default", "Carol")
        for name in ("Bob", "Carol"):
            ledger.channels.join("default", "both", name)

        now = 0.0

        def clock() -> float:
            """Stand still until Bob has the message, then jump ahead."""
            nonlocal now
            to_bob = [each.message for each in ledger.messages(to="Bob") if each.message.body == "to both"]
            now += 9.0 if to_bob and to_bob[0].state is State.INJECTED else 0.0
            return now

        monkeypatch.setattr(send, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
        assert dispatch(["send", "--wait", "5", "#both", "to both"]) == 1
    done = capsys.readouterr()
    assert "Not there after 5 s: Carol. " in done.err
    lines = done.out.splitlines()
    assert "waits: Carol is not running here" in lines[-1]
    assert any("was delivered to Bob." in line for line in lines)


def test_send_says_where_the_user_reads_a_message(bob: Relay) -> None:
    output = bob("send", "--from", "ci", "you", "hi").stdout
    assert "is in the user's inbox: `relay inbox`." in output


def test_released_and_dropped_messages_are_in_the_journal(absent: Relay, home: Path) -> None:
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ledger) as ledger:
        ids = [
            message.id
            for _ in range(3)
            for message in post(ledger, "default", "Alice", "Bob", "hi", depth=51)
        ]
    refused = absent("release", "--all", ids[0], check=False)
    assert "not both" in refused.stderr
    absent("release", ids[0])
    absent("drop", ids[1])
    absent("drop", ids[1])  # no longer listed; nothing is dropped
    events = [json.loads(line) for line in absent("events", "--json", "you").stdout.splitlines()]
    assert [(each["event"], each["id"]) for each in events] == [("released", ids[0]), ("dropped", ids[1])]


def test_a_queued_message_is_delivered_when_a_session_starts(absent: Relay) -> None:
    absent("send", "Bob", "while nobody was here")
    absent("wrap", "-d", "-n", "Bob", "cat")
    wait_until(lambda: rows(absent)[0]["state"] == "injected")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Bbo", "hi"), "Did you mean Bob?"),
        (("Bob", ""), "the message is empty"),
        (("Bob", "x" * 70_000), "70000 bytes; the limit is 65536"),
        (("--from", "a b", "Bob", "hi"), "is not a valid name"),
        (("--team", "x/y", "Bob", "hi"), "is not a valid team"),
        (("#general", "hi"), "nobody"),
    ],
)
def test_a_message_that_cannot_be_sent_is_reported_without_a_traceback(
    absent: Relay, arguments: tuple[str, ...], message: str
) -> None:
    done = absent("send", *arguments, check=False)
    assert done.returncode == (2 if "not a valid" in message else 1)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert rows(absent) == []


def test_inside_an_agent_the_session_sends_as_the_agent(bob: Relay, tmp_path: Path) -> None:
    """RELAY_SOCKET identifies the session; --from is for users."""
    script = tmp_path / "agent.sh"
    script.write_text(
        f"{' '.join(bob.command)} send --from Mallory Bob forged 2> {tmp_path}/refused\n"
        f"{' '.join(bob.command)} send Bob from the agent > {tmp_path}/sent\n"
        "exec cat\n"
    )
    bob("wrap", "-d", "-n", "Alice", "sh", str(script))
    wait_until(lambda: any(row["state"] == "injected" for row in rows(bob, "--from", "Alice")))
    (row,) = rows(bob, "--from", "Alice")
    assert (row["to"], row["body"]) == ("Bob", "from the agent")
    assert "an agent can send only as itself" in (tmp_path / "refused").read_text()


def test_an_uncertain_message_is_retried_or_dropped(absent: Relay, home: Path) -> None:
    absent("send", "Bob", "text")
    id = rows(absent)[0]["id"]
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ledger) as ledger:
        ledger.inbox.settle("default", "Bob", id, State.UNCERTAIN)
    done = absent("retry", id[:6])
    assert "was sent again to Bob as" in done.stdout
    assert [row["state"] for row in rows(absent)] == ["uncertain", "stored"]
    done = absent("drop", id)
    assert "is no longer listed" in done.stdout
    (row,) = rows(absent)
    assert "is given up" in absent("drop", row["id"]).stdout
    assert rows(absent)[0]["state"] == "rejected"


def test_a_delivered_message_and_one_to_its_sender_are_not_retried(absent: Relay, home: Path) -> None:
    absent("send", "--from", "Alice", "Bob", "given")
    absent("send", "--from", "Alice", "Bob", "waiting")
    given, waiting = (row["id"] for row in rows(absent))
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ledger) as ledger:
        ledger.inbox.settle("default", "Bob", given, State.INJECTED)
    for arguments in ((given,), (given, "--to", "Bob")):
        done = absent("retry", *arguments, check=False)
        assert (done.returncode, "was already delivered to Bob" in done.stderr) == (1, True)
    done = absent("retry", waiting, "--to", "alice", check=False)
    assert (done.returncode, "'alice' is the sender." in done.stderr) == (1, True)
    assert [row["id"] for row in rows(absent)] == [given, waiting]


def test_an_agent_may_not_retry_or_drop_for_others(absent: Relay) -> None:
    absent("send", "Bob", "text")
    id = rows(absent)[0]["id"]
    for command in ("retry", "drop"):
        done = absent(command, id, env={"RELAY_SOCKET": "/nowhere", "RELAY_NAME": "Mallory"}, check=False)
        assert done.returncode == 1
        assert "another agent's message. The user can." in done.stderr


def test_an_unknown_id_is_reported(absent: Relay) -> None:
    done = absent("retry", "zzz", check=False)
    assert done.returncode == 1
    assert "no message has an id that begins with 'zzz'. `relay messages` lists them." in done.stderr


@pytest.mark.parametrize(
    ("answer", "clause"),
    [
        ({"state": "prompting", "prompt": "permission"}, "Bob is at a permission prompt"),
        ({"state": "prompting", "prompt": "plan_approval"}, "Bob asks for approval of its plan"),
        ({"state": "prompting", "prompt": "question"}, "Bob asks a question"),
        ({"state": "prompting", "prompt": "other", "reason": "a password"}, "Bob has a question: a password"),
        ({"state": "unsafe", "reason": "a shell"}, "relay types nothing into Bob: a shell"),
        (
            {"state": "ready", "obstacle": "you have a half-typed line in it"},
            "Bob is ready, but you have a half-typed line in it",
        ),
        ({"state": "working", "obstacle": "it computes"}, "Bob is working"),
        (
            {"state": "working", "obstacle": "there is unsent text in its input: '> x'", "waiting": 1},
            "there is unsent text in the input of Bob",
        ),
        ({"state": "working", "obstacle": None, "waiting": 1}, None),  # relay's own typing
        ({"state": "working", "obstacle": BUSY, "waiting": 2}, "Bob is given another text first"),
        (
            {"state": "working", "obstacle": "you typed within the last 1 s"},
            "Bob is working, and you typed within the last 1 s",
        ),
        ({"state": "failed", "reason": "no credit"}, "Bob has failed: no credit"),
        ({"state": "stopped"}, "Bob is stopped"),
        ({"state": "backoff", "reason": "it exited with 3"}, "Bob is about to restart: it exited with 3"),
        ({"state": "ready", "bus": "no connection."}, "Bob is not on the bus: no connection"),
        ({"state": "ready", "bus": "connected to mqtt://127.0.0.1:1"}, None),
    ],
)
def test_the_obstacle_to_delivery_is_reported_in_one_clause(
    bob: Relay, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], clause: str | None
) -> None:
    """U13."""
    monkeypatch.setattr(obstacle, "call", lambda *_: answer)
    found = obstacle.obstacle(Home.from_env(bob.environment), "default", "bob")
    assert (found and found.clause) == clause
