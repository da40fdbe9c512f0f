"""What runs on the hosts: a broker, and agents as a test sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from guarded import make_certificate
from hosts import Host
from nats_cluster import adapted
from relay.transport import acl, broker
from relay.transport.credentials import Credentials
from support import wait_until

SECONDS = 90.0
"""Seconds until a test fails; only a broken program takes that long."""

_AGENT = Path(__file__).with_name("agent.py")

Event = dict[str, Any]


class Mosquitto:
    """A mosquitto on a host that keeps its data when killed (docs/BROKERS.md)."""

    def __init__(self, program: Path, host: Host, directory: Path) -> None:
        self.url = f"mqtt://team:secret@{host.address}:1883"
        self._host = host
        self._configuration = directory / "mosquitto.conf"
        self._command: list[str | Path] = [program, "-c", self._configuration]
        self._log = directory / "mosquitto.log"
        self._process: subprocess.Popen[str] | None = None
        self._configuration.write_text(
            f"listener 1883 {host.address}\n"
            "allow_anonymous true\n"
            "persistence true\n"
            f"persistence_location {directory}/\n"
            "autosave_interval 1\nautosave_on_changes true\n"
            "max_queued_messages 0\nset_tcp_nodelay true\n"
            "log_dest stderr\n" + (f"user {'root' if os.getuid() == 0 else ''}\n" if os.getuid() == 0 else "")
        )

    def start(self) -> None:
        """Start it; return when it listens."""
        with self._log.open("w") as log:
            self._process = self._host.start(self._command, stderr=log)
        wait_until(lambda: "running" in self._log.read_text(), message=self._log.read_text)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class Cluster:
    """Three nats-servers, one on each of `hosts`, as config/nats/cluster.conf sets them up."""

    def __init__(self, hosts: Sequence[Host], directory: Path) -> None:
        self._hosts = {f"nats-{number}": host for number, host in enumerate(hosts, 1)}
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[str]] = {}
        make_certificate(directory, host=",".join(f"IP:{host.address}" for host in hosts))
        agents = [Credentials("default", name, "secret") for name in ("alice", "bob")]
        (directory / "relay.conf").write_text(acl.nats(agents))
        routes = {name: f"{host.address}:6222" for name, host in self._hosts.items()}
        for name, host in self._hosts.items():
            text = adapted(name, host.address, 8883, routes, directory / name, directory)
            (directory / f"{name}.conf").write_text(text)

    @property
    def certificate(self) -> Path:
        return self._directory / "cert.pem"

    @property
    def nodes(self) -> list[str]:
        return list(self._hosts)

    def url(self, name: str) -> str:
        login = f"default%2F{name.lower()}:secret"
        return ",".join(f"mqtts://{login}@{host.address}" for host in self._hosts.values())

    def start(self, node: str) -> None:
        with (self._directory / f"{node}.log").open("a") as log:
            command = [broker.binary(), "-c", self._directory / f"{node}.conf"]
            self._processes[node] = self._hosts[node].start(command, stdout=log, stderr=log)

    def kill(self, node: str) -> None:
        self._processes[node].kill()
        self._processes[node].wait()

    def host(self, node: str) -> Host:
        return self._hosts[node]


class Peer:
    """An agent on a host: a messaging client in a separate process, and all its events.

    keepalive, objection: see agent.py.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        broker: Mosquitto | Cluster,
        *,
        keepalive: int | None = None,
        objection: float | None = None,
    ) -> None:
        self.name = name
        self.events: list[Event] = []
        settings: dict[str, object] = {"RELAY_TEST_KEEPALIVE": keepalive, "RELAY_TEST_OBJECTION": objection}
        url = broker.url if isinstance(broker, Mosquitto) else broker.url(name)
        if isinstance(broker, Cluster):
            settings["SSL_CERT_FILE"] = broker.certificate
        self.process = host.start(
            [sys.executable, _AGENT, name, url],
            env={key: str(value) for key, value in settings.items() if value is not None},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.events.append(json.loads(line))

    def kill(self) -> None:
        """Kill it with SIGKILL, so it sends no goodbye; then `events` is complete."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def command(self, **command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def send(self, to: Peer, bodies: list[str]) -> None:
        for body in bodies:
            self.command(send=to.name, body=body)

    def expect(
        self, event: str, found: Callable[[Event], bool] = lambda event: True, after: int = 0
    ) -> Event:
        """Wait for such an event, from number `after` on, and return it. Raise AssertionError on timeout."""

        def matching() -> list[Event]:
            return [each for each in self.events[after:] if each["event"] == event and found(each)]

        return wait_until(matching, timeout=SECONDS, message=lambda: f"no such {event} in {self.events}")[0]

    def is_refused(self) -> bool:
        """Wait until it is refused its name or connected; return whether it was refused."""

        def known() -> bool | None:
            for event in self.events:
                if event["event"] == "refused":
                    return True
                if event["event"] == "status" and "connected" in event["text"]:
                    return False
            return None

        wait_until(lambda: known() is not None, timeout=SECONDS, message=lambda: f"neither: {self.events}")
        return bool(known())

    def connected(self, after: int = 0) -> Peer:
        """Wait until it reports that it is on the bus, from event number `after` on."""
        self.expect("status", lambda event: "connected" in event["text"], after)
        return self

    def sees(self, *others: Peer) -> None:
        """Wait until its roster shows them, and nobody else, as online."""
        expected = sorted({self.name, *(other.name for other in others)})

        def seen() -> bool:
            before = len(self.events)
            self.command(roster=True)
            return sorted(self.expect("roster", after=before)["online"]) == expected

        wait_until(seen, timeout=SECONDS, message=lambda: f"{self.name} does not see just {expected}")

    def bodies(self, sender: Peer) -> list[str]:
        """Return the messages from `sender` so far, in the order of injection."""
        return [e["body"] for e in self.events if e["event"] == "message" and e["sender"] == sender.name]

    def receives(self, sender: Peer, expected: list[str]) -> None:
        """Wait until exactly these messages have come from `sender`, in order and once each."""
        wait_until(
            lambda: len(self.bodies(sender)) >= len(expected),
            timeout=SECONDS,
            message=lambda: f"{self.name} has only {self.bodies(sender)} of {len(expected)}",
        )
        got = self.bodies(sender)
        assert got == expected, f"{self.name} has {got}"

    def has_outcomes(self, to: Peer, count: int) -> None:
        """Wait until it knows that `count` of its messages to `to` were injected."""

        def known() -> set[str]:
            return {
                e["id"]
                for e in self.events
                if e["event"] == "outcome" and e["to"] == to.name and e["state"] == "injected"
            }

        wait_until(
            lambda: len(known()) == count,
            timeout=SECONDS,
            message=lambda: f"{self.name} knows the outcome of {len(known())} of {count} messages",
        )
