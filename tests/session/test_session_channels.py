"""Channels between real sessions: who receives a message to `#name`, even after an absence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from relay.control.sessions import call, socket_of
from relay.errors import InvalidName, UsageError
from relay.home import Home
from session.fake_agent import FakeAgent, messages, project, settings
from support import Relay, wait_until

pytestmark = pytest.mark.own_team


def members(relay: Relay, *arguments: str) -> dict[str, list[str]]:
    listed = json.loads(relay("channels", "--json", *arguments).stdout)
    return {each["channel"]: each["members"] for each in listed}


def test_members_of_a_channel_receive_its_messages_except_their_own(relay: Relay) -> None:
    alice, bob, carol = (FakeAgent(relay, name).wrap() for name in ("Alice", "Bob", "Carol"))
    for name in ("Alice", "bob"):
        assert relay("join", "-n", name, "ops").stdout.endswith(" is in #ops now.\n")
    assert relay("join", "-n", "Bob", "#OPS").stdout == "Bob is in #ops already.\n"
    assert members(relay) == {"ops": ["Alice", "Bob"]}
    alice.say("@relay:#ops The release is out")
    bob.receives("[/relay")
    bob.receives_exactly(("Alice in #ops", "The release is out"))
    done = relay("send", "--wait", "20", "--json", "#Ops", "Well done")
    rows = json.loads(done.stdout)
    assert [(row["to"], row["channel"], row["state"]) for row in rows] == [
        ("Alice", "ops", "injected"),
        ("Bob", "ops", "injected"),
    ]
    alice.receives_exactly(("the user in #ops", "Well done"))
    relay("leave", "-n", "Bob", "ops")
    carol.say("@relay:#ops Bob is gone")
    alice.receives("Bob is gone")
    assert [m["to"] for m in messages(relay) if m["body"] == "Bob is gone"] == ["Alice"]
    assert carol.received == ""


@pytest.mark.own_home
def test_a_message_to_an_unknown_or_empty_channel_is_answered_with_the_reason(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    relay("join", "-n", "Bob", "weather")
    alice.say("@relay:#wether It rains")
    alice.receives("nobody in team 'default' is in #wether. Did you mean #weather?")
    relay("join", "-n", "Alice", "own")
    alice.say("@relay:#own Anybody?")
    alice.receives("nobody else is in #own.")
    assert messages(relay) == []


def test_a_member_that_was_away_receives_what_it_missed(relay: Relay) -> None:
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    relay("join", "-n", "Bob", "ops")
    relay("stop", "Bob")
    alice.say("@relay:#ops first\n@relay:#ops second")
    relay("join", "-n", "Bob", "dev")  # while it is away
    wait_until(lambda: len(messages(relay)) == 2)
    relay("send", "#dev", "third")
    (bob.folder / "strings").unlink()
    bob.wrap()
    wait_until(lambda: len(bob.texts()) == 3, message=lambda: f"{bob.texts()}\n{bob.log()}")
    assert [text for who, text in bob.texts() if who == "Alice in #ops"] == ["first", "second"]
    wait_until(lambda: ("the user in #dev", "third") in bob.texts())
    wait_until(lambda: {row["state"] for row in messages(relay)} == {"injected"})


def test_an_agents_shell_joins_for_that_agent_only(relay: Relay, tmp_path: Path) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    python = f"{sys.executable} -m relay"
    script = tmp_path / "agent.sh"
    script.write_text(
        f"{python} join ops > {tmp_path}/joined\n"
        f"{python} join -n Alice ops 2> {tmp_path}/refused\n"
        f"touch {tmp_path}/done\nexec cat\n"
    )
    relay("wrap", "-d", "-n", "Bob", "sh", script)
    wait_until((tmp_path / "done").exists)
    assert (tmp_path / "joined").read_text() == "Bob is in #ops now.\n"
    assert "an agent can only join and leave channels itself" in (tmp_path / "refused").read_text()
    assert members(relay) == {"ops": ["Bob"]}
    alice.say("@relay:#ops hello")
    wait_until(lambda: [row["state"] for row in messages(relay, "--to", "Bob")] == ["injected"])


CONFIG = """
from relay import RelayConfig, pattern

config = RelayConfig(channels=["dev"])

@pattern("tell")
def tell(target, message, ctx):
    ctx.notify(target, message)
"""


def test_configured_channels_are_joined_and_a_handler_can_notify_them(relay: Relay) -> None:
    settings(relay, 'channels = ["#Ops"]\n')
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, CONFIG))
    bob = FakeAgent(relay, "Bob").wrap()
    wait_until(lambda: members(relay) == {"dev": ["Alice"], "Ops": ["Alice", "Bob"]})
    alice.say("@tell:ops from a handler")
    bob.receives("[/relay")
    bob.receives_exactly(("Alice in #Ops", "from a handler"))
    alice.say("@tell:nowhere lost")
    alice.notice(f"nobody in team '{relay.team}' is in #nowhere")


def test_a_user_in_a_channel_sees_its_messages(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    relay("join", "ops")
    alice.say("@relay:#ops the tests pass")
    alice.notice("Alice in #ops: the tests pass")
    wait_until(lambda: [row["state"] for row in messages(relay)] == ["stored"])
    (row,) = messages(relay)
    assert (row["to"], row["channel"]) == ("you", "ops")


def test_a_request_without_a_channel_is_refused(relay: Relay, subtests: pytest.Subtests) -> None:
    FakeAgent(relay, "Alice").wrap()
    socket = socket_of(Home.from_env({"RELAY_HOME": str(relay.home)}), f"{relay.team}", "Alice")
    for operation in ("join", "leave"):
        with subtests.test(operation):
            with pytest.raises(UsageError):
                call(socket, {"op": operation})
            with pytest.raises(InvalidName):
                call(socket, {"op": operation, "channel": "a b"})
    assert members(relay) == {}
