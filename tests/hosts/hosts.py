"""Simulated hosts, each with its own network, relay home and programs, on one wire.

with make_hosts(2) as network:
    network.hosts[1].start(["mosquitto", ...])
    network.shape(delay=0.1, loss=0.05)
    network.cut(network.hosts[0])
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from wire import NETWORK

from support import Relay, clean_environment, processes_of, wait_until

_WIRE = Path(__file__).with_name("wire.py")


class Host:
    """A simulated host; `pid` is a process in its namespaces."""

    def __init__(self, number: int, pid: int, home: Path) -> None:
        self.number = number
        self.address = f"{NETWORK}{number + 1}"
        self.home = home
        user = [] if os.getuid() == 0 else ["-U", "--preserve-credentials"]
        self._enter = ["nsenter", "-t", str(pid), *user, "-n", "-u", "--"]
        self._network = Path(f"/proc/{pid}/ns/net").readlink()
        self._holder = pid
        self._started: list[subprocess.Popen[str]] = []
        self.relay = Relay(home)
        self.relay.command = self._enter + self.relay.command

    def start(
        self, command: Iterable[str | Path], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a program on this host, in its relay home (or another, by `env`); its pid is the Popen's."""
        environment = clean_environment(self.home) | dict(env or {})
        process = subprocess.Popen([*self._enter, *command], env=environment, text=True, **options)
        self._started.append(process)
        return process

    def processes(self) -> list[int]:
        """Return the processes that run on this host."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").readlink() == self._network:
                    found.append(int(entry.name))
        return [pid for pid in found if pid != self._holder]

    def stop(self) -> None:
        """Stop what runs here, as a user would; kill the rest."""
        if any("/relay/session/" in command for command in processes_of(self.home).values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.relay("stop", "--all", check=False, timeout=30)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        wait_until(lambda: not self.processes())


class Network:
    """The wire between `hosts`: it delays and loses packets, and cuts hosts off."""

    def __init__(self, wire: subprocess.Popen[str], hosts: list[Host]) -> None:
        self.hosts = hosts
        self._wire = wire

    def shape(self, *, delay: float = 0.0, loss: float = 0.0) -> None:
        """From now on, delay packets by `delay` seconds, and lose a fraction `loss` (0 to 1) of them."""
        self._command(delay=delay, loss=loss)

    def cut(self, *hosts: Host) -> None:
        """From now on, cut off exactly these hosts, in both directions."""
        self._command(cut=[host.number for host in hosts])

    def heal(self) -> None:
        self.cut()

    def _command(self, **command: object) -> None:
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.write(json.dumps(command) + "\n")
        self._wire.stdin.flush()
        assert self._wire.stdout.readline() == "{}\n"


@contextlib.contextmanager
def make_hosts(count: int, *, seed: int = 1) -> Iterator[Network]:
    """Yield a network of that many hosts; skip the test, with the reason, if the system allows none."""
    if sys.platform != "linux" or shutil.which("nsenter") is None:
        pytest.skip("delivery between hosts: network namespaces need Linux and nsenter(1)")
    wire = subprocess.Popen(
        [sys.executable, _WIRE, str(count), str(seed)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert wire.stdin is not None
    assert wire.stdout is not None
    homes = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp")).resolve()  # a socket's path is limited
    hosts: list[Host] = []
    try:
        reply = json.loads(wire.stdout.readline())
        if "error" in reply:
            pytest.skip(f"delivery between hosts: no network namespaces with TUN devices ({reply['error']})")
        for number, pid in enumerate(reply["hosts"]):
            home = homes / str(number)
            home.mkdir()
            hosts.append(Host(number, pid, home))
        yield Network(wire, hosts)
    finally:
        for host in hosts:
            host.stop()
        wire.stdin.close()
        wire.stdout.close()
        wire.wait()
        shutil.rmtree(homes, ignore_errors=True)
