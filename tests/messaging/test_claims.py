"""A name has only one holder: claims over a real broker, with connections from two homes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import NameInUse
from relay.home import Home
from relay.transport import broker, name_claims, presence, topics, wire
from relay.transport.credentials import Login
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.name_claims import contend
from relay.transport.presence import NameClaim, Presence

NEVER = 3600.0  # seconds; longer than any test waits
SOON = 0.05
TOPIC = topics.presence("default", "Bob")


@pytest.fixture(autouse=True)
def claim_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_claims, "QUIET_SECONDS", SOON)
    monkeypatch.setattr(name_claims, "OBJECTION_SECONDS", NEVER)


@contextlib.asynccontextmanager
async def connected(home: Home, *, will: bytes | None = None) -> AsyncIterator[MqttTransport]:
    """Yield a connection of Bob's, as if from any of his homes."""
    endpoint, credentials = await asyncio.to_thread(broker.admit, home, "default", "Bob")
    last_will = None if will is None else (TOPIC, will)
    identity = Login(
        f"relay-{secrets.token_hex(16)}", False, credentials.user, credentials.password, last_will
    )
    transport = MqttTransport(endpoint, identity)
    await transport.connect()
    try:
        yield transport
    finally:
        transport.close()


def announcement(session: str, *, online: bool = True) -> bytes:
    return presence.encode(Presence("Bob", online, 1.0, f"boot-{session}", session, host=f"at-{session}"))


def claim(session: str, *, held: bool = False) -> NameClaim:
    return NameClaim("Bob", session, f"at-{session}", held)


def is_claim(payload: bytes) -> bool:
    with contextlib.suppress(wire.ForeignPayload):
        return isinstance(presence.decode(payload, "bob"), NameClaim)
    return False


async def win(transport: MqttTransport, session: str, *, held: bool = False) -> None:
    async with asyncio.timeout(60):
        await contend(transport, "default", claim(session, held=held), announcement(session))


async def retained(home: Home) -> Presence | None:
    """Return what the broker retains for Bob."""
    async with connected(home) as transport:
        await transport.subscribe(TOPIC, 1)
        await transport.publish(TOPIC, b"that is all")
        async for inbound in transport.arriving():
            if inbound.payload == b"that is all":
                break
            found = presence.decode(inbound.payload, "bob")
            assert isinstance(found, Presence)
            return found
    return None


@contextlib.asynccontextmanager
async def held_by(home: Home, session: str, *, answers: bool = True) -> AsyncIterator[None]:
    """Hold the name as a client does: announce it, and again when another session claims it."""

    async def answer(transport: MqttTransport) -> None:
        async for inbound in transport.arriving():
            if is_claim(inbound.payload):
                await transport.publish(TOPIC, announcement(session), retain=True)

    async with connected(home, will=announcement(session, online=False)) as transport:
        await transport.subscribe(TOPIC, 1)
        await transport.publish(TOPIC, announcement(session), retain=True)
        answering = asyncio.create_task(answer(transport) if answers else asyncio.Event().wait())
        try:
            yield
        finally:
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering


def test_a_free_name_is_won_and_announced(home: Home) -> None:
    async def scenario() -> None:
        async with connected(home) as transport:
            await win(transport, "a")
        assert await retained(home) == presence.decode(announcement("a"), "bob")

    asyncio.run(scenario())


def test_a_held_name_is_refused_with_its_holders_host(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_claims, "QUIET_SECONDS", NEVER)

    async def scenario() -> None:
        async with held_by(home, "holder"), connected(home) as transport:
            with pytest.raises(NameInUse, match=r"'Bob' is already on the bus, on host 'at-holder'"):
                await win(transport, "a")
            found = await retained(home)
            assert found is not None
            assert found.session == "holder"

    asyncio.run(scenario())


def test_a_silent_holder_loses_the_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_claims, "OBJECTION_SECONDS", SOON)

    async def scenario() -> None:
        async with held_by(home, "dead", answers=False), connected(home) as transport:
            await win(transport, "a")
            found = await retained(home)
            assert found is not None
            assert found.session == "a"

    asyncio.run(scenario())


def test_the_holders_will_releases_the_name_immediately(home: Home) -> None:
    async def scenario() -> None:
        async with connected(home) as transport, asyncio.TaskGroup() as tasks:
            async with connected(home) as other:
                await other.subscribe(TOPIC, 1)
                await other.publish(TOPIC, announcement("dead"), retain=True)
                contest = tasks.create_task(win(transport, "a"))  # it would listen for an hour
                async for inbound in other.arriving():
                    if is_claim(inbound.payload):
                        break
                await other.publish(TOPIC, announcement("dead", online=False), retain=True)
            await contest

    asyncio.run(scenario())


def test_an_earlier_connection_of_the_same_session_does_not_object(home: Home) -> None:
    async def scenario() -> None:
        async with held_by(home, "a"), connected(home) as transport:
            await win(transport, "a", held=True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (claim("a"), claim("b")),
        (claim("b", held=True), claim("a")),
        (claim("a", held=True), claim("b", held=True)),
    ],
)
def test_one_of_two_simultaneous_claims_yields(
    home: Home, one: NameClaim, other: NameClaim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_claims, "QUIET_SECONDS", 1.0)

    async def scenario() -> None:
        async with connected(home) as first, connected(home) as second:
            outcomes = await asyncio.gather(
                win(first, one.session, held=one.held),
                win(second, other.session, held=other.held),
                return_exceptions=True,
            )
            assert outcomes[0] is None
            assert isinstance(outcomes[1], NameInUse)
            assert f"at-{one.session}" in str(outcomes[1])

    asyncio.run(scenario())


def test_a_broker_that_delivers_nothing_counts_as_a_lost_connection(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mute(MqttTransport):
        async def subscribe(self, topic: str, qos: int) -> None:
            pass

    monkeypatch.setattr(name_claims, "ECHO_SECONDS", SOON)
    monkeypatch.setattr("test_claims.MqttTransport", Mute)

    async def scenario() -> None:
        async with connected(home) as transport:
            with pytest.raises(ConnectionLost):
                await win(transport, "a")

    asyncio.run(scenario())


sessions = st.builds(claim, st.text("ab", min_size=1, max_size=2), held=st.booleans())


@given(sessions, sessions)
def test_exactly_one_of_two_sessions_yields(one: NameClaim, other: NameClaim) -> None:
    if one.session != other.session:
        assert one.yields_to(other) is not other.yields_to(one)


def test_a_claim_survives_encoding() -> None:
    payload = presence.encode(claim("a", held=True))
    assert presence.decode(payload, "bob") == claim("a", held=True)
    with pytest.raises(wire.ForeignPayload):
        presence.decode(payload, "alice")


FOREIGN = [b"", b"1", b"[]", b"{}", b'{"v":1,"kind":"claim","name":5}', b"\xff"]


def test_a_foreign_payload_is_neither_a_claim_nor_a_presence(subtests: pytest.Subtests) -> None:
    for payload in FOREIGN:
        with subtests.test(repr(payload)), pytest.raises(wire.ForeignPayload):
            presence.decode(payload, "bob")
