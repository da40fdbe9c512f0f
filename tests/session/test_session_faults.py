"""Faults around a session: wrong brokers, full disks, unusable homes. The agent keeps running."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, events, ps, settings
from support import LONG, Relay, processes_of, wait_until

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(talk: Talk) -> Iterator[int]:
    """Run a TCP server that does `talk` with each client; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    channel, _ = listener.accept()
                except OSError:
                    return  # closed
                threading.Thread(target=answer, args=(channel,), daemon=True).start()

        def answer(channel: socket.socket) -> None:
            with channel, contextlib.suppress(OSError):
                talk(channel)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def garbage(channel: socket.socket) -> None:
    channel.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
    channel.recv(1 << 16)


def silence(channel: socket.socket) -> None:
    while channel.recv(1 << 16):
        pass


def refusal(channel: socket.socket) -> None:
    """Send CONNACK 5, not authorized (MQTT 3.1.1 section 3.2.2.3)."""
    channel.recv(1 << 16)
    channel.sendall(b"\x20\x02\x00\x05")
    channel.recv(1 << 16)


def works_and_stops(alice: FakeAgent) -> None:
    alice.say("@memory:save the agent runs on\n@relay:you and writes to the user")
    alice.receives("Saved to memory")
    alice.relay("stop", alice.name)
    assert ps(alice.relay) == []
    log = (alice.relay.home / "state" / "session.log").read_text()
    assert "Traceback" not in log, log


@pytest.mark.parametrize(
    ("talk", "words"),
    [(garbage, "does not answer like an MQTT broker"), (refusal, "refuses the login")],
    ids=["garbage", "refusal"],
)
def test_an_invalid_broker_is_reported_and_the_agent_keeps_running(
    relay: Relay, talk: Talk, words: str
) -> None:
    with server(talk) as port:
        alice = FakeAgent(relay, "Alice").wrap(
            options=("--broker", f"mqtt://someone:secret@127.0.0.1:{port}")
        )
        wait_until(
            lambda: any(words in e["status"] for e in alice.events("bus")),
            message=alice.log,
        )
        works_and_stops(alice)
    assert "secret" not in relay("events", "--json").stdout


def test_a_hung_broker_delays_nothing(relay: Relay) -> None:
    with server(silence) as port:
        alice = FakeAgent(relay, "Alice").wrap(options=("--broker", f"mqtt://127.0.0.1:{port}"))
        with Ledger(Home.from_env(relay.environment).ledger) as ledger:
            ledger.registry.register("default", "Bob")
        alice.say("@relay:Bob hello\n@relay:Alice wrong")
        alice.receives("is the sender.")
        assert "offline" not in alice.received  # relay does not know
        works_and_stops(alice)


def test_a_broker_that_refuses_connections_is_reported(relay: Relay) -> None:
    settings(relay, 'broker = "mqtt://127.0.0.1:1"\n')
    alice = FakeAgent(relay, "Alice").wrap()
    wait_until(lambda: any("no connection to the broker" in e["status"] for e in alice.events("bus")))
    works_and_stops(alice)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80", "mqtt://", "mqtt://host:port"])
def test_an_invalid_broker_url_is_reported(relay: Relay, url: str) -> None:
    """It is refused on the command line. In relay.toml it is reported, and the agent runs without a bus."""
    done = relay("wrap", "--broker", url, "true", check=False)
    assert done.returncode != 0
    assert url in done.stderr and "Traceback" not in done.stderr
    settings(relay, f"broker = {json.dumps(url)}\n")
    alice = FakeAgent(relay, "Alice").wrap()
    assert url in alice.notice("The agent keeps running without messages.")
    alice.say("@relay:Bob hello\n@memory:save the agent runs on")
    alice.receives(url)
    alice.receives("Saved to memory")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("ledger.db", "The agent keeps running without messages."),
        ("memory.db", "The agent keeps running without memory."),
    ],
)
def test_an_agent_keeps_running_if_a_store_cannot_be_opened(relay: Relay, file: str, words: str) -> None:
    state = relay.home / "state"
    state.mkdir()
    (state / file).mkdir()
    alice = FakeAgent(relay, "Alice").wrap()
    alice.notice(words)
    alice.say("@memory:save something\n@relay:you hello")
    alice.receives(file)
    alice.say("still here\n")
    relay("stop", "Alice")
    assert ps(relay) == []
    assert "Traceback" not in (state / "session.log").read_text()


def test_a_bus_that_cannot_start_is_retried(relay: Relay) -> None:
    """No session ends or has to be restarted because of its bus."""
    lock = relay.home / "state" / "broker" / "users.lock"
    lock.mkdir(parents=True)
    alice = FakeAgent(relay, "Alice").wrap()
    assert "users.lock" in alice.notice("until then this agent neither sends nor receives")
    alice.say("@relay:you hello")
    alice.receives("users.lock")
    lock.rmdir()
    wait_until(lambda: any("connected to" in e["status"] for e in alice.events("bus")))
    relay("send", "--wait", "20", "Alice", "welcome")
    wait_until(lambda: ("the user", "welcome") in alice.texts())
    works_and_stops(alice)


def test_an_unusable_home_is_reported_before_anything_starts(relay: Relay) -> None:
    (relay.home / "state").write_text("in the way")
    done = relay("wrap", "touch", relay.home / "started", check=False)
    assert done.returncode == 1
    assert f"cannot use the directory {relay.home}/state" in done.stderr
    assert "set RELAY_HOME to a directory you own" in done.stderr
    assert not (relay.home / "started").exists()


def test_a_full_disk_stops_no_agent(relay: Relay) -> None:
    """Every write beyond a few kilobytes fails: journal, ledger and memory report that."""
    alice = FakeAgent(relay, "Alice")
    FakeAgent(relay, "Bob").wrap()  # creates the stores while there is space
    relay("stop", "Bob")
    subprocess.run(
        [*relay.command, "wrap", "-d", "-n", "Alice", *map(str, alice.command())],
        env=relay.environment, cwd=relay.home, check=True, timeout=60, capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)),
    )  # fmt: skip
    wait_until(lambda: (alice.folder / "received").exists())
    for number in range(20):
        alice.say(f"@memory:save note {number} " + "x" * 400)
    alice.receives("Free some space")
    alice.say("@relay:Bob hello")
    alice.receives("the message ledger")
    assert [row["name"] for row in ps(relay)] == ["Alice"]
    relay("stop", "Alice")
    assert ps(relay) == []


@pytest.mark.timeout(300)
def test_many_sessions_at_once_share_one_broker(relay: Relay) -> None:
    count = 20 if LONG else 6
    names = [f"Agent{n}" for n in range(count)]
    started = [
        subprocess.Popen(
            [*relay.command, "wrap", "-d", "-n", name, "cat"], env=relay.environment, cwd=relay.home,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for name in names
    ]  # fmt: skip
    assert [each.wait(240) for each in started] == [0] * count
    wait_until(lambda: sorted(row["name"] for row in ps(relay)) == sorted(names))
    connected = wait_until(
        lambda: (
            len(found := [e for e in events(relay) if "connected to" in e.get("status", "")]) == count
            and found
        )
    )
    assert len({e["status"] for e in connected}) == 1
    assert len([c for c in processes_of(relay.home).values() if "nats-server -c" in c]) == 1
