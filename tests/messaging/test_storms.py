"""When many agents join at once, none is turned away, and their presence is written once."""

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

COUNT = 40


def test_many_agents_are_admitted_at_once_without_a_refusal(home: Home) -> None:
    """nats-server refuses logins while it reloads another agent's."""

    admitted: list[int] = []

    def admit_others() -> None:
        for number in range(2 * COUNT):
            broker.admit(home, "default", f"other-{number}")
            admitted.append(number)

    async def scenario() -> None:
        agents = [Agent(home, f"agent-{number}") for number in range(COUNT)]
        async with contextlib.AsyncExitStack() as stack:
            others = asyncio.create_task(asyncio.to_thread(admit_others))
            for agent in agents:
                await stack.enter_async_context(running(agent, connected=False))
                before = len(admitted)  # they join while others do
                await eventually(lambda before=before: others.done() or len(admitted) > before)
            await others
            await eventually(lambda: all(agent.client.connected for agent in agents))
        statuses = [agent.statuses.get_nowait() for agent in agents for _ in range(agent.statuses.qsize())]
        assert [text for text in statuses if not text.startswith("connected")] == []

    asyncio.run(scenario())


def test_a_client_cut_off_at_login_silently_retries(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a nats-server that reloads another agent's login: not worth a report."""
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


def test_presence_seen_by_all_sessions_of_a_home_is_written_once(home: Home) -> None:
    """Otherwise a hundred joining agents would mean ten thousand transactions on one file."""
    with Ledger(home.ledger) as first, Ledger(home.ledger) as second:
        first.registry.register("default", "Bob")
        before = first.data_version()
        second.registry.register("default", "Bob")
        second.transit.appeared("default", "Bob", "elsewhere")
        assert first.data_version() == before
        second.registry.register("default", "bob")  # spelled differently
        assert first.data_version() != before
        assert first.registry.known("default") == ["bob"]
