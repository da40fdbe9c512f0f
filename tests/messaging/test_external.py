"""An external broker, given by its URL: login and TLS, with a real mosquitto.

test_brokers.py tests its guarantees.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import Mosquitto
from clients import Agent, far_from, running

from relay.backoff import Backoff
from relay.home import Home
from relay.message import State
from relay.messaging import receiver, transit
from relay.messaging.envelope import Envelope, Receipt
from relay.messaging.receiver import Receiver
from support import eventually


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    directory = tmp_path / "mosquitto"
    directory.mkdir()
    server = Mosquitto(directory)
    yield server
    server.kill()


def test_messages_and_receipts_pass_through_an_external_broker(
    home: Home, tmp_path: Path, mosquitto: Mosquitto
) -> None:
    mosquitto.start()
    far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=mosquitto.url("Alice"))) as alice,
            running(Agent(far, "Bob.B", url=mosquitto.url("Bob.B"))) as bob,
        ):
            await alice.sees("Bob.B")
            for number in range(50):
                await alice.send("bob.b", str(number))
            got = await bob.receive(50)
            assert [m.body for m in got] == [str(number) for number in range(50)]
            await bob.inject(got[0])
            assert (await alice.outcome(State.INJECTED)).id == got[0].id

    asyncio.run(scenario())
    assert not (home.broker / "endpoint.json").exists(), "the embedded broker is not needed"


def test_a_wrong_password_is_reported(home: Home, mosquitto: Mosquitto) -> None:
    mosquitto.start()

    async def scenario() -> None:
        url = mosquitto.url("Alice").replace("s%40cret", "wrong")
        async with running(Agent(home, "Alice", url=url), connected=False) as alice:
            await alice.status("refuses the login")

    asyncio.run(scenario())


def certify(directory: Path, address: str) -> None:
    """Write a private authority (ca.pem) and its certificate for a broker at `address`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH, and the connection to a broker with TLS was not tested")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    authority = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a private authority")
    broker = ("-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=broker")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", f"subjectAltName={address}")
    constraint = ("-addext", "basicConstraints=critical,CA:false")
    for arguments in (authority, (*broker, *signed, *constraint)):
        subprocess.run(
            ["openssl", "req", "-x509", *key, *arguments], cwd=directory, check=True, capture_output=True
        )


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")  # paho's, after a refusal
@pytest.mark.parametrize(
    ("address", "trusted", "refusal"),
    [
        ("IP:127.0.0.1", True, None),
        ("IP:127.0.0.1", False, "certificate verify failed"),
        ("DNS:broker.example", True, "certificate is not valid for '127.0.0.1'"),
    ],
    ids=["private authority", "unknown authority", "of another host"],
)
def test_the_brokers_certificate_is_verified(
    home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    trusted: bool,
    refusal: str | None,
) -> None:
    directory = tmp_path / "mosquitto"
    directory.mkdir()
    certify(directory, address)
    if trusted:  # as for any program that uses OpenSSL
        monkeypatch.setenv("SSL_CERT_FILE", str(directory / "ca.pem"))
    server = Mosquitto(directory, tls=True)

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=server.url("Alice")), connected=False) as alice:
            if refusal is not None:
                assert server.url("Alice").split("@")[1] in await alice.status(refusal)
                return
            async with running(Agent(far_from(home), "Bob", url=server.url("Bob"))) as bob:
                await alice.sees("Bob")
                await alice.send("Bob", "in private " * 5000)
                assert len((await bob.receive())[0].body) == 55000

    server.start()
    try:
        asyncio.run(scenario())
        gc.collect()  # while the warning is still ignored
    finally:
        server.kill()


def test_outcomes_whose_receipts_are_lost_with_a_connection_are_requested(
    home: Home, tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipts had arrived, so the broker does not send them again."""
    monkeypatch.setattr(transit, "ASK", Backoff(1.0, 3600.0))
    mosquitto.start()
    far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()
    gate, take = asyncio.Event(), Receiver._take

    def slow(self: Receiver, item: Envelope | Receipt) -> asyncio.Future[Any]:
        processed = take(self, item)
        return asyncio.ensure_future(gated(processed)) if isinstance(item, Receipt) else processed

    async def gated(processed: asyncio.Future[Any]) -> Any:
        await gate.wait()
        return await processed

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=mosquitto.url("Alice"))) as alice,
            running(Agent(far, "Bob", url=mosquitto.url("Bob"))) as bob,
        ):
            await alice.sees("Bob")
            for number in range(20):
                await alice.send("Bob", str(number))
            got = await bob.receive(20)
            await alice.all_are(State.STORED)
            monkeypatch.setattr(receiver, "TAKING", 0)
            monkeypatch.setattr(Receiver, "_take", slow)
            for message in got:
                await bob.inject(message)
            transport = alice.client._receiver.publisher._transport
            assert transport is not None
            lines = transport._arrivals._lines
            await eventually(lambda: sum(map(len, lines.values())) >= 19)  # or more: repeated ones
            await asyncio.to_thread(mosquitto.settle)  # it has forgotten them by now
            await asyncio.to_thread(mosquitto.kill)
            alice.client._receiver.announcer.again()  # the next publish ends that connection
            await eventually(lambda: not alice.client.connected)
            gate.set()
            await asyncio.to_thread(mosquitto.start)
            await alice.all_are(State.INJECTED)

    asyncio.run(scenario())
