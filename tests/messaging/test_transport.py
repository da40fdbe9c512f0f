"""Connections to brokers that refuse, hang, speak garbage or go away: a clear word, in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from couriers import Agent, running

from relay.errors import BrokerError
from relay.home import Home
from relay.transport import broker, mqtt
from relay.transport.broker import Endpoint
from relay.transport.mqtt import ConnectionLost, Identity, MqttTransport

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

NOBODY = Identity("test", keep=False)


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
    await reader.read()


async def closing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the login with CONNACK 5, not authorized (MQTT 3.1.1 section 3.2.2.3)."""
    await reader.read(1024)
    writer.write(b"\x20\x02\x00\x05")
    await reader.read()


async def fickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept the login, and be gone."""
    await reader.read(1024)
    writer.write(b"\x20\x02\x00\x00")


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Endpoint]:
    ended: list[asyncio.Future[None]] = []

    async def and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.get_running_loop().create_future())
        mine = ended[-1]
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        mine.set_result(None)

    server = await asyncio.start_server(and_close, "127.0.0.1", 0)
    async with server:
        yield Endpoint("external", "127.0.0.1", server.sockets[0].getsockname()[1])
    await asyncio.gather(*ended)  # each ends when its client has closed the connection


@pytest.mark.parametrize("serve", [silent, garbage, closing])
def test_what_is_no_broker_is_said(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.3)

    async def scenario() -> None:
        async with serving(serve) as endpoint:
            with pytest.raises(ConnectionLost, match=r"does not answer like an MQTT broker .* Check host"):
                await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())


def test_a_refused_login_is_said() -> None:
    async def scenario() -> None:
        async with serving(refusing) as endpoint:
            with pytest.raises(BrokerError, match=r"refuses the login .* Check user and password"):
                await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())


def test_a_connection_that_is_lost_at_once_leaves_nothing_for_the_event_loop_to_say() -> None:
    """Which `quiet_event_loop` checks."""

    async def scenario() -> None:
        async with serving(fickle) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            with pytest.raises(ConnectionLost):
                await connection.subscribe("a", 0)
            connection.close()

    asyncio.run(scenario())
    gc.collect()


def test_a_connection_that_the_broker_closes_is_said_in_plain_words() -> None:
    async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await fickle(reader, writer)
        await reader.read(1024)

    async def scenario() -> None:
        async with serving(leaving) as endpoint, asyncio.timeout(20):
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            subscribing = asyncio.ensure_future(connection.subscribe("a", 0))
            with pytest.raises(ConnectionLost, match=r"\(it closed the connection\)\.$"):
                await anext(connection.arriving())
            subscribing.cancel()
            await asyncio.wait([subscribing])
            connection.close()

    asyncio.run(scenario())
    gc.collect()


def test_an_answer_may_come_after_much_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has hundreds of announcements to tell first is late, not dead."""
    monkeypatch.setattr(mqtt, "PUBLISH_SECONDS", 0.5)

    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00")
        await reader.read(1024)
        for _ in range(10):
            await asyncio.sleep(0.1)  # what it takes is the matter of this test
            writer.write(b"\x30\x04\x00\x01ax")  # QoS 0, topic `a`
        writer.write(b"\x40\x02\x00\x01")  # PUBACK
        await reader.read()

    async def scenario() -> None:
        async with serving(busy) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()

            async def hear() -> None:
                async for _ in connection.arriving():
                    pass

            hearing = asyncio.create_task(hear())
            await connection.publish("b", b"")
            hearing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hearing
            connection.close()

    asyncio.run(scenario())


def test_a_port_where_nobody_listens_is_said() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = Endpoint("external", "127.0.0.1", probe.getsockname()[1])

    async def scenario() -> None:
        with pytest.raises(ConnectionLost, match="no connection to the broker at mqtt://"):
            await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())


@pytest.mark.parametrize("serve", [silent, garbage, closing])
def test_a_wedged_broker_stops_nothing_else(
    home: Home, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.3)

    async def scenario() -> None:
        async with serving(serve) as endpoint:
            url = endpoint.url.replace("mqtt://", "mqtt://someone:secret@")
            async with running(Agent(home, "Alice", url=url), connected=False) as alice:
                text = await alice.status("does not answer like an MQTT broker")
                assert "secret" not in text
                Agent(home, "Bob").courier._ledger.close()
                (message,) = alice.courier.send("Bob", "kept until there is a broker")
                assert [e.message.id for e in alice.courier._ledger.messages()] == [message.id]

    asyncio.run(scenario())


def test_a_subscription_that_is_not_allowed_is_said(home: Home) -> None:
    endpoint, credentials = broker.admit(home, "default", "Alice")

    async def scenario() -> None:
        identity = Identity("test", keep=False, user=credentials.user, password=credentials.password)
        connection = MqttTransport(endpoint, identity)
        await connection.connect()
        with pytest.raises(BrokerError, match="does not allow"):
            await connection.subscribe("#", 0)
        connection.close()

    asyncio.run(scenario())
