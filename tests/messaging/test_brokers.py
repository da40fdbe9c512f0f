"""The same guarantees hold on every broker: nothing is lost, duplicated or reordered, whoever is killed.

Alice and Bob have separate homes, so all that one knows of the other came through the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiomqtt
import pytest
from brokers import SHIPPED_MOSQUITTO, Amqtt, Broker, DebianMosquitto, Durability, Embedded, Mosquitto, Nats
from clients import Agent, running
from failpoints import FOLDER, Actor

from ledgers import messages, states
from relay.backoff import Backoff
from relay.home import Home
from relay.message import MAX_BODY, Message, State
from relay.messaging import publisher
from relay.messaging.envelope import Envelope, encode
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import Owner
from relay.messaging.transit import WINDOW
from relay.transport import topics
from relay.transport.credentials import Credentials, for_endpoint
from relay.transport.endpoint import Endpoint
from support import LONG, eventually, many

DOCS = Path(__file__).resolve().parents[2] / "docs" / "BROKERS.md"

TO_BOB = topics.inbox("default", "Bob", "Alice")

OWNER = Owner.of_folder(FOLDER)
"""An agent with it is the same as the actor of its name."""


LEAST = [Amqtt] if LONG else []


@pytest.fixture(params=[Embedded, Nats, Mosquitto, *LEAST], ids=lambda kind: kind.__name__.lower())
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """Yield a broker that has not been started."""
    kind: type[Broker] = request.param
    yield from _make_server(kind, tmp_path)


def _make_server(kind: type[Broker], tmp_path: Path) -> Iterator[Broker]:
    directory = tmp_path / "broker"
    directory.mkdir()
    server = kind(directory)
    yield server
    server.kill()


@pytest.fixture
def far(tmp_path: Path) -> Home:
    """Return Bob's home."""
    return Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()


@contextlib.contextmanager
def acting(home: Home, name: str, server: Broker) -> Iterator[Actor]:
    """Run an agent in a separate process that types whatever it receives; kill it after the block."""
    actor = Actor(home, name, server.url(name))
    actor.start()
    try:
        yield actor
    finally:
        actor.stop()


@contextlib.asynccontextmanager
async def plain_client(
    server: Broker, name: str, client_id: str = "", *, acknowledge: bool = True
) -> AsyncIterator[aiomqtt.Client]:
    """Yield a plain MQTT client with the rights of `name`; a client id makes its session persistent."""
    endpoint = Endpoint.of(server.url(name))
    client = aiomqtt.Client(
        endpoint.host,
        endpoint.port,
        username=endpoint.user,
        password=endpoint.password,
        identifier=client_id or f"plain-{name}",
        clean_session=not client_id,
        timeout=30,
    )
    client._client.manual_ack_set(not acknowledge)
    async with client:
        yield client


def register(home: Home, name: str) -> None:
    """Register an agent that has not announced itself yet."""
    with Ledger(home.ledger) as ledger:
        ledger.registry.register("default", name)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def bodies(messages: list[Message]) -> list[str]:
    return [message.body for message in messages]


def parcel(number: int, body: str, base: int = 1) -> bytes:
    """Return what Alice's client would publish for the `number`th message from another of her homes."""
    message = Message(f"id{number}", "Alice", "Bob", body, 1e9, State.QUEUED)
    return encode(Envelope(message, "another-home", number, base))


def test_messages_of_any_size_arrive_once_and_in_order_both_ways(
    home: Home, far: Home, server: Broker
) -> None:
    """Including the largest bodies, which JSON may make six times as long."""
    server.start()
    sent = [*numbers(many(50)), "x" * MAX_BODY, "\x01" * MAX_BODY, "语" * (MAX_BODY // 3)]

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=server.url("Alice"))) as alice,
            running(Agent(far, "Bob", url=server.url("Bob"))) as bob,
        ):
            await alice.sees("Bob")
            await bob.sees("Alice")
            for body in sent:
                await alice.send("bob", body)
                await bob.send("alice", body)
            for agent in (alice, bob):
                got = await agent.receive(len(sent))
                assert bodies(got) == sent
                for message in got:
                    await agent.inject(message)
            for agent in (alice, bob):
                await agent.all_are(State.INJECTED)
                assert agent.messages.empty()

    asyncio.run(scenario())


def test_mail_waits_for_an_absent_receiver(home: Home, far: Home, server: Broker) -> None:
    """There is more mail than is in flight at once."""
    server.start()
    register(home, "Bob")

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            count = WINDOW + 10
            await asyncio.gather(*(alice.send("Bob", body) for body in numbers(count)))

            # No more than every broker keeps; the rest follows as the first ones are confirmed.
            async def sent() -> bool:
                return Counter(await states(home)) == {State.SENT: WINDOW, State.QUEUED: count - WINDOW}

            await eventually(sent)
            async with running(Agent(far, "Bob", url=server.url("Bob"))) as bob:
                assert bodies(await bob.receive(count)) == numbers(count)
                await alice.all_are(State.STORED)
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_mail_reaches_a_receiver_that_comes_and_goes(home: Home, far: Home, server: Broker) -> None:
    server.start()

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            got, count = [], many(20)
            for round_ in range(3):
                async with running(Agent(far, "Bob", url=server.url("Bob"))) as bob:
                    if round_:
                        got += await bob.receive(count)
                        for message in got[-count:]:
                            await bob.inject(message)
                    await alice.sees("Bob")
                    assert bob.messages.empty()
                await alice.sees("Bob", online=False)
                for number in range(count):
                    await alice.send("Bob", str(count * round_ + number))
            assert bodies(got) == numbers(2 * count)

    asyncio.run(scenario())


def test_what_a_killed_sender_committed_is_delivered(home: Home, far: Home, server: Broker) -> None:
    server.start()
    register(home, "Bob")

    async def scenario() -> None:
        async with running(Agent(far, "Bob", url=server.url("Bob"))) as bob:
            with acting(home, "Alice", server) as sender:
                await bob.sees("Alice")
                sender.send("Bob", numbers(2_000))  # more than it can send until it is killed
                await bob.receive()
            await bob.sees("Alice", online=False)
            async with running(Agent(home, "Alice", url=server.url("Alice"), owner=OWNER)) as alice:
                committed = len(await alice.ledger())
                await alice.send("Bob", str(committed))
                got = await bob.receive(committed)
                assert bodies(got) == [str(number) for number in range(1, committed + 1)]
                await alice.outcome(State.STORED)
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_a_killed_receiver_has_typed_each_message_once(home: Home, far: Home, server: Broker) -> None:
    """Except the one being typed, which is reported as uncertain."""
    server.start()

    async def scenario() -> None:
        count, rounds = many(50), 3 if LONG else 2
        sent = numbers(count * rounds)
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            for round_ in range(rounds):
                with acting(far, "Bob", server) as receiver:
                    before = receiver.typed()
                    await alice.sees("Bob")
                    burst = sent[count * round_ :][:count]
                    await asyncio.gather(*(alice.send("Bob", body) for body in burst))
                    await eventually(lambda: receiver.typed() > before)  # noqa: B023
                await alice.sees("Bob", online=False)  # by its will
            with acting(far, "Bob", server) as receiver:

                async def ended() -> bool:
                    return {*await states(home)} <= {State.INJECTED, State.UNCERTAIN}

                await eventually(ended)
            typed = receiver.typed()
            uncertain = {each.body for each in await messages(home) if each.state is State.UNCERTAIN}
            assert typed == [n for n in sent if n in typed], "in order, and none twice"
            assert set(sent) - set(typed) <= uncertain
            assert len(uncertain) <= rounds

    asyncio.run(scenario())


def test_a_killed_broker_loses_nothing(home: Home, far: Home, server: Broker) -> None:
    """Nothing is duplicated either, even if the broker returns without what it had acknowledged."""
    server.start()
    count = many(20)

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=server.url("Alice"))) as alice,
            running(Agent(far, "Bob", url=server.url("Bob"))) as bob,
        ):
            await alice.sees("Bob")
            got = []
            kills = [False, True, True, False]  # whether it returns empty
            for burst, empty in enumerate(kills):
                for number in range(count):
                    await alice.send("Bob", str(count * burst + number))
                got += await bob.receive(burst)  # so the broker is killed before and during delivery
                await asyncio.to_thread(server.restart, empty=empty)
            sent = numbers(count * len(kills))
            got += await bob.receive(len(sent) - len(got))
            assert bodies(got) == sent
            await alice.all_are(State.STORED)
            for message in got:
                await bob.inject(message)
            await alice.all_are(State.INJECTED)
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_messages_that_a_broker_lost_are_published_again(home: Home, far: Home, server: Broker) -> None:
    """The broker had acknowledged mail for an absent receiver, and returns empty."""
    server.start()
    count = many(50)

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            async with running(Agent(far, "Bob", url=server.url("Bob"))):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            for number in range(count):
                await alice.send("Bob", str(number))
            await alice.all_are(State.SENT)
            await asyncio.to_thread(server.restart, empty=True)
            async with running(Agent(far, "Bob", url=server.url("Bob"))) as bob:
                assert bodies(await bob.receive(count)) == numbers(count)
                await alice.all_are(State.STORED)
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_mail_arrives_after_receiver_and_broker_are_killed_together(
    home: Home, far: Home, server: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no will is published, and the retained announcement, if any, says that Bob is online."""
    monkeypatch.setattr(publisher, "RETRY", Backoff(0.5, 60.0))
    server.start()
    count = many(50)

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            with acting(far, "Bob", server):
                await alice.sees("Bob")
                await asyncio.to_thread(server.kill)
            for number in range(count):
                await alice.send("Bob", str(number))
            await asyncio.to_thread(server.start)
            await alice.status("connected")
            async with running(Agent(far, "Bob", url=server.url("Bob"), owner=OWNER)) as bob:
                assert bodies(await bob.receive(count)) == numbers(count)
                await alice.all_are(State.STORED)
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_sessions_start_and_queue_while_the_broker_is_down(home: Home, far: Home, server: Broker) -> None:
    register(home, "Bob")

    async def scenario() -> None:
        alice = Agent(home, "Alice", url=server.url("Alice"))
        bob = Agent(far, "Bob", url=server.url("Bob"))
        async with running(alice, connected=False), running(bob, connected=False):
            text = await alice.status("no connection to the broker")
            assert f"127.0.0.1:{server.port}" in text
            assert "@" not in text, "no credentials"
            for number in range(20):
                await alice.send("Bob", str(number))
            await alice.all_are(State.QUEUED)
            await asyncio.to_thread(server.start)
            await alice.status("connected")
            assert bodies(await bob.receive(20)) == numbers(20)

    asyncio.run(scenario())


def test_duplicates_are_dropped_order_is_restored_and_foreign_payloads_are_counted(
    far: Home, server: Broker
) -> None:
    server.start()
    genuine = json.loads(parcel(1, "genuine"))
    foreign = [
        b"",
        b"\x00\xff" * 100,
        b"hello",
        b"[" * 10_000,
        b'{"v": 1}',
        json.dumps({**genuine, "v": 99}).encode(),
        json.dumps({**genuine, "from": "Carol"}).encode(),
        json.dumps({**genuine, "to": "Carol"}).encode(),
        json.dumps({**genuine, "seq": -1}).encode(),
        json.dumps({**genuine, "body": "x" * (MAX_BODY + 1)}).encode(),
        b"x" * 450_000,
    ]

    async def scenario() -> None:
        async with (
            running(Agent(far, "Bob", url=server.url("Bob"))) as bob,
            plain_client(server, "Alice") as alice,
        ):
            for payload in foreign:
                await alice.publish(TO_BOB, payload, qos=1)
            await alice.publish(topics.presence("default", "Alice"), b"not an announcement", qos=1)
            for number in (3, 3, 1, 2, 1, 5, 2, 4, 5, 6):
                await alice.publish(TO_BOB, parcel(number, str(number)), qos=1)
            assert bodies(await bob.receive(6)) == ["1", "2", "3", "4", "5", "6"]
            await eventually(lambda: bob.ignored == len(foreign) + 1)
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_unacknowledged_deliveries_arrive_once(home: Home, far: Home, server: Broker) -> None:
    """Even if the broker redelivers them late or never."""
    server.start()
    endpoint = Endpoint.of(server.url("Bob"))
    mailbox = for_endpoint(endpoint, Credentials("default", "bob", "")).client_id

    register(home, "Bob")

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            with contextlib.suppress(aiomqtt.MqttError):
                async with plain_client(server, "Bob", mailbox, acknowledge=False) as disconnecting:
                    await disconnecting.subscribe(topics.inbox_filter("default", "Bob"), 1)
                    for number in range(10):
                        await alice.send("Bob", str(number))
                    await alice.all_are(State.SENT)
                    assert await anext(aiter(disconnecting.messages))
            async with running(Agent(far, "Bob", url=server.url("Bob"))) as bob:
                assert bodies(await bob.receive(10)) == numbers(10)
                await alice.all_are(State.STORED)
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_presence_ends_with_a_goodbye_a_will_or_silence(home: Home, far: Home, server: Broker) -> None:
    server.start()
    topic = topics.presence("default", "Bob")

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            async with running(Agent(far, "Bob", url=server.url("Bob"))):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)  # by its goodbye
            with acting(far, "Bob", server):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)  # by its will
        # An agent's host and its broker died together, so no will was ever published.
        async with plain_client(server, "Bob") as ghost:
            await ghost.subscribe(topics.presence_filter("default"), 0)
            kept = {}
            while topic not in kept:
                message = await anext(aiter(ghost.messages))
                kept[str(message.topic)] = json.loads(message.payload)
            stale = {**kept[topic], "online": True, "seen": kept[topic]["seen"] - 3600}
            await ghost.publish(topic, json.dumps(stale), qos=1, retain=True)
        async with running(Agent(home, "Alice", url=server.url("Alice"))) as alice:
            await eventually(lambda: alice.client.informed)
            await alice.sees("Bob", online=False)

    asyncio.run(scenario())


async def measure_durability(server: Broker) -> Durability:
    """Return what the broker still has after kill -9 and a restart with its data, without a client's help."""
    server.start()
    async with plain_client(server, "Bob", "mailbox") as bob:
        await bob.subscribe(topics.inbox_filter("default", "Bob"), 1)
    async with plain_client(server, "Alice") as alice:
        await alice.publish(topics.presence("default", "Alice"), "kept", qos=1, retain=True)
        for number in range(10):
            await alice.publish(TO_BOB, str(number), qos=1)
    await asyncio.to_thread(server.settle)
    await asyncio.to_thread(server.restart)
    found: list[str] = []
    async with plain_client(server, "Alice") as alice, plain_client(server, "Bob", "mailbox") as bob:
        # Bob has not subscribed again, so only a persistent session delivers this, after everything else.
        await alice.publish(TO_BOB, "by the session", qos=1)
        await bob.subscribe(topics.inbox_filter("default", "Bob"), 1)
        await alice.publish(TO_BOB, "end", qos=1)
        async for message in bob.messages:
            if message.payload == b"end":
                break
            found.append(bytes(message.payload).decode())
        await bob.subscribe(topics.presence_filter("default"), 1)
        await alice.publish(topics.presence("default", "Alice"), "end", qos=1)
        async for message in bob.messages:
            if message.payload == b"end":
                break
            found.append(bytes(message.payload).decode())
    return Durability(
        mail=found[:10] == numbers(10), sessions="by the session" in found, retained="kept" in found
    )


@pytest.mark.parametrize("kind", [Embedded, Nats, Mosquitto, DebianMosquitto, *LEAST])
def test_the_docs_state_what_each_broker_keeps(kind: type[Broker], tmp_path: Path) -> None:
    (measured,) = (asyncio.run(measure_durability(server)) for server in _make_server(kind, tmp_path))
    assert measured == kind.durability
    table = re.search(r"<!-- kept: [^>]*-->\n(.*?)<!-- end -->", DOCS.read_text(), re.DOTALL)
    assert table is not None
    kept = ("yes" if each else "no" for each in (measured.mail, measured.sessions, measured.retained))
    assert f"| {kind.title} | {' | '.join(kept)} | {kind.saves} |" in table[1]


def test_the_shipped_configuration_saves_as_often_as_the_docs_say() -> None:
    settings = SHIPPED_MOSQUITTO.read_text().splitlines()
    assert Mosquitto.saves == "every 10 s"
    assert {"persistence true", "autosave_interval 10", "autosave_on_changes false"} <= set(settings)
