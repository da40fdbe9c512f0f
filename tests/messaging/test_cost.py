"""A message and an announcement cost the packets and bytes that docs/BROKERS.md states."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from brokers import Embedded
from clients import Agent, running

from relay.backoff import Backoff
from relay.home import Home
from relay.message import State
from relay.messaging import client, presence_listener, publisher
from relay.messaging.receiver import Receiver
from relay.storage.writer import Writer
from relay.transport import presence
from relay.transport.endpoint import Endpoint
from support import eventually

DOCS = Path(__file__).resolve().parents[2] / "docs" / "BROKERS.md"

PUBLISH, PUBACK = 3, 4
"""Packet types (MQTT 3.1.1 section 2.2.1)."""


@dataclass
class Meter:
    """Counts the packets through a port, to and from a broker, by direction and kind of packet."""

    packets: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes: Counter[tuple[str, str]] = field(default_factory=Counter)

    @contextlib.asynccontextmanager
    async def serving(self, url: str) -> AsyncIterator[int]:
        """Forward connections to `url` for the block; yield the port for them."""
        endpoint = Endpoint.of(url)
        connections: list[asyncio.Future[None]] = []

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(asyncio.get_running_loop().create_future())
            done = connections[-1]
            far_reader, far_writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            await asyncio.gather(
                self._forward("in", reader, far_writer), self._forward("out", far_reader, writer)
            )
            done.set_result(None)

        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*connections)

    async def _forward(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(2)
                while head[-1] & 0x80:  # another length byte (MQTT 3.1.1 section 2.2.3)
                    head += await reader.readexactly(1)
                length = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(head[1:]))
                rest = await reader.readexactly(length)
                self._count(way, head[0] >> 4, head + rest)
                writer.write(head + rest)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    def _count(self, way: str, kind: int, packet: bytes) -> None:
        if kind == PUBLISH:
            name = "presence" if b"/presence/" in packet[:200] else "message"
        elif kind == PUBACK:
            name = "acknowledgement"
        else:
            return
        self.packets[way, name] += 1
        self.bytes[way, name] += len(packet)


def stated(what: str) -> int:
    """Return the number in the row of the docs' cost table with that prefix."""
    found = re.search(rf"^\| {re.escape(what)}[^|]*\| ([\d,]+) \|", DOCS.read_text(), re.MULTILINE)
    assert found is not None, what
    return int(found[1].replace(",", ""))


async def sees_second_connection(agent: Agent, name: str) -> None:
    """Wait until `agent` knows the second connection of `name`: the first one only claims the name.

    Messages sent in between are resent, as the broker keeps nothing for a name that is only claimed.
    """

    async def connected_again() -> bool:
        return any(each.name == name and each.boot >= "000002" for each in await agent.client.roster())

    await eventually(connected_again)


def test_a_message_costs_what_the_docs_say(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine would pay twice for a message.
    monkeypatch.setattr(publisher, "RETRY", Backoff(1e6, 1e6))
    directory = tmp_path / "broker"
    directory.mkdir()
    server = Embedded(directory)
    server.start()
    far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()
    meter = Meter()
    count = 20

    async def scenario() -> None:
        async with meter.serving(server.url("Alice")) as port:

            def through(name: str) -> str:
                return server.url(name).replace(f":{server.port}", f":{port}")

            async with (
                running(Agent(home, "Alice", url=through("Alice"))) as alice,
                running(Agent(far, "Bob", url=through("Bob"))) as bob,
            ):
                await sees_second_connection(alice, "Bob")
                await sees_second_connection(bob, "Alice")
                announcement = meter.bytes["in", "presence"] / meter.packets["in", "presence"]
                before = meter.packets.copy(), meter.bytes.copy()
                for state in (State.STORED, State.INJECTED):
                    if state is State.STORED:
                        for _ in range(count):
                            await alice.send("Bob", "x" * 100)
                        got = await bob.receive(count)
                    else:
                        for message in got:
                            await bob.inject(message)
                    await alice.all_are(state)
                packets, octets = meter.packets - before[0], meter.bytes - before[1]
        for way in ("in", "out"):
            assert packets[way, "message"] == count * stated(f"PUBLISH, {way}")
            assert 0.8 < octets[way, "message"] / count / stated(f"bytes of them, {way}") < 1.2
        assert 0.6 < announcement / stated("an announcement, bytes") < 1.4

    try:
        asyncio.run(scenario())
    finally:
        server.kill()


class Traced(sqlite3.Connection):
    """A connection that records its statements, with `?` for each value, in `found`."""

    found: ClassVar[list[str]] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_trace_callback(self.found.append)


STATEMENTS, JOBS = 7, 4
"""What a message within a home costs at most: SQL statements of all processes, and jobs of their ledgers."""


def test_a_message_within_a_home_costs_few_statements(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """From `send` until its sender knows that it was injected, with its copy for programs outside."""
    for module, name in (
        (client, "SWEEP_EVERY"),
        (presence, "HEARTBEAT"),
    ):
        monkeypatch.setattr(module, name, 3600.0)
    monkeypatch.setattr(presence_listener, "REQUEST_AGAIN_AFTER", 0.1)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Traced, **named))
    jobs: list[str] = []
    hand_over = Writer._hand_over

    def counted(self: Writer[Any], job: Any) -> None:
        jobs.append(job[0].__qualname__)
        hand_over(self, job)

    monkeypatch.setattr(Writer, "_hand_over", counted)
    copies = 0
    hand_over_copy = Receiver._hand_over

    def copied(*arguments: Any) -> Any:
        nonlocal copies
        copies += 1
        return hand_over_copy(*arguments)

    monkeypatch.setattr(Receiver, "_hand_over", copied)
    count = 20

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            for agent, other in ((alice, "Bob"), (bob, "Alice")):
                await eventually(lambda agent=agent, other=other: agent.knows(other))

            async def one() -> None:
                before = copies
                await alice.send("Bob", "hello")
                (message,) = await bob.receive()
                await bob.inject(message)
                await alice.outcome(State.INJECTED)
                await eventually(lambda: copies > before)

            for _ in range(3):
                await one()
            Traced.found.clear()
            jobs.clear()
            for _ in range(count):
                await one()
            statements, done = Traced.found.copy(), jobs.copy()
        shapes = Counter(
            re.sub(r"\s+", " ", re.sub(r"'[^']*'|\b\d[\d.e+]*\b", "?", each)) for each in statements
        )
        for shape, number in shapes.most_common():
            print(f"{number / count:5.2f}  {shape}")
        for job, number in Counter(done).most_common():
            print(f"{number / count:5.2f}  {job}")
        # What does not come with each message is not its cost: an announcement, say.
        assert sum(number // count for number in shapes.values()) <= STATEMENTS
        assert sum(number // count for number in Counter(done).values()) <= JOBS

    asyncio.run(scenario())
