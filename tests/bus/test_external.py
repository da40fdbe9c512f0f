"""An external broker by its URL: a real mosquitto, with a password file and its documented persistence."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from couriers import Agent, eventually, running

import debian
from relay.bus.message import State
from relay.home import Home
from support import wait_until


class Mosquitto:
    """A mosquitto on a free port of loopback with one user, started and killed at will."""

    def __init__(self, program: Path, directory: Path, *, tls: bool = False) -> None:
        self._program = program
        self._directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"mqtt{'s' if tls else ''}://team:s%40cret@127.0.0.1:{self.port}"
        directory.chmod(0o777)  # started by root, it works as another user
        passwords = directory / "passwords"
        passwords.write_text("team:s@cret\n")
        self._hash(passwords)
        passwords.chmod(0o644)
        (directory / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\n"
            f"password_file {passwords}\n"
            "persistence true\n"
            f"persistence_location {directory}/\n"
            "autosave_interval 1\nautosave_on_changes true\n"
            "log_dest none\n"
            + (f"certfile {directory}/cert.pem\nkeyfile {directory}/key.pem\n" if tls else "")
            + ("user root\n" if os.getuid() == 0 else "")
        )
        self._process: subprocess.Popen[bytes] | None = None

    def _hash(self, passwords: Path) -> None:
        """mosquitto_passwd's format 7 (its source, password_mosq.c): PBKDF2-SHA512 with 101 rounds."""
        user, _, password = passwords.read_text().strip().partition(":")
        salt = os.urandom(12)
        digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
        encoded = [base64.b64encode(part).decode() for part in (salt, digest)]
        passwords.write_text(f"{user}:$7$101${encoded[0]}${encoded[1]}\n")

    def start(self) -> None:
        self._process = subprocess.Popen([self._program, "-c", self._directory / "mosquitto.conf"])
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self._process is None or self._process.poll() is None, "mosquitto ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    program = debian.require("mosquitto")
    directory = tmp_path / "mosquitto"
    directory.mkdir()
    server = Mosquitto(program, directory)
    yield server
    server.kill()


def test_messages_and_receipts_go_over_it(home: Home, tmp_path: Path, mosquitto: Mosquitto) -> None:
    mosquitto.start()
    far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=mosquitto.url)) as alice,
            running(Agent(far, "Bob.B", url=mosquitto.url)) as bob,
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


def test_sessions_start_and_queue_while_it_is_away(home: Home, mosquitto: Mosquitto) -> None:
    async def scenario() -> None:
        alice, bob = (Agent(home, name, url=mosquitto.url) for name in ("Alice", "Bob"))
        async with running(alice, connected=False), running(bob, connected=False):
            assert "s@cret" not in await alice.status("no connection to the broker")
            (sent,) = alice.courier.send("Bob", "queued")
            assert alice.courier._ledger.find(sent.id).message.state is State.QUEUED
            await asyncio.to_thread(mosquitto.start)
            await alice.status("connected")
            assert [m.body for m in await bob.receive()] == ["queued"]

    asyncio.run(scenario())


def test_killing_it_loses_no_message(home: Home, mosquitto: Mosquitto) -> None:
    mosquitto.start()

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice", url=mosquitto.url)) as alice,
            running(Agent(home, "Bob", url=mosquitto.url)) as bob,
        ):
            for number in range(60):
                alice.courier.send("Bob", str(number))
                if number == 30:
                    await asyncio.sleep(0)
                    await asyncio.to_thread(mosquitto.kill)
                    await asyncio.to_thread(mosquitto.start)
            assert [m.body for m in await bob.receive(60)] == [str(number) for number in range(60)]
            ledger = alice.courier._ledger
            await eventually(lambda: all(e.message.state is State.STORED for e in ledger.messages()))

    asyncio.run(scenario())


def test_a_wrong_password_is_said(home: Home, mosquitto: Mosquitto) -> None:
    mosquitto.start()

    async def scenario() -> None:
        url = mosquitto.url.replace("s%40cret", "wrong")
        async with running(Agent(home, "Alice", url=url), connected=False) as alice:
            await alice.status("refuses the login")

    asyncio.run(scenario())


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto that speaks TLS, with a certificate that nobody but its own file vouches for."""
    program = debian.require("mosquitto")
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
    server = Mosquitto(program, directory, tls=True)
    server.start()
    yield server
    server.kill()


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")  # paho's, after a refusal
def test_tls_is_verified(
    home: Home, tmp_path: Path, encrypted: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=encrypted.url), connected=False) as alice:
            await alice.status("certificate verify failed")
        gc.collect()  # while the warning is ignored
        # Trusted as any program with OpenSSL can be told to.
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mosquitto" / "cert.pem"))
        async with (
            running(Agent(home, "Alice", url=encrypted.url)) as alice,
            running(Agent(home, "Bob", url=encrypted.url)) as bob,
        ):
            alice.courier.send("Bob", "in private " * 5000)
            assert len((await bob.receive())[0].body) == 55000

    asyncio.run(scenario())
