"""Channels between two homes on one broker: who is in them is heard, and kept while a member is away."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from couriers import Agent, eventually, running

from relay.home import Home
from relay.messaging import client, proxy_publishers, publisher
from relay.messaging.channels import CATCH_UP
from relay.messaging.ledger import Ledger
from relay.messaging.message import State
from relay.messaging.posting import post
from relay.transport import broker, presence, topics
from relay.transport.mqtt import Inbound


@pytest.fixture
def far(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()


def url(home: Home, name: str) -> str:
    """The embedded broker of `home`, for an agent of another home."""
    endpoint, own = broker.admit(home, "default", name)
    return f"mqtt://{quote(own.user, safe='')}:{own.password}@{endpoint.host}:{endpoint.port}"


def test_joining_and_leaving_is_heard_and_a_member_that_was_away_is_reached(home: Home, far: Home) -> None:
    async def scenario() -> None:
        bobs = url(home, "Bob")
        with Ledger(home.ledger) as here, Ledger(far.ledger) as there:

            async def heard(*channels: str) -> None:
                await eventually(lambda: here.channels.of("default", "Bob") == list(channels))

            async with running(Agent(home, "Alice")) as alice:
                async with running(Agent(far, "Bob", url=bobs)) as bob:
                    assert bob.courier.join("Ops") and not bob.courier.join("ops")
                    await heard("Ops")
                    alice.courier.send("#ops", "one")
                    (got,) = await bob.receive()
                    assert (got.to, got.body, got.channel) == ("Bob", "one", "Ops")
                    bob.inject(got)
                    await alice.outcome(State.INJECTED)
                    bob.courier.join("dev")
                    bob.courier.leave("ops")
                    await heard("dev")
                await alice.sees("Bob", online=False)
                alice.courier.send("#dev", "two")
                there.channels.join("default", "late", "Bob")  # while its session does not run
                there.channels.leave("default", "dev", "Bob")
                async with running(Agent(far, "Bob", url=bobs)) as bob:
                    assert [m.body for m in await bob.receive()] == ["two"]
                    await heard("late")

    asyncio.run(scenario())


def test_a_will_says_nothing_new_to_who_listened_and_all_that_is_known_to_who_did_not(home: Home) -> None:
    """It was written when the member connected, and may have joined another channel since."""

    async def scenario() -> None:
        alice = Agent(home, "Alice")
        async with running(alice):
            ledger = alice.courier._ledger

            def hear(online: bool, channels: list[str], *, retained: bool = False) -> list[str]:
                payload = presence.encode(
                    "Bob", "1", time.time(), online=online, home="far", channels=channels
                )
                topic = topics.presence("default", "Bob")
                alice.courier._hear(Inbound(topic, payload, retained), topics.level("Bob"))
                return ledger.channels.of("default", "Bob")

            assert hear(False, ["ops"], retained=True) == ["ops"]
            assert hear(True, ["dev", "ops"]) == ["dev", "ops"]
            assert hear(False, ["ops"]) == ["dev", "ops"]
            assert hear(True, []) == []

    asyncio.run(scenario())


def test_the_oldest_of_what_an_absent_member_missed_expires_and_the_rest_arrives_in_order(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(client, "SWEEP_EVERY", 0.05)
        many = [f"number {n}" for n in range(CATCH_UP + 7)]
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")) as bob:
                bob.courier.join("ops")
                for text in many:  # a busy member that is there misses nothing
                    alice.courier.send("#ops", text)
                assert [m.body for m in await bob.receive(len(many))] == many
                for message in bob.courier.waiting():
                    bob.inject(message)
            await alice.sees("Bob", online=False)
            with Ledger(home.ledger) as ledger:
                for text in many:
                    alice.courier.send("#ops", text)
                await eventually(
                    lambda: sum(e.message.state is State.EXPIRED for e in ledger.messages()) == 7
                )
            async with running(Agent(home, "Bob")) as bob:
                assert [m.body for m in await bob.receive(CATCH_UP)] == many[7:]
                assert len(bob.courier.waiting()) == CATCH_UP

    asyncio.run(scenario())


def test_a_returning_member_gets_at_once_what_the_person_sent_meanwhile(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person has no session: others of the home publish, and hear that the member is back."""
    monkeypatch.setattr(proxy_publishers, "LOOK", 3600.0)
    monkeypatch.setattr(publisher, "_LOOK_AGAIN", 3600.0)

    async def scenario() -> None:
        bobs = url(home, "Bob")
        with Ledger(home.ledger) as ledger:
            async with running(Agent(home, "Alice")) as alice:
                async with running(Agent(far, "Bob", url=bobs)) as bob:
                    bob.courier.join("ops")
                    await alice.sees("Bob")
                    await eventually(lambda: ledger.channels.of("default", "Bob") == ["ops"])
                    post(ledger, "default", "you", "#ops", "one")
                    alice.courier.drain()
                    assert [m.body for m in await bob.receive()] == ["one"]
                await alice.sees("Bob", online=False)
                post(ledger, "default", "you", "#ops", "two")
                alice.courier.drain()
                async with running(Agent(far, "Bob", url=bobs)) as bob:
                    assert [m.body for m in await bob.receive()] == ["two"]

    asyncio.run(scenario())
