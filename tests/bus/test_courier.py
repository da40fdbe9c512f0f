"""Messages from one agent to another: real couriers, the real embedded broker."""

from __future__ import annotations

import asyncio

from agents import Agent, running

from relay.bus.message import State
from relay.home import Home


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
