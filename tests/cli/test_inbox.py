"""`relay inbox` shows what waits for the user, and knows which messages they have read."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ledgers import send
from relay.home import Home
from relay.message import State
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from session.fake_agent import messages, ps, settings
from support import Relay, wait_until

pytestmark = pytest.mark.own_team

ASKS = """
printf '@relay:you Shall I deploy?\\n'
printf 'The password is hunter2.\\nOverwrite README.md? [y/N] '
read answer
"""


def inbox(relay: Relay, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(relay("inbox", *words, "--json").stdout))


def kinds(relay: Relay) -> list[str]:
    return [item["kind"] for item in inbox(relay)]


@pytest.fixture
def asking(relay: Relay) -> Relay:
    """Return a home whose agent Bob has written to the user, and asks a question."""
    relay("wrap", "-d", "-n", "Bob", "--", "sh", "-c", ASKS)
    wait_until(lambda: {"question", "message"} <= set(kinds(relay)))
    return relay


def test_questions_and_messages_wait_with_the_command_that_deals_with_them(asking: Relay) -> None:
    """C8, C17."""
    question, message = inbox(asking)
    assert question["name"] == message["name"] == "Bob"
    assert question["text"] == "Overwrite README.md? [y/N]"  # and nothing from above it
    assert question["next"] == "relay answer Bob"
    assert message["text"] == "Shall I deploy?"
    assert message["next"] == f"relay inbox show {message['id'][:8]}"
    assert ps(asking)[0]["question"] == question["text"]
    listed = asking("inbox").stdout.splitlines()
    assert listed[0].split() == ["ID", "WHAT", "FROM", "SINCE", "NEXT", "TEXT"] and len(listed) == 3


def test_a_message_is_read_once_it_was_shown(asking: Relay) -> None:
    """C8: until then, `ps` and `next` count it. A question ends with its agent."""
    id = inbox(asking)[1]["id"]
    assert asking("ps").stderr.strip() == "2 unread items in your inbox: `relay inbox`"
    asking("stop", "Bob")
    unread = "1 unread item in your inbox: `relay inbox`"
    assert asking("ps").stderr.strip() == unread
    assert unread in asking("next", check=False).stderr
    shown = asking("inbox", "show", id[:8]).stdout
    assert shown.splitlines()[0].startswith("Bob says to you, ") and shown.endswith("\n\nShall I deploy?\n")
    assert [message["state"] for message in messages(asking)] == [State.READ]
    assert "message" not in kinds(asking)
    assert asking("ps").stderr == "" and "unread" not in asking("next", check=False).stderr
    assert "is read" in asking("explain", id).stdout


def test_a_question_is_read_but_waits_until_it_is_answered(asking: Relay) -> None:
    """As the agent drew it; once it is read, nothing counts it."""
    question = inbox(asking)[0]
    shown = asking("inbox", "show", question["id"]).stdout
    assert shown.startswith("Bob has a question, ") and shown.endswith(
        f"{question['text']}\n\nrelay answer Bob\n"
    )
    assert inbox(asking)[0] == question | {"read": True}
    assert asking("ps").stderr.strip() == "1 unread item in your inbox: `relay inbox`"
    asking("answer", "Bob", "y")
    wait_until(lambda: "question" not in kinds(asking))


def test_items_can_be_marked_as_done(relay: Relay) -> None:
    for text in ("one", "two", "three"):
        relay("send", "--from", "ci", "you", text)
    first, *_ = inbox(relay)
    assert relay("inbox", "done", first["id"]).stdout == "1 item done.\n"
    assert "nothing in the inbox has an id" in relay("inbox", "done", first["id"], check=False).stderr
    assert relay("inbox", "done", check=False).returncode == 2
    assert relay("inbox", "done", "--all").stdout == "2 items done.\n"
    assert relay("inbox").stdout == "Nothing waits for you.\n"


@pytest.mark.own_home
def test_follow_prints_a_line_for_what_comes_and_for_what_is_done(relay: Relay) -> None:
    """For a screen reader: nothing is drawn again."""
    relay("send", "--from", "ci", "you", "one")
    command = [*relay.command, "inbox", "--follow"]
    following = subprocess.Popen(command, env=relay.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert following.stdout is not None
        assert (
            following.stdout.readline().split(" ", 1)[1].startswith("ci says to you: one. `relay inbox show ")
        )
        relay("inbox", "done", "--all")
        assert following.stdout.readline().split(" ", 1)[1] == "done: ci says to you\n"
    finally:
        following.send_signal(signal.SIGINT)
        following.communicate()


def test_the_test_of_the_sinks_fails_if_one_of_them_does(relay: Relay) -> None:
    settings(relay, '[inbox]\ndesktop = false\ncommand = ["tee", "got"]\n')
    assert relay("inbox", "test", cwd=relay.home).stdout == "command: sent\n"
    assert "A test of your inbox." in (relay.home / "got").read_text()
    settings(relay, '[inbox]\ndesktop = false\ncommand = ["false"]\n')
    failed = relay("inbox", "test", check=False)
    assert (failed.returncode, failed.stdout) == (1, "command: exit code 1\n")
    settings(relay, "[inbox]\ndesktop = false\n")
    assert "no sink is set up" in relay("inbox", "test", check=False).stderr


@pytest.mark.own_home
def test_only_messages_to_the_user_can_be_read(relay: Relay) -> None:
    relay("wrap", "-n", "Bob", "true")
    relay("send", "--from", "ci", "Bob", "one\n  two")
    (message,) = messages(relay)
    assert relay("inbox", "show", message["id"]).stdout.endswith("\n\none\n  two\n")
    assert messages(relay)[0]["state"] == message["state"] == State.STORED


@pytest.mark.own_home
def test_a_mistake_in_the_configuration_waits_until_it_is_mended(relay: Relay, home: Path) -> None:
    """B6: a full-screen program may have drawn over it; it concerns both agents, and stands there once."""
    (home / "relay.toml").write_text("idle_seconds = \n")
    for name in ("Ann", "Bob"):
        relay("wrap", "-d", "-n", name, "cat", cwd=home)
    wait_until(lambda: [item["name"] for item in inbox(relay)] == ["Ann, Bob"])
    (mistake,) = inbox(relay)
    assert (mistake["kind"], mistake["next"]) == ("configuration", "relay explain Ann")
    assert "relay.toml:1: " in mistake["text"]
    assert "Configuration: " in relay("explain", "Ann").stdout
    (home / "relay.toml").write_text("idle_seconds = 5\n")
    relay("reload", "Ann", "Bob")
    wait_until(lambda: inbox(relay) == [])


@pytest.mark.own_home
def test_held_messages_wait_although_their_sender_has_ended(relay: Relay, home: Path) -> None:
    """In two teams, so that each command names its own."""
    with Ledger(Home.from_env(relay.environment).ensure().ledger) as ledger:
        for team in ("one", "two"):
            for _ in range(2):
                send(ledger, team, "Bob", ["Ann"], "hi", depth=9, limits=Limits(depth=8))
    found = [(item["kind"], item["text"], item["next"]) for item in inbox(relay)]
    assert found == [
        ("runaway", "2 messages held", f"relay release --from Bob -t {team}") for team in ("one", "two")
    ]
    assert relay("release", "--from", "Bob", "-t", "one").returncode == 0
    assert [(item["team"], item["next"]) for item in inbox(relay)] == [("two", "relay release --from Bob")]


def test_an_agents_question_and_notices_are_not_for_other_agents(asking: Relay) -> None:
    for command in ("ps", "explain Bob"):
        seen = asking("wrap", "--", *asking.command, *command.split(), "--json").stdout
        assert "Bob" in seen or "generic" in seen
        assert "README" not in seen and "Shall I deploy" not in seen
    assert "unread" not in asking("wrap", "--", *asking.command, "ps").stderr


def test_a_failed_agent_waits(relay: Relay) -> None:
    relay("wrap", "-n", "Bob", "sh", "-c", "exit 3", check=False)
    wait_until(lambda: not ps(relay))
    (failed,) = inbox(relay)
    assert (failed["kind"], failed["name"], failed["next"]) == ("failed", "Bob", "relay logs Bob")


def test_the_inbox_is_the_users(relay: Relay) -> None:
    inside = relay("wrap", "--", *relay.command, "inbox", check=False)
    assert inside.returncode == 1
    assert "the inbox is the user's" in inside.stderr
