"""The embedded broker stops holders of one agent's credentials from acting beyond that agent.

The attacker is Mallory, a member of the default team with real credentials: a plain MQTT client or a socket.
The broker acknowledges even what it drops, so each attack is judged by its effect on the victim.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import pytest
from clients import Agent, abroad, register, running
from hypothesis import given
from hypothesis import strategies as st

from relay import names
from relay.errors import InvalidName
from relay.home import Home
from relay.message import Message, State
from relay.messaging import envelope
from relay.messaging.envelope import Envelope, Receipt
from relay.transport import broker, presence, topics
from relay.transport.credentials import Credentials
from relay.transport.endpoint import Endpoint
from support import eventually, many

FLOOD = many(20_000)


def login(home: Home, name: str = "Mallory", team: str = "default") -> tuple[Endpoint, Credentials]:
    return broker.admit(home, team, name)


@contextlib.asynccontextmanager
async def client(
    home: Home,
    name: str = "Mallory",
    *,
    team: str = "default",
    identifier: str | None = None,
    will: aiomqtt.Will | None = None,
    clean_session: bool = True,
) -> AsyncIterator[aiomqtt.Client]:
    """Yield a plain MQTT client with the credentials of `name`."""
    endpoint, own = await asyncio.to_thread(login, home, name, team)
    mqtt = aiomqtt.Client(
        endpoint.host,
        endpoint.port,
        username=own.user,
        password=own.password,
        identifier=identifier if identifier is not None else f"plain-{secrets.token_hex(8)}",
        will=will,
        clean_session=clean_session,
        protocol=aiomqtt.ProtocolVersion.V311,
    )
    mqtt.pending_calls_threshold = 1000
    async with mqtt:
        yield mqtt


def parcel(sender: str, to: str, body: str, sequence: int = 1, *, origin: str = "forged") -> bytes:
    return envelope.encode(
        Envelope(
            Message(f"{sender}-{body.replace(' ', '-')}", sender, to, body, 1.0), origin, sequence, sequence
        )
    )


def own_message(to: str = "Bob", body: str = "own", sequence: int = 1) -> tuple[str, bytes]:
    """Return a message that Mallory may send; it arrives after everything that she published before it."""
    return topics.inbox("default", to, "Mallory"), parcel("Mallory", to, body, sequence)


async def boot_of(agent: Agent, name: str) -> str:
    """Return the boot id that `name` announced over the broker; the roster also lists this home's agents."""
    found: list[str] = []

    async def announced_here() -> bool:
        found[:] = [p.boot for p in await agent.client.roster() if p.name == name and p.boot]
        return bool(found)

    await eventually(announced_here)
    assert await agent.knows(name)
    return found[0]


def announcement(name: str, boot: str, *, online: bool) -> bytes:
    return presence.encode(presence.Presence(name, online, 1e11, boot))


def test_nobody_can_publish_as_another(home: Home, subtests: pytest.Subtests) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob:
            for sequence, (qos, retain) in enumerate(itertools.product([0, 1, 2], [False, True]), 1):
                with subtests.test(qos=qos, retain=retain):
                    async with client(home) as mallory:
                        for name in ("Alice", "you", "Bob", "alice", "+", "#"):
                            with contextlib.suppress(aiomqtt.MqttError, ValueError):  # paho refuses wildcards
                                topic, body = (
                                    topics.inbox("default", "Bob", name),
                                    f"{qos} {retain} as {name}",
                                )
                                forged = parcel(name, "Bob", body)
                                await mallory.publish(topic, forged, qos=qos, retain=retain)
                        await mallory.publish(*own_message(body=f"own {sequence}", sequence=sequence), qos=1)
                    assert [m.body for m in await bob.receive()] == [f"own {sequence}"]
                    assert bob.messages.empty()
                    assert bob.ignored == 0
        async with running(await abroad(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            await alice.sees("Bob")
            await alice.send("Bob", "the first that was kept")  # Bob's return brought no retained message
            kept = [f"own {sequence}" for sequence in range(1, 7)]
            assert [m.body for m in await bob.receive(7)] == [*kept, "the first that was kept"]

    asyncio.run(scenario())


def test_an_envelope_that_names_another_sender_is_ignored_and_counted(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, client(home) as mallory:
            topic = topics.inbox("default", "Bob", "Mallory")
            for name in ("Alice", "you", "Bob", "mallory2", "mallory\u2024", "\u217fallory"):
                await mallory.publish(topic, parcel(name, "Bob", f"as {name}"), qos=1)
            await mallory.publish(topic, parcel("Mallory", "Carol", "for another"), qos=1)
            await mallory.publish(*own_message(), qos=1)
            assert [m.body for m in await bob.receive()] == ["own"]
            assert bob.messages.empty()
            assert bob.ignored == 7

    asyncio.run(scenario())


SECRET = b"for Bob's eyes"

EAVESDROPPING = [
    topics.inbox_filter("default", "Bob"),
    topics.inbox("default", "Bob", "Carol"),
    "relay/v1/default/agents/bob/inbox/#",
    "relay/v1/default/agents/bob/#",
    "relay/v1/default/agents/+/inbox/+",
    "relay/v1/default/agents/+/inbox/mallory",
    "relay/v1/default/#",
    "relay/v1/#",
    "relay/#",
    "#",
    "+/#",
    "+/+/+/+/+/+/+",
    "/#",
    topics.presence_filter("other"),
    "relay/v1/+/presence/+",
    "$share/group/relay/v1/default/agents/bob/inbox/+",
    "$share/group/relay/v1/default/agents/mallory/inbox/+",
    "$queue/relay/v1/default/agents/bob/inbox/+",
    "$MQTT/#",
    "$MQTT/msgs/#",
    "$MQTT/sess/#",
    "$MQTT.>",
    "$JS/API/#",
    "$JS.API.>",
    "$SYS/#",
    "$SYS.>",
    "_INBOX/#",
    "_INBOX.>",
    "relay.v1.default.agents.bob.inbox.*",
    ">",
    "*",
]


def test_nobody_can_read_anothers_mail_or_another_teams(home: Home) -> None:
    async def scenario() -> None:
        async with (
            running(Agent(home, "Dave", team="other")),
            client(home, "Bob") as bob,
            client(home, "Carol") as carol,
        ):
            await bob.subscribe(topics.inbox_filter("default", "Bob"), qos=1)
            received: list[str] = []
            for topic in EAVESDROPPING:
                # A connection for each, as the broker closes some.
                with contextlib.suppress(aiomqtt.MqttError):
                    async with client(home) as mallory:
                        await mallory.subscribe(topics.inbox_filter("default", "Mallory"), qos=1)
                        await mallory.subscribe(topic, qos=1)
                        await carol.publish(topics.inbox("default", "Bob", "Carol"), SECRET, qos=1)
                        await mallory.publish(topics.inbox("default", "Mallory", "Mallory"), b"end", qos=1)
                        async for message in mallory.messages:
                            if message.payload == b"end":
                                break
                            received.append(f"{topic}: {message.topic}")
            assert received == []
            assert bytes((await anext(bob.messages)).payload) == SECRET

    asyncio.run(scenario())


def test_nobody_can_forge_anothers_presence(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Carol")):
            boot = await boot_of(bob, "Carol")
            async with client(home) as mallory:
                ghost = announcement("Ghost", "boot", online=True)
                forgeries = [
                    ("Carol", announcement("Carol", boot, online=False)),
                    ("Carol", announcement("Carol", "new", online=True)),
                    ("Carol", b""),
                    ("Ghost", ghost),
                ]
                for retain, (name, forged) in itertools.product([False, True], forgeries):
                    await mallory.publish(topics.presence("default", name), forged, qos=1, retain=retain)
                # On her own topic, she can announce only herself.
                await mallory.publish(topics.presence("default", "Mallory"), ghost, qos=1)
                own = announcement("Mallory", "boot", online=True)
                await mallory.publish(topics.presence("default", "Mallory"), own, qos=1)
                await boot_of(bob, "Mallory")
            assert await boot_of(bob, "Carol") == boot
            assert "Ghost" not in {p.name for p in await bob.client.roster()}
            assert bob.ignored == 1
            async with running(Agent(home, "Late")) as late:
                assert await boot_of(late, "Carol") == boot
                assert "Ghost" not in {p.name for p in await late.client.roster()}

    asyncio.run(scenario())


def test_nobody_can_leave_a_will_as_another(home: Home) -> None:
    async def scenario() -> None:
        async with (
            running(Agent(home, "Bob")) as bob,
            running(Agent(home, "Carol")),
            client(home, "Watcher") as watcher,
        ):
            await watcher.subscribe(topics.presence_filter("default"), qos=1)
            gone = announcement("Carol", await boot_of(bob, "Carol"), online=False)
            for retain in (False, True):
                for topic, payload in (
                    (topics.presence("default", "Carol"), gone),
                    (topics.inbox("default", "Bob", "Carol"), parcel("Carol", "Bob", "last will")),
                    (topics.inbox("other", "Bob", "Mallory"), parcel("Mallory", "Bob", "last will")),
                ):
                    will = aiomqtt.Will(topic, payload, 1, retain)
                    with contextlib.suppress(aiomqtt.MqttError):  # refused here, or its will is not published
                        async with client(home, will=will) as mallory:
                            await break_connection(mallory)
            # Her own will comes after those, so it is published after them.
            own = aiomqtt.Will(*own_message(body="own will"), 1, False)
            with contextlib.suppress(aiomqtt.MqttError):
                async with client(home, will=own) as mallory:
                    await break_connection(mallory)
            assert [m.body for m in await bob.receive()] == ["own will"]
            assert bob.messages.empty()
            # Carol would object immediately, so the roster would not show it.
            await watcher.publish(topics.presence("default", "Watcher"), b"end", qos=1)
            async for message in watcher.messages:
                assert message.payload != gone
                if message.payload == b"end":
                    break

    asyncio.run(scenario())


async def break_connection(mqtt: aiomqtt.Client) -> None:
    """Break the connection, so that the broker publishes the will."""
    sock = mqtt._client.socket()
    assert isinstance(sock, socket.socket)
    sock.shutdown(socket.SHUT_RDWR)
    await anext(mqtt.messages)


@pytest.mark.parametrize("here", [True, False])
def test_nobody_can_settle_anothers_message(home: Home, here: bool) -> None:
    """Wherever its receiver is."""

    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, client(home) as mallory:
            await register(home, "Carol", here=here)
            (sent,) = await bob.send("Carol", "for Carol")
            receipt = Receipt(sent.id, "Mallory", "Bob", State.INJECTED)
            await mallory.publish(topics.inbox("default", "Bob", "Mallory"), envelope.encode(receipt), qos=1)
            await mallory.publish(*own_message(), qos=1)
            await bob.receive()
            untouched = {State.STORED} if here else {State.QUEUED, State.SENT}
            assert {m.state for m in await bob.ledger() if m.id == sent.id} <= untouched

    asyncio.run(scenario())


def test_nobody_can_write_to_another_team(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Dave", team="other")) as dave, running(Agent(home, "Bob")) as bob:
            async with client(home) as mallory:
                for name in ("Mallory", "Dave", "you"):
                    await mallory.publish(
                        topics.inbox("other", "Dave", name), parcel(name, "Dave", "x"), qos=1
                    )
                online = announcement("Mallory", "boot", online=True)
                await mallory.publish(topics.presence("other", "Mallory"), online, qos=1, retain=True)
                await mallory.publish(*own_message(), qos=1)
                await bob.receive()
            async with client(home, "Eve", team="other") as eve:
                message = parcel("Eve", "Dave", "from the own team")
                await eve.publish(topics.inbox("other", "Dave", "Eve"), message, qos=1)
            assert [m.body for m in await dave.receive()] == ["from the own team"]
            assert dave.ignored == 0
            assert {p.name for p in await dave.client.roster()} == {"Dave"}

    asyncio.run(scenario())


def test_nobody_can_log_in_without_valid_credentials(home: Home) -> None:
    endpoint, own = login(home)

    async def admitted(user: str | None, password: str | None) -> bool:
        try:
            async with aiomqtt.Client(endpoint.host, endpoint.port, username=user, password=password):
                return True
        except aiomqtt.MqttError:
            return False

    async def scenario() -> None:
        assert await admitted(own.user, own.password)
        assert not await admitted(None, None)
        assert not await admitted(own.user, "wrong")
        assert not await admitted(own.user, "")
        assert not await admitted(own.user, None)
        assert not await admitted("nobody", "")
        assert not await admitted("default/bob", own.password)

    asyncio.run(scenario())


def nats(port: int, options: dict[str, object], *lines: str) -> str:
    """Return everything that nats-server sends a NATS client until it closes the connection.

    https://docs.nats.io/reference/reference-protocols/nats-protocol
    """
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.settimeout(10)
        reply = sock.recv(4096)
        assert reply.startswith(b"INFO"), reply
        text = "".join(f"{line}\r\n" for line in (f"CONNECT {json.dumps(options)}", *lines, "PING"))
        with contextlib.suppress(ConnectionError):
            sock.sendall(text.encode())
            while got := sock.recv(4096):
                reply += got
        return reply.decode(errors="replace")


def test_the_port_for_nats_clients_admits_nobody(home: Home) -> None:
    _, own = login(home)
    port = broker.native_port(home)
    assert port is not None
    login_of_her_own: dict[str, object] = {"user": own.user, "pass": own.password}
    token: dict[str, object] = {"auth_token": own.password}
    for options in (login_of_her_own, {}, {"user": "", "pass": ""}, token):
        reply = nats(port, {**options, "verbose": True}, "SUB > 1", "PUB relay.v1.default.x 0", "")
        assert "Authorization Violation" in reply
        assert "PONG" not in reply
        assert "MSG" not in reply


def test_the_broker_listens_only_for_mqtt_and_nats_and_only_on_loopback(home: Home) -> None:
    endpoint, _ = login(home)
    listening = sockets_of(endpoint.pid or 0)
    assert listening == {("127.0.0.1", endpoint.port), ("127.0.0.1", broker.native_port(home))}


def sockets_of(pid: int) -> set[tuple[str, int]]:
    """Return where the process listens for TCP (proc(5))."""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("needs /proc to see where the broker listens")
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))  # noqa: PTH115
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for row in (Path("/proc/net") / table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = row.split()
            if state == "0A" and rest[5] in inodes:
                address, _, port = local.partition(":")
                packed = b"".join(
                    bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8)
                )
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def test_nobody_can_wipe_a_mailbox_or_the_brokers_store(home: Home) -> None:
    """Bob is away, with mail waiting; nothing that Mallory can know or guess affects that mail."""
    _, bobs = login(home, "Bob")

    async def scenario() -> None:
        async with client(home, "Bob", identifier=bobs.client_id, clean_session=False) as bob:
            await bob.subscribe(topics.inbox_filter("default", "Bob"), qos=1)
        async with client(home, "Carol") as carol:
            await carol.publish(topics.inbox("default", "Bob", "Carol"), b"waiting", qos=1)
        guesses = [
            "bob",
            "Bob",
            bobs.user,
            "relay-bob",
            "relay-default/bob",
            f"{bobs.client_id[:-1]}*",
            "*",
            ">",
        ]
        for guess in guesses:
            for clean in (True, False):
                with contextlib.suppress(aiomqtt.MqttError):
                    async with client(home, identifier=guess, clean_session=clean) as mallory:
                        await mallory.unsubscribe(topics.inbox_filter("default", "Bob"))
        async with client(home) as mallory:
            for request in (
                "STREAM/PURGE/$MQTT_msgs",
                "STREAM/DELETE/$MQTT_sess",
                "CONSUMER/DELETE/$MQTT_msgs/x",
            ):
                for topic in (f"$JS/API/{request}", f"$JS/API/{request}".replace("/", ".")):
                    await mallory.publish(topic, b"", qos=1)
        async with client(home, "Bob", identifier=bobs.client_id, clean_session=False) as bob:
            assert bytes((await anext(bob.messages)).payload) == b"waiting"

    asyncio.run(scenario())


class Raw:
    """A socket that speaks MQTT 3.1.1 as Mallory, and can send what no client library would."""

    def __init__(self, home: Home) -> None:
        endpoint, own = login(home)
        self._socket = socket.create_connection((endpoint.host, endpoint.port), 10)
        body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"".join(
            len(field).to_bytes(2) + field
            for field in (secrets.token_hex(8).encode(), own.user.encode(), own.password.encode())
        )
        self._socket.sendall(b"\x10" + self._length(len(body)) + body)
        assert self._socket.recv(4) == b"\x20\x02\x00\x00"

    def publish(self, *packets: tuple[bytes, bytes]) -> None:
        """Publish at QoS 0 as fast as the broker reads; it may close the connection."""
        parts = []
        for topic, payload in packets:
            body = len(topic).to_bytes(2) + topic + payload
            parts.append(b"\x30" + self._length(len(body)) + body)
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(b"".join(parts))

    def close(self) -> None:
        self._socket.close()

    @staticmethod
    def _length(size: int) -> bytes:
        encoded = bytearray()
        while True:
            size, digit = divmod(size, 128)
            encoded.append(digit | (0x80 if size else 0))
            if not size:
                return bytes(encoded)


MALFORMED = [
    b"relay/v1/default/agents/bob/inbox/mallory\x00",
    b"relay/v1/default/agents/bob/inbox/alice\x00mallory",
    b"relay/v1/default/agents/bob/inbox/\xff\xfe",
    b"relay/v1/default/agents/bob/inbox/+",
    b"relay/v1/default/agents/bob/inbox/#",
    b"relay/v1/default/agents/bob/inbox/*",
    b"relay/v1/default/agents/bob/inbox/>",
    b"relay/v1/default/agents/bob/inbox/",
    b"relay/v1/default/agents/bob/inbox//mallory",
    b"relay/v1/default/agents/bob/inbox/alice/mallory",
    b"relay/v1/default/agents/bob/inbox/alice.mallory",
    b"relay/v1/default/agents/bob.inbox.alice/inbox/mallory",
    b"relay/v1/default/agents/bob inbox/mallory",
    b"relay.v1.default.agents.bob.inbox.alice",
    b"relay.v1.default.agents.bob.inbox.mallory",
    b"/relay/v1/default/agents/bob/inbox/mallory",
    b"relay/v1/default/agents/bob/inbox/mallory\r\nPUB relay.v1.default.agents.bob.inbox.alice 1\r\nx\r\n",
    b"",
    b"r" * 65535,
]


def test_malformed_topics_reach_nobody(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob:
            for topic in MALFORMED:
                raw = await asyncio.to_thread(Raw, home)
                await asyncio.to_thread(raw.publish, (topic, parcel("Alice", "Bob", "x")))
                await asyncio.to_thread(raw.close)
            async with client(home) as mallory:
                await mallory.publish(*own_message(), qos=1)
            assert [m.body for m in await bob.receive()] == ["own"]
            assert bob.messages.empty()
            assert bob.ignored == 0

    asyncio.run(scenario())


def test_a_flood_of_garbage_is_counted_and_discarded(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    topic = topics.inbox("default", "Bob", "Mallory").encode()

    async def scenario() -> None:
        async with running(await abroad(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            await alice.sees("Bob")
            raw = await asyncio.to_thread(Raw, home)
            await asyncio.to_thread(raw.publish, *[(topic, b"x")] * FLOOD)
            await alice.send("Bob", "still delivered")
            assert [m.body for m in await bob.receive()] == ["still delivered"]
            await eventually(lambda: bob.ignored == FLOOD)
            assert [m.body for m in await bob.ledger()] == ["still delivered"]
            assert len(caplog.records) < 100, "a session's log must not fill the disk"
            await asyncio.to_thread(raw.close)

    asyncio.run(scenario())


def test_an_oversized_payload_does_no_harm(home: Home) -> None:
    topic = topics.inbox("default", "Bob", "Mallory").encode()

    async def scenario() -> None:
        async with running(await abroad(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            await alice.sees("Bob")
            for size, ignored in (
                (envelope.MAX_PAYLOAD + 1, 1),
                (3 << 20, 1),
            ):  # the broker refuses the second
                raw = await asyncio.to_thread(Raw, home)
                await asyncio.to_thread(raw.publish, (topic, b" " * size))
                await alice.send("Bob", f"after {size}")
                assert [m.body for m in await bob.receive()] == [f"after {size}"]
                await eventually(lambda expected=ignored: bob.ignored == expected)
                await asyncio.to_thread(raw.close)

    asyncio.run(scenario())


def test_a_retained_message_in_an_inbox_is_ignored(home: Home) -> None:
    """The broker resends it at every subscription, even after its id was pruned."""

    async def scenario() -> None:
        async with client(home) as mallory:
            topic, message = own_message()
            await mallory.publish(topic, message, qos=1, retain=True)
        for _ in range(2):
            async with running(await abroad(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
                await alice.sees("Bob")
                await alice.send("Bob", "end")
                while [m.body for m in await bob.receive()] != ["end"]:
                    pass
                assert "own" not in [m.body for m in await bob.ledger()]
                assert bob.ignored == 1

    asyncio.run(scenario())


valid_names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9_])?", fullmatch=True)


@given(valid_names, valid_names)
def test_different_names_have_different_topic_levels(one: str, other: str) -> None:
    assert (topics.level(one) == topics.level(other)) == names.same(one, other)
    assert not set(topics.level(one)) & set("/+#.*> \0$")


@given(st.text(max_size=12))
def test_no_valid_name_contains_the_substitute_for_a_dot(text: str) -> None:
    with contextlib.suppress(InvalidName):
        assert "~" not in names.validate(text)


@given(*[valid_names] * 3)
def test_a_topic_names_its_publisher(team: str, to: str, sender: str) -> None:
    parsed = topics.parse(topics.inbox(team, to, sender))
    assert parsed == topics.InboxTopic(topics.level(team), topics.level(to), topics.level(sender))
    seen = topics.parse(topics.presence(team, sender))
    assert seen == topics.PresenceTopic(topics.level(team), topics.level(sender))
