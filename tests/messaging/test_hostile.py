"""One agent that does its worst with its own credentials: nobody else feels it, and nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import Agent, running

from relay.doctor import CheckResult, all_checks
from relay.errors import LedgerError
from relay.home import Home
from relay.transport import broker, broker_watch, packets, topics
from relay.transport.broker_watch import BrokerWatch, last_replacement
from relay.transport.endpoint import Endpoint

MB = 1 << 20
BIG = bytes(MB - 1000)  # the largest payload that the broker takes, but for its topic


class Hostile:
    """Connections of Mallory's, who has credentials of her own and no scruples."""

    def __init__(self, home: Home) -> None:
        self.endpoint, self.credentials = broker.admit(home, "default", "Mallory")
        self._open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """A connection that says nothing."""
        found = socket.create_connection((self.endpoint.host, self.endpoint.port), 60)
        self._open.append(found)
        return found

    def login(self, client_id: str = "", *, keep: bool = False) -> socket.socket:
        """keep: the broker is to keep the mail of `client_id` (MQTT 3.1.1 section 3.1.2.4)."""
        connection = self.connect()
        login = packets.connect(
            client_id or secrets.token_hex(8), self.credentials.user, self.credentials.password
        )
        flags = login.index(b"MQTT\x04") + 5
        connection.sendall(
            login[:flags] + bytes([login[flags] & ~(0x02 if keep else 0)]) + login[flags + 1 :]
        )
        assert packets.read(connection.makefile("rb")).body[1:] == b"\0"
        return connection

    def close(self) -> None:
        for each in self._open:
            each.close()


def retained(packet: bytes) -> bytes:
    """A PUBLISH as one to be kept (section 3.3.1.3)."""
    return bytes([packet[0] | 1]) + packet[1:]


def acknowledged(connection: socket.socket, count: int) -> None:
    """Read `count` acknowledgements, of 4 bytes each."""
    left = 4 * count
    while left:
        left -= len(connection.recv(left))


@pytest.fixture
def mallory(home: Home) -> Iterator[Hostile]:
    found = Hostile(home)
    yield found
    found.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def size(home: Home) -> int:
    """Bytes in the broker's files."""
    return sum(path.stat().st_size for path in home.broker.rglob("*") if path.is_file())


def memory(endpoint: Endpoint) -> int:
    """Resident bytes of the broker, at their highest."""
    status = Path(f"/proc/{endpoint.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def broker_rows(home: Home) -> list[tuple[CheckResult, str]]:
    return [(row.result, row.detail) for row in all_checks(home, home.state) if row.name == "broker"]


def others_talk(home: Home, *, team: str) -> None:
    """Two others, who come only now, find each other and talk."""

    async def scenario() -> None:
        alice, bob = Agent(home, "Alice", team=team), Agent(home, "Bob", team=team)
        async with running(alice), running(bob):
            await alice.send("Bob", "hello")
            (message,) = await bob.receive()
            assert message.body == "hello"

    asyncio.run(scenario())


def all_is_as_before(home: Home, endpoint: Endpoint) -> None:
    assert memory(endpoint) < broker_watch.MAX_MEMORY
    assert size(home) < 16 * MB
    for team in ("default", "web"):
        others_talk(home, team=team)
    assert broker.status(home) == endpoint, "the same broker, and it answers"
    assert [result for result, _ in broker_rows(home)] == [CheckResult.OK]


def test_a_gigabyte_of_retained_messages(home: Home, mallory: Hostile) -> None:
    """S1: they filled the store of all teams, for good."""
    connection = mallory.login()
    for number in range(1100):
        topic = topics.inbox("default", f"r{number}", "Mallory")
        connection.sendall(retained(packets.publish(topic, BIG)))
        if number % 100 == 99:
            acknowledged(connection, 100)
    all_is_as_before(home, mallory.endpoint)


def test_retained_messages_that_are_small_push_nobody_out_for_long(home: Home, mallory: Hostile) -> None:
    connection = mallory.login()
    for number in range(20_000):
        topic = topics.inbox("default", f"r{number}", "Mallory")
        connection.sendall(retained(packets.publish(topic, bytes(1000))))
        if number % 100 == 99:
            acknowledged(connection, 100)
    all_is_as_before(home, mallory.endpoint)


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_sessions_that_stay_and_what_waits_for_them(home: Home, mallory: Hostile) -> None:
    """S2: 600 sessions with 25 MB took the broker to 8.8 GB, and more after they had left."""
    inbox = topics.inbox_filter("default", "Mallory")
    for number in range(600):
        connection = mallory.login(f"mallory-{number}", keep=True)
        connection.sendall(packets.subscribe(inbox))
        acknowledged(connection, 1)
        connection.recv(1)  # a SUBACK has 5
        connection.close()
    connection = mallory.login()
    for _ in range(25):
        connection.sendall(packets.publish(topics.inbox("default", "Mallory", "Mallory"), BIG))
        acknowledged(connection, 1)
    all_is_as_before(home, mallory.endpoint)


def test_packets_that_are_none(home: Home, mallory: Hostile) -> None:
    """S2, and the log that tells of each has an end, too."""
    for number in range(3000):
        connection = mallory.login() if number % 10 == 0 else mallory.connect()
        with contextlib.suppress(OSError):
            connection.sendall(os.urandom(64))
        connection.close()
    all_is_as_before(home, mallory.endpoint)


@pytest.mark.usefixtures("many_files")
def test_connections_that_never_log_in(home: Home, mallory: Hostile) -> None:
    for _ in range(2000):
        mallory.connect().sendall(b"\x10")
    all_is_as_before(home, mallory.endpoint)


# The watch


class Stopped:
    """A process all of whose threads stand still, without the stop that its parent would be told of."""

    def __init__(self, pid: int) -> None:
        # ptrace(2): PTRACE_SEIZE, PTRACE_INTERRUPT. Its threads run again when this one ends.
        code = (
            "import ctypes, os, sys, time\n"
            "trace = ctypes.CDLL(None, use_errno=True).ptrace\n"
            "trace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
            f"for thread in map(int, os.listdir('/proc/{pid}/task')):\n"
            "    if trace(0x4206, thread, None, None) or trace(0x4207, thread, None, None):\n"
            "        sys.exit(os.strerror(ctypes.get_errno()))\n"
            "print('stopped', flush=True)\n"
            "sys.stdin.read()\n"
        )
        self._tracer = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._tracer.stdout is not None
        if self._tracer.stdout.readline() != "stopped\n":
            pytest.skip(
                f"a broker whose threads hang: ptrace is not allowed ({self._tracer.communicate()[1]})"
            )

    def close(self) -> None:
        self._tracer.kill()
        self._tracer.communicate()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a broker whose threads hang: ptrace of Linux")
def test_a_broker_that_hangs_is_replaced_and_nothing_is_lost(home: Home) -> None:
    """S17: of a plain SIGSTOP its parent hears; of this nobody did."""

    async def scenario() -> None:
        alice, bob = Agent(home, "Alice"), Agent(home, "Bob")
        async with running(alice), running(bob):
            endpoint = broker.status(home)
            assert endpoint is not None
            assert endpoint.pid is not None
            stopped = await asyncio.to_thread(Stopped, endpoint.pid)
            try:
                rows = await asyncio.to_thread(broker_rows, home)
                assert rows[0][0] is CheckResult.FAIL
                assert "does not answer" in rows[0][1]
                await alice.send("Bob", "said to a broker that hangs")
                (message,) = await bob.receive()
            finally:
                stopped.close()
            assert message.body == "said to a broker that hangs"
            assert broker.status(home) != endpoint

    asyncio.run(scenario())
    (row, *_) = broker_rows(home)
    assert row[0] is CheckResult.WARN
    assert "replaced 1 time, last at " in row[1]
    assert "it does not answer" in row[1]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def watch_of(home: Home, pid: int, login: tuple[str, str] = ("relay", "")) -> BrokerWatch:
    endpoint = broker.ensure(home)
    log = os.open(home.broker / "broker.log", os.O_RDWR | os.O_APPEND)
    return BrokerWatch(pid, (endpoint.host, endpoint.port), login, log, str(home.broker))


def test_one_that_outgrows_its_bounds_is_killed_and_the_reason_kept(
    home: Home, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_of(home, sleeper.pid)
    monkeypatch.setattr(broker_watch, "MAX_MEMORY", 1 << 16)
    ended: list[int] = []
    monkeypatch.setattr(signal, "SIGTERM", signal.SIGUSR1)
    before = signal.signal(signal.SIGUSR1, lambda number, _: ended.append(number))
    watch.run()
    signal.signal(signal.SIGUSR1, before)
    assert ended, "its supervisor ends, too"
    assert sleeper.wait() == -signal.SIGKILL
    found = last_replacement(str(home.broker))
    assert found is not None
    assert "of memory" in found.why
    assert "replacing the broker: it took" in (home.broker / "broker.log").read_text()


def test_one_that_refuses_logins_is_replaced_after_the_third(
    home: Home, sleeper: subprocess.Popen[bytes]
) -> None:
    watch = watch_of(home, sleeper.pid, ("relay", "wrong"))
    assert watch.look() == ""
    assert watch.look() == ""
    assert "does not answer" in watch.look()


def test_what_answers_is_left_alone(home: Home, sleeper: subprocess.Popen[bytes]) -> None:
    broker.ensure(home)
    password = (home.broker / "service").read_text()
    watch = watch_of(home, sleeper.pid, ("relay", password))
    assert [watch.look() for _ in range(5)] == [""] * 5


def test_its_log_has_an_end(
    home: Home, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_of(home, sleeper.pid)
    monkeypatch.setattr(broker_watch, "MAX_LOG", 10)
    assert (home.broker / "broker.log").stat().st_size > 10
    watch.look()
    assert (home.broker / "broker.log").stat().st_size < 10_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Home]:
    """A home on a small disk of its own."""
    root = tmp_path / "small"
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "none", root], check=False).returncode:
        pytest.skip("a full disk: this user may not mount one")
    home = Home.from_env({"RELAY_HOME": str(root)}).ensure()
    yield home
    broker.stop(home)
    subprocess.run(["umount", "-l", root], check=True)


def fill(path: Path) -> None:
    with pytest.raises(OSError, match="No space"), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_full_disk_does_not_end_the_broker(small: Home) -> None:
    """S4: until somebody ran `relay broker stop`, nothing went on when there was room again."""
    filler = small.state / "filler"

    async def scenario() -> None:
        alice, bob = Agent(small, "Alice"), Agent(small, "Bob")
        async with running(alice), running(bob):
            endpoint = broker.status(small)
            await alice.send("Bob", "before")
            await bob.receive()
            await asyncio.to_thread(fill, filler)
            with pytest.raises(LedgerError):  # refused at once
                for number in range(1000):
                    await alice.send("Bob", f"{number} " + "x" * 10_000)
            greet_own(small)
            filler.unlink()
            await alice.send("Bob", "afterwards")
            while (await bob.receive())[0].body != "afterwards":
                pass
            assert broker.status(small) == endpoint

    asyncio.run(scenario())


def greet_own(home: Home) -> None:
    """The broker does its work."""
    endpoint = broker.ensure(home)
    login = ("relay", (home.broker / "service").read_text())
    broker_watch.greet((endpoint.host, endpoint.port), login, 30)
