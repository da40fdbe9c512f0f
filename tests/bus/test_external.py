"""An external broker by its URL: login and TLS, with a real mosquitto.

What it is good for is in test_brokers.py.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import Mosquitto
from couriers import Agent, running

from relay.bus.message import State
from relay.home import Home


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    directory = tmp_path / "mosquitto"
    directory.mkdir()
    server = Mosquitto(directory)
    yield server
    server.kill()


def test_messages_and_receipts_go_over_it(home: Home, tmp_path: Path, mosquitto: Mosquitto) -> None:
    mosquitto.start()
    far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=mosquitto.url("Alice"))) as alice,
            running(Agent(far, "Bob.B", url=mosquitto.url("Bob.B"))) as bob,
        ):
            await alice.sees("Bob.B")
            for number in range(50):
                alice.courier.send("bob.b", str(number))
            got = await bob.receive(50)
            assert [m.body for m in got] == [str(number) for number in range(50)]
            bob.inject(got[0])
            assert (await alice.outcome(State.INJECTED)).id == got[0].id

    asyncio.run(scenario())
    assert not (home.broker / "endpoint.json").exists(), "the embedded broker is not needed"


def test_a_wrong_password_is_said(home: Home, mosquitto: Mosquitto) -> None:
    mosquitto.start()

    async def scenario() -> None:
        url = mosquitto.url("Alice").replace("s%40cret", "wrong")
        async with running(Agent(home, "Alice", url=url), connected=False) as alice:
            await alice.status("refuses the login")

    asyncio.run(scenario())


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto that speaks TLS, with a certificate that nobody but its own file vouches for."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH, and the connection to a broker with TLS was not tested")
    directory = tmp_path / "mosquitto"
    directory.mkdir()
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", directory / "key.pem", "-out", directory / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    (directory / "key.pem").chmod(0o644)
    server = Mosquitto(directory, tls=True)
    server.start()
    yield server
    server.kill()


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")  # paho's, after a refusal
def test_tls_is_verified(
    home: Home, tmp_path: Path, encrypted: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=encrypted.url("")), connected=False) as alice:
            await alice.status("certificate verify failed")
        gc.collect()  # while the warning is ignored
        # Trusted as any program with OpenSSL can be told to.
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mosquitto" / "cert.pem"))
        async with (
            running(Agent(home, "Alice", url=encrypted.url(""))) as alice,
            running(Agent(home, "Bob", url=encrypted.url(""))) as bob,
        ):
            alice.courier.send("Bob", "in private " * 5000)
            assert len((await bob.receive())[0].body) == 55000

    asyncio.run(scenario())
