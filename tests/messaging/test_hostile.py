"""An agent that attacks with its own credentials affects no other agent and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import resource
import signal
import socketserver
import subprocess
import sys
import threading
from asyncio import Future
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hostile
import packets
import pytest
from clients import Agent, abroad, running
from hostile import MB, Hostile

from relay.doctor import CheckResult, all_checks
from relay.errors import BrokerError, LedgerError
from relay.home import Home
from relay.message import MAX_BODY, Priority
from relay.messaging import inbox, publisher
from relay.transport import broker, broker_watch, nats_streams, topics
from relay.transport.broker_watch import BrokerWatch, last_replacement
from relay.transport.endpoint import Endpoint
from support import LONG, PATIENCE, eventually, many, wait_until


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def size(home: Home) -> int:
    """Return the bytes in the broker's files."""
    return sum(path.stat().st_size for path in home.broker.rglob("*") if path.is_file())


def memory(endpoint: Endpoint) -> int:
    """Return the broker's peak resident bytes."""
    status = Path(f"/proc/{endpoint.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def broker_rows(home: Home) -> list[tuple[CheckResult, str]]:
    return [(row.result, row.detail) for row in all_checks(home, home.state) if row.name == "broker"]


def check_others_can_talk(home: Home, *, team: str) -> None:
    """Check that two agents of two homes that connect only now find each other and can talk."""

    async def scenario() -> None:
        async with (
            running(
                Agent(home, "Bob", team=team)
            ) as bob,  # first: it waits for a broker that is being replaced
            running(await abroad(home, "Alice", team=team)) as alice,
        ):
            await alice.sees("Bob")
            await alice.send("Bob", "hello")
            (message,) = await bob.receive()
            assert message.body == "hello"

    asyncio.run(scenario())


def check_unchanged(home: Home, endpoint: Endpoint) -> None:
    assert memory(endpoint) < broker_watch.MAX_MEMORY
    assert size(home) < 16 * MB
    for team in ("default", "web"):
        check_others_can_talk(home, team=team)
    assert broker.status(home) == endpoint, "the same broker still answers"
    assert [result for result, _ in broker_rows(home)] == [CheckResult.OK]


def test_an_unacknowledged_flood_does_not_displace_others_messages(home: Home) -> None:
    """S10: during a flood, the broker kept dropping the oldest of all messages in flight."""
    with contextlib.ExitStack() as stack:
        alice, bob, mallory = (Hostile(home, name=name) for name in ("Alice", "Bob", "Mallory"))
        for each in (alice, bob, mallory):
            stack.callback(each.close)
        receiving, sending = bob.login(), alice.login()
        receiving.sendall(packets.subscribe(topics.inbox_filter("default", "Bob")))
        stream = receiving.makefile("rb")
        assert packets.read(stream).kind == 0x90  # SUBACK
        arrived: queue.Queue[bytes] = queue.Queue()

        def read() -> None:
            """Read without acknowledging: the broker drops the connection of a client that does not read."""
            body = b""
            while not body.endswith(b"hello"):
                body = packets.read(stream).body
                arrived.put(body)

        threading.Thread(target=read, daemon=True).start()
        hostile.flood(mallory, 300)  # more than the broker sends before Bob's session acknowledges
        sending.sendall(packets.publish(alice.topic(), b"hello"))
        hostile.read_acknowledgements(sending, 1)
        hostile.flood(mallory, 2_400)
        others = 0
        while not (body := arrived.get(timeout=PATIENCE)).endswith(b"hello"):
            topic = int.from_bytes(body[:2])
            receiving.sendall(b"\x40\x02" + body[2 + topic : 4 + topic])  # PUBACK (MQTT 3.1.1 section 3.4)
            others += 1
        assert others < 1000


# Limits on what one sender may keep waiting at a receiver

ATTACKS = {
    "S1": (
        f"retain_many(mallory, {1100 if LONG else 30}, BIG);"
        f"retain_many(mallory, {20_000 if LONG else 1_000}, bytes(1000))"
    ),
    "S2": (
        f"leave_sessions(mallory, {600 if LONG else 8}, 25);"
        "leave_subscriptions(mallory, 3, 400);"
        f"send_nonsense(mallory, {12_000 if LONG else 300});"
        f"never_log_in(mallory, {2000 if LONG else 200})"
    ),
    "S10": f"flood(mallory, {7_500 if LONG else 500})",
    "small": f"flood(mallory, {20_000 if LONG else 2_500}, 10, Priority.URGENT)",
    "streams": f"flood(mallory, {many(5_000)}, 10, new_streams=True)",
    "expired": f"flood(mallory, {2_000 if LONG else 200}, ttl=0.001)",
    "unacknowledged": f"flood_unacknowledged(mallory, {20_000 if LONG else 2_500})",
    "announcements": (
        f"announce(mallory, {20_000 if LONG else 1_500});"
        f"announce(mallory, {20_000 if LONG else 1_500}, ask=False)"
    ),
    "forgeries": f"send_forgeries(mallory, {5_000 if LONG else 400})",
}
"""More than the broker or a receiver keeps of one sender, each."""


def test_a_message_without_room_is_delivered_as_soon_as_there_is_room(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for its next retry, which may be far away."""
    monkeypatch.setattr(inbox, "MOST", 10)
    rarely = SimpleNamespace(wait=lambda attempt, _: 1.0 if attempt == 1 else 3600.0)
    monkeypatch.setattr(publisher, "RETRY", rarely)

    async def scenario() -> None:
        alice, bob = await abroad(home, "Alice"), Agent(home, "Bob")
        async with running(alice), running(bob):
            await alice.sees("Bob")
            sent = [str(number) for number in range(40)]
            for body in sent:
                await alice.send("Bob", body)
            await bob.status("Alice has reached the limit of waiting messages for Bob")
            for body in sent:
                (message,) = await bob.receive()
                assert message.body == body
                await bob.inject(message)

    asyncio.run(scenario())


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def start_attack(home: Home, attack: str) -> Awaitable[asyncio.subprocess.Process]:
    """Start Mallory in a separate process."""
    code = (
        "from hostile import *; from relay.home import Home\n"
        f"mallory = Hostile(Home.from_env()); {attack}; mallory.close()"
    )
    environment = {
        **os.environ,
        "RELAY_HOME": str(home.state.parent),
        "PYTHONPATH": str(Path(hostile.__file__).parent),
    }
    return asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=environment, stderr=subprocess.DEVNULL
    )


async def send_once_accepted(agent: Agent, to: str, **more: Any) -> None:
    """Send a message once the ledger accepts it, as a session does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(LedgerError):
                await agent.send(to, "hello", **more)
                return


async def others_talk(home: Home, over: Future[int]) -> None:
    """Let another team exchange messages, and now and then a new agent log in, until the attack is over."""
    carol, dave = await abroad(home, "Carol", team="web"), Agent(home, "Dave", team="web")
    async with running(carol), running(dave):
        await carol.sees("Dave")
        rounds = 0
        while not over.done() or rounds < 3:
            await send_once_accepted(carol, "Dave")
            await dave.receive()
            if rounds % 3 == 0:
                async with running(Agent(home, f"Erin-{rounds}", team=("default", "web")[rounds % 2])):
                    pass
            rounds += 1
            await asyncio.sleep(0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a receiver: /proc of Linux")
def test_an_attack_neither_disturbs_others_nor_leaves_anything_behind(home: Home, attack: str) -> None:
    """The holder of one agent's credentials cannot do what used to be possible.

    S1: retained messages filled the store of all teams, for good. S2: 600 sessions with 25 MB took the broker
    to 8.8 GB, and more after they had closed. S10: each of 7,500 valid envelopes of 60 KB was kept, and other
    agents' mail stopped for minutes.  1,000 subscriptions were the broker's limit for all agents together.
    """

    async def scenario() -> None:
        alice, bob = await abroad(home, "Alice"), Agent(home, "Bob")
        async with running(alice), running(bob):
            await alice.sees("Bob")
            before = resident()
            over = asyncio.ensure_future((await start_attack(home, attack)).wait())
            others = asyncio.create_task(others_talk(home, over))
            rounds = 0
            while not over.done() or rounds < 3:
                for priority in Priority:
                    await send_once_accepted(alice, "Bob", priority=priority)
                    while (await bob.receive())[0].sender != "Alice":
                        pass
                rounds += 1
                await asyncio.sleep(0.2)
            assert await over == 0
            await others
            assert resident() - before < 128 * MB
            assert sum(path.stat().st_size for path in home.state.glob("*ledger*")) < 96 * MB
            texts = [m for m in await bob.client.waiting() if m.sender == "Mallory"]
            assert len(texts) <= inbox.MOST
            assert sum(len(each.body) for each in texts) <= inbox.MOST_BYTES + MAX_BODY
            turns = [each.sender for each in await bob.client.waiting() if each.priority is Priority.LOW]
            assert turns[:2] in (["Mallory", "Alice"], ["Alice", "Mallory"], ["Alice", "Alice"])

    asyncio.run(scenario())
    endpoint = broker.status(home)
    assert endpoint is not None
    check_unchanged(home, endpoint)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of the broker: /proc of Linux")
def test_a_client_that_reads_nothing_neither_fills_memory_nor_delays_others(home: Home) -> None:
    """The broker used to buffer up to 64 MB per connection between two checks."""
    attack = "read_nothing(mallory, 200, 300)" if LONG else "read_nothing(mallory, 40, 60)"

    async def scenario() -> None:
        alice, bob = await abroad(home, "Alice"), Agent(home, "Bob")
        async with running(alice), running(bob):
            await alice.sees("Bob")
            over = asyncio.ensure_future((await start_attack(home, attack)).wait())
            during = most = 0
            while not over.done():
                await send_once_accepted(alice, "Bob")
                await bob.receive()
                during += not over.done()
                with contextlib.suppress(OSError, IndexError, AssertionError):  # it is being replaced
                    endpoint = broker.status(home)
                    assert endpoint is not None
                    most = max(most, memory(endpoint))
            assert during, "messages wait for the end of the attack"
            assert most < 1.5 * broker_watch.MAX_MEMORY

    asyncio.run(scenario())
    check_others_can_talk(home, team="default")


# The watch


class Stopped:
    """A process whose threads are all stopped, without the stop that its parent would be notified of."""

    def __init__(self, pid: int) -> None:
        # ptrace(2): PTRACE_SEIZE, PTRACE_INTERRUPT. Its threads continue when this process ends.
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
def test_a_hung_broker_is_replaced_without_losses(home: Home) -> None:
    """S17: the broker's parent notices a plain SIGSTOP; nobody noticed this stop."""

    async def scenario() -> None:
        alice, bob = await abroad(home, "Alice"), Agent(home, "Bob")
        async with running(alice), running(bob):
            await alice.sees("Bob")
            endpoint = broker.status(home)
            assert endpoint is not None
            assert endpoint.pid is not None
            stopped = await asyncio.to_thread(Stopped, endpoint.pid)
            replacing = asyncio.create_task(eventually(lambda: broker.status(home) not in {None, endpoint}))
            try:
                rows = await asyncio.to_thread(broker_rows, home)
                assert rows[0][0] is CheckResult.FAIL
                assert "does not answer" in rows[0][1]
                await alice.send("Bob", "sent to a hung broker")
                (message,) = await bob.receive()
            finally:
                stopped.close()
            assert message.body == "sent to a hung broker"
            await replacing

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
    return BrokerWatch(pid, (endpoint.host, broker.native_port(home) or 0), login, log, str(home.broker))


def test_a_broker_over_its_memory_limit_is_killed_and_the_reason_recorded(
    home: Home, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_of(home, sleeper.pid)
    monkeypatch.setattr(broker_watch, "MAX_MEMORY", 1 << 16)
    ended: list[int] = []
    monkeypatch.setattr(signal, "SIGTERM", signal.SIGUSR1)
    before = signal.signal(signal.SIGUSR1, lambda number, _: ended.append(number))
    watch.run()
    wait_until(lambda: ended)  # the watch ends its supervisor, too
    signal.signal(signal.SIGUSR1, before)
    assert sleeper.wait() == -signal.SIGKILL
    found = last_replacement(str(home.broker))
    assert found is not None
    assert "of memory" in found.why
    assert "replacing the broker: it took" in (home.broker / "broker.log").read_text()


def test_memory_is_watched_even_while_the_broker_does_not_answer(
    home: Home, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many clients that do not read, a broker grows by 1 GB per second."""
    watch, killed = watch_of(home, sleeper.pid), threading.Event()

    def hangs(*_: object) -> None:
        monkeypatch.setattr(broker_watch, "MAX_MEMORY", 1 << 16)
        killed.wait(PATIENCE)
        raise TimeoutError

    monkeypatch.setattr(nats_streams, "greet", hangs)
    monkeypatch.setattr(broker_watch, "INTERVAL", 0.01)
    monkeypatch.setattr(signal, "SIGTERM", signal.SIGUSR1)
    before = signal.signal(signal.SIGUSR1, lambda *_: killed.set())
    watching = threading.Thread(target=watch.run)
    watching.start()
    wait_until(killed.is_set, 10)
    watching.join(PATIENCE)
    assert not watching.is_alive()
    signal.signal(signal.SIGUSR1, before)
    assert sleeper.wait() == -signal.SIGKILL
    assert watch.killed


def test_a_broker_is_replaced_after_refusing_three_logins(
    home: Home, sleeper: subprocess.Popen[bytes]
) -> None:
    watch = watch_of(home, sleeper.pid, ("relay", "wrong"))
    assert watch.look() == ""
    assert watch.look() == ""
    assert "does not answer" in watch.look()


@pytest.fixture
def discarding_broker() -> Iterator[tuple[str, int]]:
    """Yield the address of a broker that admits everyone and delivers nothing, as with a broken store."""

    class Broker(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"INFO {}\r\n")
            self.rfile.read()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Broker) as server:
        threading.Thread(target=server.serve_forever).start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()


def test_a_broker_that_delivers_nothing_is_reported_and_replaced(
    home: Home,
    sleeper: subprocess.Popen[bytes],
    discarding_broker: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_watch, "ANSWER_SECONDS", 0.5)
    home.broker.mkdir(mode=0o700)
    log = os.open(home.broker / "broker.log", os.O_RDWR | os.O_CREAT)
    watch = BrokerWatch(sleeper.pid, discarding_broker, ("relay", "any"), log, str(home.broker))
    assert [watch.look() for _ in range(2)] == ["", ""]
    assert watch.look() == "it does not answer (timed out)"
    address = {"host": discarding_broker[0], "port": 1, "native": discarding_broker[1], "pid": sleeper.pid}
    (home.broker / "endpoint.json").write_text(json.dumps(address))
    with pytest.raises(BrokerError, match="does not answer properly: timed out"):
        broker.greet(home)


def test_a_broker_that_refuses_every_login_is_reported_and_replaced(home: Home) -> None:
    endpoint = broker.ensure(home)
    assert endpoint.pid is not None
    path = home.broker / "broker.json"
    configuration = json.loads(path.read_text())
    for user in configuration["authorization"]["users"]:
        user["password"] = "unknown"
    path.write_text(json.dumps(configuration))
    os.kill(endpoint.pid, signal.SIGHUP)
    row = wait_until(lambda: next((row for row in broker_rows(home) if row[0] is CheckResult.FAIL), None))
    assert "it refuses logins" in row[1]
    assert "replaced within half a minute" in row[1]
    found = wait_until(lambda: last_replacement(str(home.broker)))
    assert "it refuses logins" in found.why
    check_others_can_talk(home, team="default")
    assert broker.status(home) != endpoint


def test_the_watch_replaces_a_broker_within_half_a_minute() -> None:
    assert broker_watch.TIMES * (broker_watch.INTERVAL + broker_watch.ANSWER_SECONDS) < 30


def test_a_broker_that_answers_is_left_alone(home: Home, sleeper: subprocess.Popen[bytes]) -> None:
    broker.ensure(home)
    password = (home.broker / "service").read_text()
    watch = watch_of(home, sleeper.pid, ("relay", password))
    assert [watch.look() for _ in range(5)] == [""] * 5


def test_the_brokers_log_is_truncated(
    home: Home, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_of(home, sleeper.pid)
    monkeypatch.setattr(broker_watch, "MAX_LOG", 10)
    assert (home.broker / "broker.log").stat().st_size > 10
    watch.look()
    assert (home.broker / "broker.log").stat().st_size < 10_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Home]:
    """Yield a home on a small separate disk."""
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
    """S4: even with free space again, nothing used to work until the user ran `relay broker stop`."""
    filler = small.state / "filler"

    async def scenario() -> None:
        alice, bob = Agent(small, "Alice"), Agent(small, "Bob")
        async with running(alice), running(bob):
            endpoint = broker.status(small)
            await alice.send("Bob", "before")
            await bob.receive()
            await asyncio.to_thread(fill, filler)
            accepted = []
            with pytest.raises(LedgerError):
                for number in range(1000):
                    (message,) = await alice.send("Bob", f"{number} " + "x" * 10_000)
                    accepted.append(message.body)
            check_broker_works(small)
            filler.unlink()
            await alice.send("Bob", "afterwards")
            arrived = [each.body for each in await bob.receive(len(accepted) + 1)]
            assert arrived == [*accepted, "afterwards"]
            assert broker.status(small) == endpoint

    asyncio.run(scenario())


def check_broker_works(home: Home) -> None:
    """Pass a message through the broker."""
    broker.ensure(home)
    broker.greet(home)
