"""What the embedded broker stops: holders of one agent's credentials acting beyond that agent.

The attacker is a plain MQTT client (and a plain NATS client, over a socket) with Alice's credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator

import aiomqtt
from couriers import Agent, eventually, running

from relay.bus import broker, envelope, presence, topics
from relay.bus.credentials import Credentials
from relay.bus.envelope import Parcel, Receipt
from relay.bus.message import Message, State
from relay.home import Home


@contextlib.asynccontextmanager
async def attacker(home: Home) -> AsyncIterator[aiomqtt.Client]:
    endpoint, alices = await asyncio.to_thread(broker.admit, home, "default", "Alice")
    client = aiomqtt.Client(
        endpoint.host, endpoint.port, username=alices.user, password=alices.password, identifier="attacker"
    )
    async with client:
        yield client


def parcel(sender: str, to: str, body: str, sequence: int = 1) -> bytes:
    return envelope.encode(
        Parcel(Message(f"{sender}-{body}", sender, to, body, 1.0), "forged", sequence, sequence)
    )


def test_nobody_publishes_as_another(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, attacker(home) as client:
            carol = parcel("Carol", "Bob", "as Carol")
            person = parcel("you", "Bob", "as the person")
            await client.publish(topics.inbox("default", "Bob", "Carol"), carol, qos=1)
            await client.publish(topics.inbox("default", "Bob", "you"), person, qos=1)
            # Over the attacker's own topic the broker lets it through, and the receiver does not.
            await client.publish(topics.inbox("default", "Bob", "Alice"), carol, qos=1)
            await client.publish(
                topics.inbox("default", "Bob", "Alice"), parcel("Alice", "Bob", "own"), qos=1
            )
            assert [m.body for m in await bob.receive()] == ["own"]
            assert bob.messages.empty()
            assert bob.courier.ignored == 1

    asyncio.run(scenario())


def test_nobody_hears_anothers_mail_or_everybodys(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")), attacker(home) as client:
            for topic in (
                topics.inbox_filter("default", "Bob"),
                "relay/v1/default/agents/+/inbox/+",
                "relay/v1/default/agents/bob/inbox/#",
                topics.presence_filter("other"),
                "#",
                "$share/group/" + topics.inbox_filter("default", "Bob"),
            ):
                (granted,) = await client.subscribe(topic, qos=1)
                assert getattr(granted, "value", granted) == 0x80, topic

    asyncio.run(scenario())


def test_nobody_forges_anothers_presence_or_will(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Carol")):
            await bob.sees("Carol")
            (boot,) = [p.boot for p in bob.courier.roster() if p.name == "Carol"]
            gone = presence.encode("Carol", boot, 1e12, online=False)
            topic = topics.presence("default", "Carol")
            async with attacker(home) as client:
                await client.publish(topic, gone, qos=1, retain=True)
                own = presence.encode("Alice", "boot", 1.0, online=True)
                await client.publish(topics.presence("default", "Alice"), own, qos=1)
            await bob.sees("Alice")  # which was published after the forgery
            assert [p.online for p in bob.courier.roster() if p.name == "Carol"] == [True]
            endpoint, alices = await asyncio.to_thread(broker.admit, home, "default", "Alice")
            will = aiomqtt.Will(topic, gone, 1, True)
            with contextlib.suppress(aiomqtt.MqttError):  # refused here, or its will is not published
                async with aiomqtt.Client(
                    endpoint.host,
                    endpoint.port,
                    username=alices.user,
                    password=alices.password,
                    will=will,
                ) as client:
                    sock = client._client.socket()
                    assert isinstance(sock, socket.socket)
                    sock.shutdown(socket.SHUT_RDWR)
                    await anext(client.messages)
            async with attacker(home) as client:
                later = presence.encode("Alice", "later", 1.0, online=True)
                await client.publish(topics.presence("default", "Alice"), later, qos=1)
            await eventually(lambda: any(p.boot == "later" for p in bob.courier.roster()))
            assert [p.online for p in bob.courier.roster() if p.name == "Carol"] == [True]

    asyncio.run(scenario())


def test_nobody_settles_anothers_message(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, attacker(home) as client:
            away = Agent(home, "Carol")
            away.courier._ledger.close()
            (sent,) = bob.courier.send("Carol", "for Carol")
            receipt = Receipt(sent.id, "Alice", "Bob", State.INJECTED)
            await client.publish(topics.inbox("default", "Bob", "Alice"), envelope.encode(receipt), qos=1)
            await client.publish(topics.inbox("default", "Bob", "Alice"), parcel("Alice", "Bob", "x"), qos=1)
            await bob.receive()
            assert bob.courier._ledger.find(sent.id).message.state in {State.QUEUED, State.SENT}

    asyncio.run(scenario())


def test_nobody_gets_in_without_credentials(home: Home) -> None:
    endpoint, alices = broker.admit(home, "default", "Alice")

    async def login(user: str | None, password: str | None) -> bool:
        try:
            async with aiomqtt.Client(endpoint.host, endpoint.port, username=user, password=password):
                return True
        except aiomqtt.MqttError:
            return False

    async def scenario() -> None:
        assert await login(alices.user, alices.password)
        assert not await login(None, None)
        assert not await login(alices.user, "wrong")
        assert not await login("nobody", "")

    asyncio.run(scenario())


def nats_login(port: int, credentials: Credentials) -> str:
    """What nats-server answers to a NATS client (https://docs.nats.io/reference/nats-protocols)."""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        info = sock.recv(4096).decode(errors="replace")
        if not info.startswith("INFO"):
            return "no NATS port"
        login = {"user": credentials.user, "pass": credentials.password, "verbose": True}
        sock.sendall(b"CONNECT " + json.dumps(login).encode() + b"\r\nPING\r\n")
        return sock.recv(4096).decode(errors="replace")


def test_the_port_for_nats_clients_admits_nobody(home: Home) -> None:
    _, alices = broker.admit(home, "default", "Alice")
    log = (home.broker / "broker.log").read_text()
    (port,) = re.findall(r"client connections on 127\.0\.0\.1:(\d+)", log)
    assert "Authorization Violation" in nats_login(int(port), alices)


def test_credentials_differ_and_stay(home: Home) -> None:
    _, alices = broker.admit(home, "default", "Alice")
    bobs = broker.credentials(home, "default", "Bob")
    others = broker.credentials(home, "other", "Alice")
    assert broker.admit(home, "DEFAULT", "alice")[1] == alices
    assert len({c.password for c in (alices, bobs, others)}) == 3
    assert len({c.client_id for c in (alices, bobs, others)}) == 3
    assert alices.password not in repr(alices)
