"""Real sessions killed around typing: each message is typed once, or its state is accurate.

The agent lives on, so another session follows by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from session.fake_agent import Entry, FakeAgent, messages, ps
from support import Relay, processes_of, session_patch, wait_until

TYPING = [
    # where the receiver dies, and the allowed outcomes: (state, how often it was typed)
    ("relay.messaging.inbox:Inbox.arrived", "before", {("injected", 1)}),
    ("relay.messaging.inbox:Inbox.arrived", "after", {("injected", 1)}),
    ("relay.messaging.inbox:Inbox.injecting", "before", {("injected", 1)}),
    ("relay.messaging.inbox:Inbox.injecting", "after", {("uncertain", 0)}),
    ("relay.injection.typist:Typist.type", "before", {("uncertain", 0)}),
    ("relay.terminal.shim_link:ShimLink.write", "before", {("uncertain", 0)}),
    ("relay.terminal.shim_link:ShimLink.write", "after", {("injected", 1)}),  # the terminal echoes it
    ("relay.injection.typist:Typist.type", "after", {("injected", 1)}),
    ("relay.messaging.inbox:Inbox.settle", "before", {("injected", 1)}),
    ("relay.messaging.inbox:Inbox.settle", "after", {("injected", 1)}),
]

SENDING = [
    ("relay.features.handler_runner:HandlerRunner.directive", "before"),
    ("relay.features.handler_runner:HandlerRunner.directive", "after"),
    ("relay.builtin.relay:deliver", "before"),
    ("relay.messaging.outbox:Outbox.send", "before"),
    ("relay.messaging.outbox:Outbox.send", "after"),
    ("relay.builtin.relay:deliver", "after"),
    ("relay.transport.mqtt:MqttTransport.publish", "after"),  # the first publish is its presence
    ("relay.messaging.client:MessagingClient._sent", "before"),
    ("relay.messaging.outbox:Outbox.outcomes", "before"),
]


def name(value: object) -> str | None:
    return value.rpartition(":")[2] if isinstance(value, str) else None


def agent_name(target: str, when: str) -> str:
    return f"{target.rpartition(':')[2].replace('.', '-')}-{when}"


def wrap_dying(fake: FakeAgent, target: str, when: str) -> Path:
    """Start `fake` with a first session that dies at `target`; return the file that exists afterwards."""
    died = fake.folder / "died"
    fake.wrap(
        env=session_patch(
            "import os\n"
            f"if not os.path.exists({str(died)!r}):\n"
            "    from failpoints import Failpoint, Point, When, arm\n"
            f"    arm(Failpoint(Point({target!r}), When({when!r}), note={str(died)!r}))\n"
        )
    )
    return died


def wait_until_dead(fake: FakeAgent) -> None:
    """Wait until the session of `fake` and its agent have died."""
    wait_until(
        lambda: not any(str(fake.folder) in line for line in processes_of(fake.relay.home).values()),
        message=lambda: f"{ps(fake.relay)}\n{fake.log()}",
    )
    (fake.folder / "strings").unlink()


def outcomes(bob: FakeAgent, earlier: int = 0) -> list[tuple[str, str, int]]:
    """Return each message's outcome (body, state, how often Bob's agent got it), once all are final.

    earlier: the number of messages that it had before.
    """

    def sent() -> list[Entry]:
        return messages(bob.relay, "--to", bob.name)[earlier:]

    listed = wait_until(
        lambda: (found := sent()) and all(m["state"] in {"injected", "uncertain"} for m in found) and found,
        message=lambda: f"{sent()}\n{bob.log()}",
    )
    given = {m["body"] for m in listed if m["state"] == "injected"}
    wait_until(
        lambda: given <= {body for _, body in bob.texts()}, message=lambda: f"{given} in {bob.received!r}"
    )
    typed = [body for _, body in bob.texts()]
    return [(m["body"], m["state"], typed.count(m["body"])) for m in listed]


@pytest.mark.parametrize(("target", "when", "allowed"), TYPING, ids=name)
def test_a_message_survives_a_receiver_killed_while_typing(
    shared: Relay, target: str, when: str, allowed: set[tuple[str, int]]
) -> None:
    """R88: the message being typed may be uncertain, which the user can resolve; the next one is typed."""
    relay, bob = shared, FakeAgent(shared, agent_name(target, when))
    died = wrap_dying(bob, target, when)

    def agent_pid() -> int:
        return next(row["agent_pid"] for row in ps(relay) if row["name"] == bob.name)

    agent = agent_pid()
    relay("send", bob.name, "first")
    relay("send", bob.name, "second")
    wait_until(died.exists)
    bob.receives("second")
    (first, *outcome), second = outcomes(bob)
    assert first == "first"
    assert tuple(outcome) in allowed
    assert second == ("second", "injected", 1)
    if outcome[0] == "uncertain":
        id = messages(relay, "--to", bob.name)[0]["id"]
        relay("retry", id)
        wait_until(lambda: [body for _, body in bob.texts()].count("first") == outcome[1] + 1)
        relay("drop", id)
        assert id not in {m["id"] for m in messages(relay)}
    assert agent_pid() == agent
    bob.exit()


@pytest.fixture(scope="module")
def bob(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Bob").wrap()


@pytest.mark.parametrize(("target", "when"), SENDING, ids=name)
def test_a_message_survives_a_sender_killed_while_sending(
    shared: Relay, bob: FakeAgent, target: str, when: str
) -> None:
    """R88: each message arrives once, wherever the session died on the way to the ledger."""
    alice = FakeAgent(shared, agent_name(target, when))
    earlier = len(messages(shared, "--to", "Bob"))
    os.truncate(bob.folder / "received", 0)
    died = wrap_dying(alice, target, when)
    alice.say("@relay:Bob one\n@relay:Bob two")
    wait_until(died.exists)
    bob.receives("two")
    shared("send", "--wait", "30", "Bob", "from a user")
    assert outcomes(bob, earlier) == [(body, "injected", 1) for body in ("one", "two", "from a user")]
    assert [body for _, body in bob.texts()] == ["one", "two", "from a user"]
    alice.exit()


def test_messages_survive_killing_both_sessions_and_the_broker(relay: Relay) -> None:
    """R88."""
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    alice.say("\n".join(f"@relay:Bob number {n}" for n in range(50)))
    bob.receives("number 3")
    for pid, line in processes_of(relay.home).items():
        if "nats-server -c" in line or "relay wrap" in line or "relay/session" in line:
            with contextlib.suppress(ProcessLookupError):  # it ended along with another
                os.kill(pid, signal.SIGKILL)
    wait_until_dead(alice)
    wait_until_dead(bob)
    accepted = len(messages(relay))
    bob.wrap()
    alice.wrap()
    found = outcomes(bob)
    assert len(found) == accepted
    unsettled = [outcome for outcome in found if outcome[1:] != ("injected", 1)]
    assert len(unsettled) <= 1
    assert all(state == "uncertain" and typed <= 1 for _, state, typed in unsettled)
    assert [body for _, body in bob.texts()] == [body for body, _, typed in found if typed]


def test_a_message_to_an_agent_that_is_never_ready_can_be_redirected(relay: Relay) -> None:
    """R88: the message stays *stored*; `explain` says why, and `retry --to` sends it to another agent."""
    bob, robert = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Robert").wrap()
    bob.say("Overwrite notes.txt? [y/N] ", end="")
    wait_until(lambda: bob.state() == "prompting")
    relay("send", "Bob", "hello")
    (waiting,) = wait_until(lambda: [m for m in messages(relay) if m["state"] == "stored"])
    explained = relay("explain", "Bob").stdout
    assert "prompting" in explained
    relay("retry", waiting["id"], "--to", "Robert")
    robert.receives("hello")
    wait_until(lambda: sorted(m["state"] for m in messages(relay)) == ["injected", "rejected"])
    bob.say("\nNo answer; continuing.")
    relay("send", "--wait", "30", "Bob", "later")
    bob.receives_exactly(("the user", "later"))


def test_a_message_to_a_former_name_can_be_redirected_to_the_new_one(relay: Relay) -> None:
    """R88: Bob continues as Robert."""
    FakeAgent(relay, "Bob").wrap()
    relay("stop", "Bob")
    relay("send", "Bob", "hello")
    robert = FakeAgent(relay, "Robert").wrap()
    (waiting,) = messages(relay)
    assert (waiting["to"], waiting["state"]) == ("Bob", "stored")
    relay("retry", waiting["id"], "--to", "Robert")
    robert.receives("hello")
    wait_until(lambda: [m["state"] for m in messages(relay)] == ["rejected", "injected"])
    old, new = messages(relay)
    assert (old["to"], old["state"]) == ("Bob", "rejected")
    assert new["id"] in old["detail"]
    assert (new["to"], new["state"]) == ("Robert", "injected")
