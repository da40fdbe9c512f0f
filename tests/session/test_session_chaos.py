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

SENDING = [  # the others are in test_session_sweep.py
    ("relay.features.handler_runner:HandlerRunner.directive", "after"),
    ("relay.messaging.outbox:Outbox.send", "after"),
    ("relay.builtin.relay:deliver", "after"),
    ("relay.messaging.client:MessagingClient._sent", "before"),
    ("relay.messaging.outbox:Outbox.outcomes", "before"),
]


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


class Mortal:
    """A fake agent of the given name whose session dies at the step that is armed."""

    def __init__(self, relay: Relay, name: str, steps: list[tuple[str, str]]) -> None:
        self.agent = FakeAgent(relay, name)
        self._died, self._armed = (self.agent.folder / each for each in ("died", "armed"))
        self._armed.write_text("0")
        code = (
            f"import os\nnote, armed, steps = {str(self._died)!r}, {str(self._armed)!r}, {steps!r}\n"
            "number = os.path.getsize(note) if os.path.exists(note) else 0\n"
            "if open(armed).read() == str(number):\n"
            "    from failpoints import Failpoint, Point, When, arm\n"
            "    target, when = steps[number]\n"
            "    arm(Failpoint(Point(target), When(when), note=note))\n"
        )
        self.agent.wrap(env=session_patch(code))
        self._pid = self._agent_pid()

    def arm(self, number: int) -> None:
        """Have a new session that dies at that step, once the earlier ones are over."""
        assert self._agent_pid() == self._pid
        if number:
            self._armed.write_text(str(number))
            self.agent.relay("reload", self.agent.name)

    def wait(self, number: int) -> None:
        """Wait until a session has died at that step."""
        wait_until(lambda: self._died.exists() and self._died.stat().st_size > number, message=self.agent.log)

    def _agent_pid(self) -> int:
        return next(row["agent_pid"] for row in ps(self.agent.relay) if row["name"] == self.agent.name)


def test_a_message_survives_a_receiver_killed_while_typing(shared: Relay, subtests: pytest.Subtests) -> None:
    """R88: the message being typed may be uncertain, which the user can resolve; the next one is typed."""
    relay, mortal = shared, Mortal(shared, "Ben", [(target, when) for target, when, _ in TYPING])
    ben = mortal.agent
    for number, (target, when, allowed) in enumerate(TYPING):
        with subtests.test(f"{when} {target}"):
            mortal.arm(number)
            earlier = len(messages(relay, "--to", "Ben"))
            relay("send", "Ben", f"first {number}")
            relay("send", "Ben", f"second {number}")
            mortal.wait(number)
            ben.receives(f"second {number}")
            (first, *outcome), second = outcomes(ben, earlier)
            assert first == f"first {number}"
            assert tuple(outcome) in allowed
            assert second == (f"second {number}", "injected", 1)
            if outcome[0] == "uncertain":
                id = messages(relay, "--to", "Ben")[earlier]["id"]
                relay("retry", id)
                times = outcome[1] + 1
                wait_until(lambda: [body for _, body in ben.texts()].count(first) == times)  # noqa: B023
                relay("drop", id)
                assert id not in {m["id"] for m in messages(relay)}


@pytest.fixture(scope="module")
def bob(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Bob").wrap()


def test_a_message_survives_a_sender_killed_while_sending(
    shared: Relay, bob: FakeAgent, subtests: pytest.Subtests
) -> None:
    """R88: each message arrives once, wherever the session died on the way to the ledger."""
    mortal = Mortal(shared, "Alice", SENDING)
    for number, (target, when) in enumerate(SENDING):
        with subtests.test(f"{when} {target}"):
            mortal.arm(number)
            earlier = len(messages(shared, "--to", "Bob"))
            os.truncate(bob.folder / "received", 0)
            mortal.agent.say(f"@relay:Bob one {number}\n@relay:Bob two {number}")
            mortal.wait(number)
            bob.receives(f"two {number}")
            shared("send", "--wait", "30", "Bob", "from a user")
            bodies = [f"one {number}", f"two {number}", "from a user"]
            assert outcomes(bob, earlier) == [(body, "injected", 1) for body in bodies]
            assert [body for _, body in bob.texts()] == bodies


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
