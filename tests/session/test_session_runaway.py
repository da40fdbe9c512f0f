"""Runaways between real sessions: detected, held for the user, released or dropped."""

from __future__ import annotations

import json

from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, messages, settings
from support import Relay, wait_until


def states(relay: Relay) -> list[str]:
    with Ledger(Home.from_env(relay.environment).ledger) as ledger:
        return [entry.message.state for entry in ledger.messages()]


def ping_pong(relay: Relay, pattern: str = "from ") -> tuple[FakeAgent, FakeAgent]:
    """Return two agents that endlessly answer texts with `pattern` from each other."""
    alice = FakeAgent(relay, "Alice").wrap("--reply", pattern, "@relay:Bob ping\n")
    bob = FakeAgent(relay, "Bob").wrap("--reply", pattern, "@relay:Alice pong\n")
    return alice, bob


def settled(relay: Relay, count: int) -> bool:
    """Return whether there are `count` messages, the last one held and the others delivered."""
    return states(relay) == ["injected"] * (count - 1) + ["held"]


def is_idle(fake: FakeAgent) -> bool:
    """Return whether no text is waiting for `fake`."""
    return bool(json.loads(fake.relay("explain", "--json", fake.name).stdout)["waiting"] == 0)


def test_endless_answers_are_held_and_continue_after_release(relay: Relay) -> None:
    settings(relay, "runaway_depth = 6\n")
    alice, bob = ping_pong(relay)
    alice.say("@relay:Bob ping")
    wait_until(lambda: settled(relay, 7), message=alice.log)
    assert [message["depth"] for message in messages(relay)] == [1, 2, 3, 4, 5, 6, 7]
    assert [message["reply_to"] for message in messages(relay)][1:] == [m["id"] for m in messages(relay)][:-1]
    assert len({message["thread"] for message in messages(relay)[1:]}) == 1
    alice.receives(
        "messages to Bob are held: 7 messages led to it since the user's last input. The user decides."
    )
    alice.notice("Alice's messages to Bob are held")
    assert "`relay release --all`" in alice.notice("`relay drop --held`")

    assert "1 message released" in relay("release", "--all").stdout
    wait_until(lambda: settled(relay, 14), message=alice.log)
    assert [message["depth"] for message in messages(relay)[6:]] == [0, *range(1, 8)]

    held = messages(relay, "--state", "held")
    assert [message["state"] for message in held] == ["held"]
    assert "is given up" in relay("drop", held[0]["id"]).stdout
    (bob if held[0]["from"] == "Bob" else alice).receives("dropped by the user")
    wait_until(lambda: "held" not in states(relay))


def test_endless_answers_even_to_relays_notices_are_held(relay: Relay) -> None:
    settings(relay, "runaway_depth = 3\n")
    alice, bob = ping_pong(relay, "relay")
    alice.say("@relay:Bob ping")
    wait_until(lambda: states(relay) == ["injected"] * 3 + ["held"] * 2, message=alice.log)
    wait_until(lambda: is_idle(alice) and is_idle(bob))
    assert "2 messages" in relay("release", "--all").stdout
    wait_until(
        lambda: states(relay).count("held") >= 2 and is_idle(alice) and is_idle(bob), message=alice.log
    )
    assert set(states(relay)) == {"injected", "held"}


def test_a_message_from_the_user_starts_a_new_chain(relay: Relay) -> None:
    settings(relay, "runaway_depth = 4\n")
    alice, bob = ping_pong(relay)
    for round in range(1, 3):
        relay("send", "Bob", "go on")
        wait_until(lambda n=round: states(relay).count("held") == 1, message=alice.log)  # type: ignore[misc]
        assert [m["depth"] for m in messages(relay)] == [0, 1, 2, 3, 4, 5] * round
        (held,) = messages(relay, "--state", "held")
        relay("drop", held["id"])
        wait_until(lambda: "held" not in states(relay))
        (alice if held["from"] == "Alice" else bob).receives("dropped by the user")


def test_messages_over_the_rate_are_held_and_released_in_order(relay: Relay) -> None:
    settings(relay, "runaway_rate = 5\n")
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    alice.say("\n".join(f"@relay:Bob number {n}" for n in range(12)))
    wait_until(lambda: states(relay) == ["injected"] * 5 + ["held"] * 7, message=alice.log)
    alice.notice("are held")
    assert len([e for e in alice.events("notice") if "are held" in e["text"]]) == 1
    alice.receives("Your messages to Bob are held")
    assert alice.received.count("are held") == 1
    assert "5 messages released" in relay("release", *[m["id"] for m in messages(relay)[5:10]]).stdout
    bob.receives("number 9")
    assert "2 messages" in relay("release", "--from", "alice", "--to", "bob").stdout
    bob.receives("number 11")
    assert [text for _, text in bob.texts()] == [f"number {n}" for n in range(12)]


def test_a_storm_of_broadcasts_is_held_and_reported_once(relay: Relay) -> None:
    settings(relay, "runaway_broadcasts = 2\n")
    alice, bob, carol = (FakeAgent(relay, name).wrap() for name in ("Alice", "Bob", "Carol"))
    alice.say("\n".join(f"@relay:* storm {n}" for n in range(4)))
    wait_until(lambda: sorted(states(relay)) == ["held"] * 4 + ["injected"] * 4, message=alice.log)
    alice.receives("Your messages to Bob, Carol are held: 2 broadcasts")
    alice.notice("are held")
    assert len([e for e in alice.events("notice") if "are held" in e["text"]]) == 1
    assert "4 messages released" in relay("release", "--from", "Alice").stdout
    for fake in (bob, carol):
        fake.receives("storm 3")
        assert [text for _, text in fake.texts()] == [f"storm {n}" for n in range(4)]


def test_messages_over_the_queue_limit_are_refused(relay: Relay) -> None:
    """This is backpressure."""
    settings(relay, "queue_limit = 2\n")
    FakeAgent(relay, "Bob").wrap()
    relay("stop", "Bob")
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("\n".join(f"@relay:Bob number {n}" for n in range(4)))
    wait_until(
        lambda: alice.received.count("2 messages from this sender are already waiting") == 2,
        message=alice.log,
    )
    assert [message["body"] for message in messages(relay)] == ["number 0", "number 1"]


def test_only_the_user_can_release_or_drop_held_messages(relay: Relay) -> None:
    inside = {"RELAY_SOCKET": "/nowhere", "RELAY_NAME": "Alice"}
    for arguments in (("release", "--all"), ("drop", "--held")):
        done = relay(*arguments, env=inside, check=False)
        assert (done.returncode, "wait for the user" in done.stderr) == (1, True)
    assert "Nothing is held." in relay("release", "--all").stdout
    assert "Nothing is held." in relay("drop", "--held").stdout
    assert "or --all" in relay("release", check=False).stderr
