"""The brokers that the bus is tested on: each can be killed and restarted with the same data.

    Embedded    the nats-server that relay starts itself, with its configuration and access list
    Nats        the same program, with the configuration that relay ships (config/nats/nats-server.conf)
    Mosquitto   with the configuration that relay ships (config/mosquitto/mosquitto.conf)
    Amqtt       a broker in Python that keeps everything in memory: the least that a broker may do;
                `make test-long` only

Each listens on a free loopback port, the same one for the object's lifetime.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest

import debian
from relay.home import Home
from relay.transport import acl, broker, topics
from relay.transport.credentials import Credentials
from support import wait_until

ROOT = Path(__file__).resolve().parents[2]
AMQTT = ROOT / ".cache" / "amqtt"
AGENTS = {
    name: Credentials("default", topics.level(name), f"s@cret of {name}")
    for name in ("Alice", "Bob", "Bob.B")
}
"""The agents known to a broker with its own access list."""

SHIPPED_NATS = ROOT / "config" / "nats" / "nats-server.conf"
SHIPPED_MOSQUITTO = ROOT / "config" / "mosquitto" / "mosquitto.conf"


@dataclass(frozen=True, slots=True)
class Durability:
    """What a broker still has after kill -9 and a restart with its data, without any client's help.

    mail: QoS 1 messages that it had acknowledged, for an absent persistent session.
    sessions: such sessions with their subscriptions. retained: retained messages.
    """

    mail: bool
    sessions: bool
    retained: bool


class Broker(ABC):
    """title: its row in docs/BROKERS.md. saves: when acknowledged messages survive kill -9."""

    title: ClassVar[str]
    saves: ClassVar[str]
    durability: ClassVar[Durability]

    def __init__(self, directory: Path) -> None:
        """directory: for its data. Skips the test if this machine cannot run the broker."""
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
            # A connection that ends on this side keeps the kernel from lending the port to a client.
            with socket.create_connection(("127.0.0.1", self.port)):
                probe.accept()[0].close()

    @abstractmethod
    def url(self, name: str) -> str:
        """Return the URL with the credentials of the agent `name` in the default team."""

    @abstractmethod
    def start(self) -> None:
        """Start it; return when it listens."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it with SIGKILL if it is running; return when it is gone."""

    @abstractmethod
    def wipe(self) -> None:
        """Delete all its data; it must not be running."""

    def settle(self) -> None:  # noqa: B027  most save at once or never
        """Wait for a save, if it saves within seconds."""

    def restart(self, *, empty: bool = False) -> None:
        """Kill it and restart it immediately, without its data if `empty`."""
        self.kill()
        if empty:
            self.wipe()
        self.start()


class Embedded(Broker):
    title = "nats-server, embedded"
    saves = "never"
    durability = Durability(mail=False, sessions=False, retained=False)

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._home = Home.from_env({"RELAY_HOME": str(directory)}).ensure()

    def url(self, name: str) -> str:
        if broker.status(self._home) is None:
            credentials = broker.credentials(self._home, "default", name)
        else:
            _, credentials = broker.admit(self._home, "default", name)
        return f"mqtt://{_login(credentials)}@127.0.0.1:{self.port}"

    def start(self) -> None:
        broker.ensure(self._home, port=self.port, keep=True)

    def kill(self) -> None:
        status = broker.status(self._home)
        if status is not None and status.pid is not None:
            os.kill(status.pid, signal.SIGKILL)
            wait_until(lambda: broker.status(self._home) is None)
        broker.stop(self._home)  # its supervisor

    def wipe(self) -> None:
        pass  # it stores nothing


class _Server(Broker):
    """A broker that runs as a child process of the test."""

    command: list[str | Path]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._data = directory / "data"
        self._data.mkdir()

    def start(self) -> None:
        with open(self._directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._data
            )
        wait_until(self._listens)

    def _listens(self) -> bool:
        ended = self._process is None or self._process.poll() is not None
        assert not ended, f"the broker ended: {(self._directory / 'log').read_text()[-2000:]}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        shutil.rmtree(self._data)
        self._data.mkdir()


class Mosquitto(_Server):
    """Mosquitto with the users and access list that `relay broker acl` writes.

    tls: use TLS, with cert.pem and key.pem in `directory`. settings: in place of the shipped ones.
    """

    title = "Mosquitto 2.0, `config/mosquitto/mosquitto.conf`"
    saves = "every 10 s"
    durability = Durability(mail=True, sessions=True, retained=True)

    def __init__(self, directory: Path, *, tls: bool = False, **settings: str) -> None:
        super().__init__(directory)
        self._tls = tls
        self._settings = settings
        program = debian.require("mosquitto")
        config = directory / "mosquitto.conf"
        # As root, it would otherwise switch to a user who cannot write here.
        config.write_text(self.configuration() + ("user root\n" if os.getuid() == 0 else ""))
        (directory / "passwords").write_text(acl.mosquitto_passwords(AGENTS.values()))
        (directory / "passwords").chmod(0o600)
        (directory / "acl").write_text(acl.mosquitto(AGENTS.values()))
        self.command = [program, "-c", config]

    def url(self, name: str) -> str:
        return f"{'mqtts' if self._tls else 'mqtt'}://{_login(AGENTS[name])}@127.0.0.1:{self.port}"

    def configuration(self) -> str:
        """Return the shipped configuration with this test's addresses and paths."""
        return self._adapted(
            # Like Debian's own mosquitto.conf; Mosquitto rejects a second setting of it.
            f"persistence_location {self._data}/\n{SHIPPED_MOSQUITTO.read_text()}",
            {
                "listener": f"{self.port} 127.0.0.1",
                "certfile": f"{self._directory}/cert.pem" if self._tls else None,
                "keyfile": f"{self._directory}/key.pem" if self._tls else None,
                "password_file": f"{self._directory}/passwords",
                "acl_file": f"{self._directory}/acl",
                "autosave_interval": "1",  # one second; in place of the intervals that `saves` names
                **self._settings,
            },
        )

    def settle(self) -> None:
        self._wait_for_save()  # a save may already have been under way
        self._wait_for_save()

    def _wait_for_save(self) -> None:
        before = self._database()
        wait_until(lambda: self._database() != before)

    def _database(self) -> int:
        """Return a number that changes with each save; a save replaces the file."""
        try:
            return (self._data / "mosquitto.db").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    @staticmethod
    def _adapted(text: str, values: Mapping[str, str | None]) -> str:
        """Return the configuration `text` with these settings changed, or removed (None)."""
        lines = []
        for line in text.splitlines():
            key = line.partition(" ")[0]
            if key not in values:
                lines.append(line)
            elif values[key] is not None:
                lines.append(f"{key} {values[key]}")
        return "\n".join(lines) + "\n"


class DebianMosquitto(Mosquitto):
    """Mosquitto as Debian's package configures it, otherwise with its defaults: saved every 30 minutes."""

    title = "Mosquitto 2.0, `persistence true` alone"
    saves = "every 30 minutes"
    durability = Durability(mail=False, sessions=False, retained=False)

    def configuration(self) -> str:
        return (
            f"listener {self.port} 127.0.0.1\n"
            f"password_file {self._directory}/passwords\n"
            f"persistence true\npersistence_location {self._data}/\n"
        )

    def settle(self) -> None:
        """Do nothing: it would save only after the test."""


class Nats(_Server):
    """nats-server as a team's broker, with the users that `relay broker acl` writes."""

    title = "nats-server 2.15, `config/nats/nats-server.conf`"
    saves = "at once"
    durability = Durability(mail=True, sessions=True, retained=True)

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        config = directory / "nats-server.conf"
        text = SHIPPED_NATS.read_text()
        for shipped, here in {
            "host: 0.0.0.0": "host: 127.0.0.1",
            "port: 8883": f"port: {self.port}",
            "127.0.0.1:4222": "127.0.0.1:-1",
            "/var/lib/nats": str(self._data),
            "relay/relay.conf": "relay.conf",
            "  tls {": "  # tls {",
        }.items():
            assert shipped in text
            text = text.replace(shipped, here)
        config.write_text(text)
        (directory / "relay.conf").write_text(acl.nats(AGENTS.values()))
        self.command = [broker.binary(), "-c", config]

    def url(self, name: str) -> str:
        return f"mqtt://{_login(AGENTS[name])}@127.0.0.1:{self.port}"


class Amqtt(_Server):
    title = "amqtt 0.12"
    saves = "never"
    durability = Durability(mail=False, sessions=False, retained=False)

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        config = directory / "amqtt.yaml"
        config.write_text(
            "listeners:\n"
            f"  default: {{type: tcp, bind: '127.0.0.1:{self.port}'}}\n"
            "plugins:\n"
            "  amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}\n"
        )
        if not AMQTT.exists():
            pytest.skip("amqtt is not installed: `make test-long` does that")
        self.command = ["env", f"PYTHONPATH={AMQTT}", sys.executable, AMQTT / "bin" / "amqtt", "-c", config]

    def url(self, name: str) -> str:
        return f"mqtt://127.0.0.1:{self.port}"


def _login(agent: Credentials) -> str:
    """Return the login part of a URL."""
    return f"{quote(agent.user, safe='')}:{quote(agent.password, safe='')}"
