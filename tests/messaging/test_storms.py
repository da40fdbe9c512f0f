"""When many agents join at once, none is turned away."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from clients import Agent, running

from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.transport import broker
from relay.transport.connector import Connector
from relay.transport.mqtt import MqttTransport
from support import eventually

MANY = 40


def test_a_crowd_is_admitted_without_a_word_of_refusal(home: Home) -> None:
    """nats-server refuses a login at the moment when it reloads another agent's."""

    admitted: list[int] = []

    def admit_others() -> None:
        for number in range(2 * MANY):
            broker.admit(home, "default", f"other-{number}")
            admitted.append(number)

    async def scenario() -> None:
        agents = [Agent(home, f"agent-{number}") for number in range(MANY)]
        async with contextlib.AsyncExitStack() as stack:
            others = asyncio.create_task(asyncio.to_thread(admit_others))
            for agent in agents:
                await stack.enter_async_context(running(agent, connected=False))
                before = len(admitted)  # they join while others do
                await eventually(lambda before=before: others.done() or len(admitted) > before)
            await others
            await eventually(lambda: all(agent.client.connected for agent in agents))
        said = [agent.statuses.get_nowait() for agent in agents for _ in range(agent.statuses.qsize())]
        assert [text for text in said if not text.startswith("connected")] == []

    asyncio.run(scenario())


def test_who_is_cut_off_at_the_login_tries_again_without_a_word(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nats-server that reloads another agent does this: it is over at once, and not worth reporting."""
    connect, cut = Connector.connect, list[MqttTransport]()

    async def connect_and_cut(self: Connector, *args: Any, **options: Any) -> MqttTransport:
        transport = await connect(self, *args, **options)
        if not cut:
            cut.append(transport)
            transport.close()
        return transport

    monkeypatch.setattr(Connector, "connect", connect_and_cut)

    async def scenario() -> None:
        async with running(Agent(home, "Alice"), connected=False) as agent:
            assert (await agent.status("")).startswith("connected to ")
            assert len(cut) == 1

    asyncio.run(scenario())


def test_what_all_sessions_of_a_home_hear_is_written_by_one(home: Home) -> None:
    """Otherwise a hundred joining agents would mean ten thousand transactions on one file."""
    with Ledger(home.ledger) as first, Ledger(home.ledger) as second:
        first.registry.register("default", "Bob")
        before = first.data_version()
        second.registry.register("default", "Bob")
        second.outbox.appeared("default", "Bob", "elsewhere")
        assert first.data_version() == before
        second.registry.register("default", "bob")  # spelled differently
        assert first.data_version() != before
        assert first.registry.known("default") == ["bob"]
