"""Brokers that refuse, hang, send garbage or disconnect cause a clear error, in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from clients import Agent, register, running

from relay.backoff import Backoff
from relay.errors import BrokerError
from relay.home import Home
from relay.transport import broker, connector, mqtt
from relay.transport.connector import Connector
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint, endpoints
from relay.transport.mqtt import ConnectionLost, MqttTransport
from support import eventually

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

NOBODY = Login("test", keep=False)


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


async def disconnecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept the login, then disconnect."""
    await reader.read(1024)
    writer.write(b"\x20\x02\x00\x00")


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Endpoint]:
    ended: list[asyncio.Future[None]] = []

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.get_running_loop().create_future())
        done = ended[-1]
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        done.set_result(None)

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    async with server:
        yield Endpoint("external", "127.0.0.1", server.sockets[0].getsockname()[1])
    await asyncio.gather(*ended)  # each ends when its client has closed the connection


@pytest.mark.parametrize("serve", [silent, garbage, closing])
def test_a_server_that_is_not_a_broker_is_reported(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.3)

    async def scenario() -> None:
        async with serving(serve) as endpoint:
            with pytest.raises(ConnectionLost, match=r"not answer like an MQTT broker .* Check the host"):
                await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())


def test_a_refused_login_is_reported() -> None:
    async def scenario() -> None:
        async with serving(refusing) as endpoint:
            with pytest.raises(BrokerError, match=r"refuses the login .* Check the user and password"):
                await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())


def test_an_immediately_lost_connection_logs_no_event_loop_error() -> None:
    """`quiet_event_loop` checks this."""

    async def scenario() -> None:
        async with serving(disconnecting) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            with pytest.raises(ConnectionLost):
                await connection.subscribe("a", 0)
            connection.close()

    asyncio.run(scenario())
    gc.collect()


def test_an_answer_to_a_login_that_nobody_awaits_logs_no_event_loop_error() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        asked.set()
        await answer.wait()
        writer.write(b"\x20\x02\x00\x00")
        assert await reader.read(1024) == b"\xe0\x00", "the client should disconnect"

    async def scenario() -> None:
        async with asyncio.timeout(20), serving(late) as endpoint:
            connecting = asyncio.create_task(MqttTransport(endpoint, NOBODY).connect())
            await asked.wait()
            connecting.cancel()
            await asyncio.wait([connecting])
            answer.set()

    asyncio.run(scenario())
    gc.collect()


def test_a_connection_closed_by_the_broker_is_reported_in_plain_words() -> None:
    async def disconnecting_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await disconnecting(reader, writer)
        await reader.read(1024)

    async def scenario() -> None:
        async with serving(disconnecting_later) as endpoint, asyncio.timeout(20):
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


def test_a_packet_that_makes_no_sense_counts_as_the_loss_of_the_connection() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00" + b"\x30\x03\x00\x01\xff")  # a topic that is not UTF-8
        await reader.read(1024)

    async def scenario() -> None:
        async with asyncio.timeout(20), serving(nonsense) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            with contextlib.closing(connection), pytest.raises(ConnectionLost):
                await anext(connection.arriving())

    asyncio.run(scenario())


@pytest.mark.parametrize("politely", [True, False])
def test_a_connection_that_takes_nothing_more_can_be_closed(politely: bool) -> None:
    ended: list[bytes] = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00")
        await closed.wait()
        while part := await reader.read(1 << 20):
            ended.append(part)

    async def scenario() -> None:
        async with asyncio.timeout(20), serving(deaf) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            publishing = asyncio.create_task(connection.publish("a", bytes(16 << 20)))
            await asyncio.sleep(0)
            connection.close(politely=politely)
            closed.set()
            with pytest.raises(ConnectionLost):
                await anext(connection.arriving())
            publishing.cancel()
            await asyncio.wait([publishing])
        assert 0 < sum(map(len, ended)) < 16 << 20

    closed = asyncio.Event()
    asyncio.run(scenario())


def test_nothing_is_sent_at_qos_0_while_the_broker_takes_nothing() -> None:
    """Otherwise, all that a program outside might listen to would pile up behind a broker that hangs."""
    wakes, received = asyncio.Event(), bytearray()

    async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00")
        await wakes.wait()
        while part := await reader.read(1 << 20):
            received.extend(part)

    async def scenario() -> None:
        async with asyncio.timeout(20), serving(hanging) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            sent = 0
            while connection.send("a", bytes(1 << 16)):
                sent += 1
                assert sent < 1000
            wakes.set()
            await eventually(lambda: connection.send("a", b"the last one"))
            await eventually(lambda: received.endswith(b"the last one"))
            assert len(received) > sent << 16
            connection.close()
            assert not connection.send("a", b"too late")

    asyncio.run(scenario())


class Skipping(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can set forward."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


@pytest.mark.parametrize("then", ["answers", "falls silent", "never answers"])
def test_a_busy_broker_is_not_considered_dead_too_early(then: str) -> None:
    """Hundreds of announcements may come first; it counts as dead once it falls silent, or never answers."""
    orders: asyncio.Queue[bytes] = asyncio.Queue()

    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00")
        await reader.read(1024)
        while order := await orders.get():
            writer.write(order)
        await reader.read()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Skipping)
        async with serving(busy) as endpoint:
            connection = MqttTransport(endpoint, NOBODY)
            await connection.connect()
            arriving = aiter(connection.arriving())
            publishing = asyncio.create_task(connection.publish("b", b""))

            async def advance(seconds: float) -> None:
                """Send something else, and let `seconds` pass."""
                orders.put_nowait(b"\x30\x04\x00\x01ax")  # QoS 0, topic `a`
                await anext(arriving)
                loop.skipped += seconds
                for _ in range(5):
                    await asyncio.sleep(0)

            for _ in range(5):
                await advance(0.9 * mqtt.PUBLISH_SECONDS)
                assert not publishing.done()
            if then == "answers":
                orders.put_nowait(b"\x40\x02\x00\x01")  # PUBACK
                await publishing
            else:
                if then == "falls silent":
                    loop.skipped += 1.1 * mqtt.PUBLISH_SECONDS
                else:
                    for _ in range(2):
                        await advance(0.9 * mqtt.PUBLISH_SECONDS)
                with pytest.raises(ConnectionLost, match="does not answer a publish"):
                    await publishing
            orders.put_nowait(b"")
            connection.close()

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(scenario())
    gc.collect()


def test_a_port_without_a_listener_is_reported() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = Endpoint("external", "127.0.0.1", probe.getsockname()[1])

    async def scenario() -> None:
        with pytest.raises(ConnectionLost, match="no connection to the broker at mqtt://"):
            await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())


@pytest.mark.parametrize("serve", [silent, garbage, closing])
def test_a_broken_broker_blocks_nothing_else(
    home: Home, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.3)

    async def scenario() -> None:
        async with serving(serve) as endpoint:
            url = endpoint.url.replace("mqtt://", "mqtt://someone:secret@")
            async with running(Agent(home, "Alice", url=url), connected=False) as alice:
                text = await alice.status("does not answer like an MQTT broker")
                assert "secret" not in text
                await register(home, "Bob")
                (message,) = await alice.send("Bob", "kept until there is a broker")
                assert [each.id for each in await alice.ledger()] == [message.id]

    asyncio.run(scenario())


def test_a_forbidden_subscription_is_reported(home: Home) -> None:
    endpoint, credentials = broker.admit(home, "default", "Alice")

    async def scenario() -> None:
        identity = Login("test", keep=False, user=credentials.user, password=credentials.password)
        connection = MqttTransport(endpoint, identity)
        await connection.connect()
        with pytest.raises(BrokerError, match="does not allow"):
            await connection.subscribe("#", 0)
        connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ("mqtt://a", [1883]),
        ("mqtt://a:1,mqtts://b", [1, 8883]),
        ("mqtt://a:1 , mqtt://b:2,mqtt://a:1", [1, 2]),
        ("mqtt://u:se,cret@a:1,mqtt://u:,@b:2", [1, 2]),
        ("", []),
    ],
)
def test_commas_separate_urls_except_in_a_password(given: str, ports: list[int]) -> None:
    found = endpoints(given)
    assert [endpoint.port for endpoint in found] == ports
    if "cret" in given:
        assert [endpoint.password for endpoint in found] == ["se,cret", ","]


@pytest.mark.parametrize(
    "given", ["mqtt://a,b", "mqtt://a:1,b:2", "mqtt://a,http://b", "mqtt://u:hidden@a,b"]
)
def test_an_invalid_list_of_urls_is_rejected_without_its_secrets(given: str) -> None:
    with pytest.raises(BrokerError, match="is not a broker URL") as refused:
        endpoints(given)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("first", [silent, garbage, closing, refusing, None])
def test_the_next_node_is_tried_immediately(
    home: Home, monkeypatch: pytest.MonkeyPatch, first: Serve | None
) -> None:
    """A node that does not answer gets its few seconds (here half of one), and no more."""
    monkeypatch.setattr(connector, "NODE_ANSWERS", Backoff(0.5, 60.0))
    _, credentials = broker.admit(home, "default", "Alice")
    good = broker.ensure(home)

    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            if first is None:  # nobody listens on that port
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    bad = f"mqtt://127.0.0.1:{probe.getsockname()[1]}"
            else:
                bad = (await stack.enter_async_context(serving(first))).url
            nodes = Connector(home, f"{bad},{good.url}")
            async with asyncio.timeout(mqtt.CONNECT_SECONDS):  # as long as a single node would get
                with contextlib.closing(await nodes.connect("default", "Alice")) as transport:
                    assert transport.endpoint.port == good.port
            assert nodes.turn(1)[0] == bad, "next time, the node that worked comes first"

    assert credentials.user == "default/alice"
    asyncio.run(scenario())


def test_a_login_fails_as_soon_as_its_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 3600.0)

    async def scenario() -> None:
        async with asyncio.timeout(30), serving(closing) as endpoint:
            with pytest.raises(ConnectionLost, match="it closed the connection"):
                await MqttTransport(endpoint, NOBODY).connect()

    asyncio.run(scenario())
