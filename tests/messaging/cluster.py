"""Three nats-servers on loopback that form one broker, each started from the file that relay ships.

Each is a child process of the test.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from brokers import AGENTS, _login

from guarded import make_certificate
from nats_cluster import adapted
from relay.transport import acl, broker
from support import wait_until

_HOST = "127.0.0.1"


class Node:
    """One of the three nodes. port: for MQTT clients. route: for the other nodes."""

    def __init__(self, number: int, port: int, route: int, directory: Path) -> None:
        self.name = f"nats-{number}"
        self.port = port
        self.route = route
        self.log = directory / f"{self.name}.log"
        self._config = directory / f"{self.name}.conf"
        self._data = directory / self.name
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, directory: Path, nodes: list[Node]) -> None:
        routes = {node.name: f"{_HOST}:{node.route}" for node in nodes}
        text = adapted(self.name, _HOST, self.port, routes, self._data, directory)
        self._config.write_text(text)

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [broker.binary(), "-c", self._config], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def listens(self) -> bool:
        ended = self._process is None or self._process.poll() is not None
        assert not ended, f"{self.name} ended: {self.log.read_text()[-2000:]}"
        with contextlib.suppress(OSError), socket.create_connection((_HOST, self.port), 1):
            return True
        return False

    def kill(self) -> None:
        """Kill it with SIGKILL if it is running; return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Make it hang: it answers nobody, but its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Cluster:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        make_certificate(directory)
        self.certificate = directory / "cert.pem"
        (directory / "relay.conf").write_text(acl.nats(AGENTS.values()))
        ports = _free_ports(6)
        self.nodes = [Node(i + 1, ports[i], ports[3 + i], directory) for i in range(3)]
        for node in self.nodes:
            node.configure(directory, self.nodes)

    def url(self, name: str) -> str:
        return ",".join(f"mqtts://{_login(AGENTS[name])}@{_HOST}:{node.port}" for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        wait_until(lambda: all(node.listens() for node in self.nodes))


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Cluster]:
    cluster = Cluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        for node in cluster.nodes:
            node.kill()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
