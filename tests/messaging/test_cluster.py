"""A cluster of three nats-servers, set up by config/nats/cluster.conf, whose nodes are killed under load.

RELAY_LONG=1 kills them more often, and also makes them hang. With -s, pytest prints the gaps.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from clients import Agent, running
from cluster import Cluster, Node, serving

from relay.home import Home
from relay.message import State
from session.fake_agent import FakeAgent
from support import LONG, Relay, eventually, wait_until

EVERY = 0.2
"""Seconds between two messages of an agent."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cluster" / "cert.pem"))
    with serving(tmp_path / "cluster") as found:
        yield found


@dataclass
class Talk:
    """One agent's continuous messages to another."""

    sender: Agent
    receiver: Agent
    sent: int = 0
    got: list[str] = field(default_factory=list)
    _last: float = field(default_factory=time.monotonic)

    async def send(self) -> None:
        while True:
            await self.sender.send(self.receiver.name, str(self.sent))
            self.sent += 1
            await asyncio.sleep(EVERY)

    async def receive(self) -> None:
        while True:
            self.got.append((await self.receiver.messages.get()).body)
            self._last = time.monotonic()

    def flowing(self) -> bool:
        """Return whether nearly everything sent so far has arrived."""
        return self.sent - len(self.got) < 5 and time.monotonic() - self._last < 1


@contextlib.asynccontextmanager
async def talking(cluster: Cluster, tmp_path: Path) -> AsyncIterator[list[Talk]]:
    """Have Alice and Bob, of two homes, talk for the block; then check that all arrived once, in order."""
    alice, bob = (
        Agent(Home.from_env({"RELAY_HOME": str(tmp_path / name)}).ensure(), name, url=cluster.url(name))
        for name in ("Alice", "Bob")
    )
    async with running(alice), running(bob):
        await alice.sees("Bob")
        await bob.sees("Alice")
        talks = [Talk(alice, bob), Talk(bob, alice)]
        receiving = [asyncio.create_task(talk.receive()) for talk in talks]
        sending = [asyncio.create_task(talk.send()) for talk in talks]
        try:
            await eventually(lambda: all(len(talk.got) > 5 for talk in talks))
            yield talks
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await alice.all_are(State.STORED)
            await bob.all_are(State.STORED)
            for talk in talks:
                assert talk.got == [str(number) for number in range(len(talk.got))], "each once, and in order"
                assert talk.sent - len(talk.got) in {0, -1}, "the last one was cut off, or all are there"
        finally:
            for task in receiving + sending:
                task.cancel()
            await asyncio.gather(*receiving, *sending, return_exceptions=True)


async def without(
    talks: list[Talk], node: Node, fail: Callable[[], None], revive: Callable[[], None]
) -> None:
    """Let `node` fail, and revive it once messages flow again."""
    counts = [len(talk.got) for talk in talks]
    await asyncio.to_thread(fail)

    def recovered() -> bool:
        return all(
            len(talk.got) > count + (50 if LONG else 25) and talk.flowing()
            for talk, count in zip(talks, counts, strict=True)
        )

    await eventually(recovered)  # past every election that the failure may have started
    revive()
    await eventually(lambda: node.listens())


@pytest.mark.timeout(500)
def test_any_node_can_be_killed(cluster: Cluster, tmp_path: Path) -> None:
    """Each of the three dies in turn, including stream leaders: nothing is lost, duplicated or reordered."""

    async def scenario() -> None:
        async with talking(cluster, tmp_path) as talks:
            nodes = cluster.nodes if not LONG else [*cluster.nodes, *random.choices(cluster.nodes, k=9)]
            for node in nodes:
                await asyncio.sleep(random.random())
                await without(talks, node, node.kill, node.start)
            statuses = [
                talk.sender.statuses.get_nowait()
                for talk in talks
                for _ in range(talk.sender.statuses.qsize())
            ]
        lost = [text for text in statuses if "Reconnecting to mqtts://" in text]
        assert lost, "at least one of the three had a connection"
        assert not any("@" in text or "s@cret" in text for text in statuses), "no credentials"
        assert not any("access list" in text for text in statuses), (
            "a refusal in an election is no access fault"
        )

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")  # paho's
@pytest.mark.skipif(not LONG, reason="nodes that hang, for a while each: set RELAY_LONG=1")
def test_any_node_can_hang(cluster: Cluster, tmp_path: Path) -> None:
    """A hung node accepts connections but answers nobody, and later continues where it left off."""

    async def scenario() -> None:
        async with talking(cluster, tmp_path) as talks:
            for node in cluster.nodes:
                await without(talks, node, node.hang, node.resume)

    asyncio.run(scenario())
    gc.collect()  # while the warning is still ignored


def test_a_session_without_a_majority_of_nodes_reports_why_it_is_off_the_bus(
    cluster: Cluster, shared: Relay
) -> None:
    """It also reports where it tries next; messages within its home arrive meanwhile."""
    env = {"SSL_CERT_FILE": str(cluster.certificate)}
    alice, bob = (
        FakeAgent(shared, name).wrap(options=("--broker", cluster.url(name)), env=env)
        for name in ("Alice", "Bob")
    )

    def off_the_bus() -> set[str]:
        return {line.split()[0] for line in shared("ps").stdout.splitlines() if "off the bus" in line}

    def explained() -> str:
        return shared("explain", "Alice").stdout

    wait_until(lambda: "connected to mqtts://" in explained(), message=explained)
    for node in cluster.nodes[:2]:
        node.kill()
    wait_until(lambda: off_the_bus() == {"Alice", "Bob"}, message=lambda: shared("ps").stdout)
    assert "Bus: no connection to the broker at mqtts://127.0.0.1" in explained()
    assert "Reconnecting to mqtts://127.0.0.1" in explained()
    alice.say("@relay:Bob hello")
    bob.receives("hello")
    for node in cluster.nodes[:2]:
        node.start()
    wait_until(lambda: not off_the_bus(), message=lambda: shared("ps").stdout)
    bob.receives_exactly(("Alice", "hello"))
