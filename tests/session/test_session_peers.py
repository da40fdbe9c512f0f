"""A small Claude Code (tests/fakes/agent_hooked.py) that finds its team in its own list, and writes to it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from agents.hooked import Claude
from session.fake_agent import FakeAgent, SharedAgent, messages, ps
from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team

SOON = session_patch("import relay.features.peers as peers\npeers.LOOK_EVERY = 0.1\n")


class Place:
    """A home whose agents share one list."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.config = relay.home / f"claude of {relay.team}"

    def claude(self, name: str, *, protocol: str = "1", team: str = "") -> Claude:
        env = {
            **SOON,
            "CLAUDE_CONFIG_DIR": str(self.config),
            "AGENT_PROTOCOL": protocol,
            "AGENT_VERSION": "2.1.332",
        }
        return Claude(self.relay, name, team=team).wrap(env=env)

    def records(self) -> dict[str, dict[str, Any]]:
        """Return relay's records in the list, by name."""
        found = []
        for file in (self.config / "sessions").glob("*.json"):
            with suppress(FileNotFoundError):  # it has just been removed
                found.append(json.loads(file.read_text()))
        return {each["name"]: each for each in found if each.get("entrypoint") == "relay"}

    def lists(self, *names: str) -> None:
        """Wait until the list has these agents."""
        wait_until(lambda: sorted(self.records()) == sorted(names), message=lambda: str(self.records()))


@pytest.fixture
def place(relay: Relay) -> Iterator[Place]:
    yield Place(relay)
    relay("stop", "--all", "--now", check=False)


def frame(text: str, id: str = "6f8f3f5e-0000-4000-8000-000000000000") -> dict[str, Any]:
    """Return what Claude Code sends; the name in it is only a claim."""
    envelope = f'<cross-session-message from="uds:/x" from-name="Alice">\n{text}\n</cross-session-message>'
    return {"type": "user", "msgV": 1, "msg_id": id, "message": {"role": "user", "content": envelope}}


Pair = tuple[Place, Claude, SharedAgent]


@pytest.fixture(scope="module")
def only_pair(shared: Relay) -> Pair:
    place, bob = Place(shared), SharedAgent(shared, "Bob")
    bob.wrap()
    alice = place.claude("Alice")
    place.lists("Bob")
    return place, alice, bob


@pytest.fixture
def pair(only_pair: Pair) -> Pair:
    """Return Alice and Bob, who is in her list, as several tests find them."""
    only_pair[2].forget()
    return only_pair


def test_it_lists_the_others_of_its_team_and_writes_to_them_through_the_ledger(place: Place) -> None:
    bob = FakeAgent(place.relay, "Bob").wrap()
    FakeAgent(place.relay, "Zoe", team="web").wrap()
    alice = place.claude("Alice")
    place.lists("Bob")
    assert alice.write("Bob", frame("hello Bob")) == ""
    bob.receives_exactly(("Alice", "hello Bob"))
    (row,) = messages(place.relay)
    assert (row["from"], row["to"], row["body"]) == ("Alice", "Bob", "hello Bob")
    assert [event["to"] for event in alice.events("message_sent")] == ["Bob"]


def test_a_message_that_is_sent_again_arrives_once(pair: Pair) -> None:
    _, alice, bob = pair
    for id in ("one", "one", "two"):
        alice.write("Bob", frame(f"hello {id}", id))
    bob.receives_exactly(("Alice", "hello one"), ("Alice", "hello two"))
    assert len(bob.messages()) == 2


def test_a_message_that_is_sent_twice_at_once_arrives_once(pair: Pair) -> None:
    _, alice, bob = pair
    for number in range(3):
        assert alice.write("Bob", frame(f"hello {number}", f"at-once-{number}"), times=5) == ""
    bob.receives_exactly(*(("Alice", f"hello {number}") for number in range(3)))
    assert len(bob.messages()) == 3


def test_a_message_waits_while_its_receiver_has_no_session(pair: Pair) -> None:
    place, alice, bob = pair
    (row,) = [row for row in ps(place.relay) if row["name"] == "Bob"]
    os.kill(row["session_pid"], signal.SIGKILL)
    alice.write("Bob", frame("hello again", "again"))
    bob.receives_exactly(("Alice", "hello again"))


def test_a_process_that_is_no_agents_is_not_heard(pair: Pair) -> None:
    place, _, bob = pair
    place.lists("Bob")
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(place.records()["Bob"]["messagingSocketPath"])
        peer.sendall(json.dumps(frame("from nobody", "nobody")).encode() + b"\n")
        peer.shutdown(socket.SHUT_WR)
        assert "only agents that relay wraps" in peer.makefile().read()
    assert [event["pid"] for event in bob.events("refused")] == [os.getpid()]
    assert bob.messages() == []


@pytest.mark.own_home
def test_an_agent_of_another_team_learns_why_it_cannot_write(place: Place) -> None:
    FakeAgent(place.relay, "Bob").wrap()
    place.claude("Alice")
    place.lists("Bob")
    zoe = place.claude("Zoe", team="web")
    zoe.write("Bob", frame("hello Bob"))
    answer = zoe.fire("UserPromptSubmit", prompt="Go on.")[-1]["stdout"]
    assert "Bob was not sent: Bob is in the team default, which is not yours" in answer
    assert messages(place.relay) == []


def test_the_list_follows_who_is_running(place: Place) -> None:
    bob = FakeAgent(place.relay, "Bob").wrap()
    alice = place.claude("Alice")
    place.lists("Bob")
    FakeAgent(place.relay, "Ann").wrap()
    place.lists("Ann", "Bob")
    bob.exit()
    place.lists("Ann")
    place.relay("reload", "Alice")
    place.lists("Ann")
    alice.exit()
    place.lists()


def test_two_agents_with_one_list_see_each_other_also_after_one_has_ended(place: Place) -> None:
    FakeAgent(place.relay, "Bob").wrap()
    alice = place.claude("Alice")
    place.claude("Carol")
    place.lists("Alice", "Bob", "Carol")
    alice.write("Alice", frame("hello me"))
    answer = alice.fire("UserPromptSubmit", prompt="Go on.")[-1]["stdout"]
    assert "your message to Alice was not sent" in answer
    alice.exit()
    place.lists("Bob")


def test_after_everything_was_killed_the_next_agent_removes_what_is_left(place: Place) -> None:
    FakeAgent(place.relay, "Bob").wrap()
    place.claude("Alice")
    place.lists("Bob")
    for row in ps(place.relay):
        for pid in (row["terminal_pid"], row["session_pid"], row["agent_pid"]):
            os.kill(pid, signal.SIGKILL)
    assert sorted(place.records()) == ["Bob"]
    wait_until(lambda: not ps(place.relay))
    place.claude("Carol")
    place.lists()


def test_an_unknown_protocol_is_left_alone_and_doctor_says_so(place: Place) -> None:
    FakeAgent(place.relay, "Bob").wrap()
    place.claude("Alice", protocol="2")
    why = "its own record does not have peerProtocol 1"
    said = place.relay("explain", "Alice").stdout
    assert f"own list of sessions: relay adds nobody to it, because {why}" in said
    found = place.relay("doctor", check=False).stdout
    assert f"inboxes: Alice sees no other agents in its own list: {why}" in found
    assert place.records() == {}


def test_with_never_nothing_is_written(place: Place) -> None:
    config = place.relay.home / "config"
    config.mkdir(exist_ok=True)
    (config / "relay.toml").write_text('peers = "never"\n')
    FakeAgent(place.relay, "Bob").wrap()
    place.claude("Alice")
    assert "own list of sessions" not in place.relay("explain", "Alice").stdout
    place.relay("reload", "Alice")
    assert place.records() == {}
