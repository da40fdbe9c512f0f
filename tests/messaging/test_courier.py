"""Messages from one agent to another: real couriers, the real embedded broker."""

from __future__ import annotations

import asyncio

from couriers import Agent, running

from relay.home import Home
from relay.messaging.message import Message, State


def test_a_message_reaches_the_other_agent_and_its_sender_hears_of_it(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            (sent,) = alice.courier.send("bob", "hello\nthere ✓")
            assert (sent.to, sent.state) == ("Bob", State.QUEUED)
            (got,) = await bob.receive()
            assert (got.id, got.sender, got.to, got.body) == (sent.id, "Alice", "Bob", "hello\nthere ✓")
            assert [m.id for m in bob.courier.waiting()] == [sent.id]
            await alice.outcome(State.STORED)
            bob.inject(got)
            assert (await alice.outcome(State.INJECTED)).id == sent.id
            assert bob.courier.waiting() == []

    asyncio.run(scenario())


def test_a_burst_arrives_whole_and_in_order(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            for number in range(200):
                alice.courier.send("Bob", f"message {number}")
            assert [m.body for m in await bob.receive(200)] == [f"message {n}" for n in range(200)]

    asyncio.run(scenario())


def test_what_cannot_be_handled_is_told_and_the_rest_arrives(home: Home) -> None:
    async def scenario() -> None:
        bob = Agent(home, "Bob")
        take = bob.courier._on_message

        def fails_once(message: Message) -> None:
            bob.courier._on_message = take
            raise RuntimeError("no room for it")

        bob.courier._on_message = fails_once
        async with running(Agent(home, "Alice")) as alice, running(bob):
            alice.courier.send("Bob", "first")
            alice.courier.send("Bob", "second")
            assert [m.body for m in await bob.receive()] == ["second"]
            assert [m.body for m in bob.courier.waiting()] == ["first", "second"]  # it is not lost
        assert bob.faults == ["what the bus brought could not be handled (RuntimeError: no room for it)"]

    asyncio.run(scenario())
