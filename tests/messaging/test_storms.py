"""Many agents that come at once: nobody is turned away, and nobody is overlooked for long."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from types import SimpleNamespace

import pytest
from clients import Agent, running

from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.transport import announcer, broker, presence
from support import eventually

MANY = 40


def test_a_crowd_is_admitted_without_a_word_of_refusal(home: Home) -> None:
    """nats-server refuses whoever logs in at the moment at which it reads of another."""

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
                before = len(admitted)  # they come while others do
                await eventually(lambda before=before: others.done() or len(admitted) > before)
            await others
            await eventually(lambda: all(agent.client.connected for agent in agents))
        said = [agent.statuses.get_nowait() for agent in agents for _ in range(agent.statuses.qsize())]
        assert [text for text in said if not text.startswith("connected")] == []

    asyncio.run(scenario())


def test_who_comes_together_with_others_says_so_twice(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that subscribe and announce themselves at once, one may miss the other."""
    monkeypatch.setattr(announcer, "CROWD_SECONDS", 3_600.0)  # however late the other comes
    monkeypatch.setattr(announcer, "random", SimpleNamespace(uniform=lambda *_: 0.0))
    monkeypatch.setattr(presence, "HEARTBEAT", 3_600.0)
    heard: Counter[str] = Counter()
    decode = presence.decode

    def counted(payload: bytes, level: str) -> presence.Presence | None:
        heard[level] += 1
        return decode(payload, level)

    monkeypatch.setattr(presence, "decode", counted)

    async def scenario() -> None:
        agents = [Agent(home, name) for name in ("early", "late")]
        async with running(agents[0]), running(agents[1]):
            await eventually(lambda: heard["early"] >= 4)

    asyncio.run(scenario())


def test_what_all_sessions_of_a_home_hear_is_written_by_one(home: Home) -> None:
    """Else a hundred agents that come would be ten thousand transactions on one file."""
    with Ledger(home.ledger) as first, Ledger(home.ledger) as second:
        first.registry.register("default", "Bob")
        before = first.data_version()
        second.registry.register("default", "Bob")
        second.outbox.appeared("default", "Bob", "Alice", "elsewhere")
        assert first.data_version() == before
        second.registry.register("default", "bob")  # spelled anew
        assert first.data_version() != before
        assert first.registry.known("default") == ["bob"]
