"""The checks of `relay doctor --broker` name each fault of a broken broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import AGENTS, Amqtt, Mosquitto, Nats, _Server
from cluster import serving

import relay.transport.mqtt
from relay.errors import BrokerError
from relay.transport import topics
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint, endpoints
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.probe import probe
from relay.transport.probe_result import Finding, ProbeResult
from support import LONG, wait_until

pytestmark = pytest.mark.timeout(400)
"""Each broker that hangs or is unreachable costs the probe its full timeout."""

PAIR = [AGENTS["Alice"], AGENTS["Bob"]]
STEPS = ("reach", "login", "subscribe", "passes")


def rows(*urls: str) -> dict[str, ProbeResult]:
    return {row.key: row for row in asyncio.run(probe(endpoints(",".join(urls)), PAIR, native=1))}


def rows_if_connected(*urls: str) -> dict[str, ProbeResult]:
    """Return the rows, or none if the broker disconnects, as it does while it elects a leader."""
    with contextlib.suppress(BrokerError):
        return rows(*urls)
    return {}


def passes(*urls: str) -> bool:
    """Return whether a message passes at each; their logins keep agents from attacking each other there."""
    found = [rows_if_connected(url) for url in urls]
    return all("passes" in each and each["passes"].status is Finding.HOLDS for each in found)


def broken(found: dict[str, ProbeResult]) -> set[str]:
    return {row.key for row in found.values() if row.status is Finding.BROKEN}


def address(url: str) -> str:
    """Return the URL without the login: all agents use their own credentials."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    server = Nats(tmp_path)
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("kind", [Nats, Mosquitto, *([Amqtt] if LONG else [])])
def test_working_hung_and_unreachable_brokers_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[_Server]
) -> None:
    server = kind(tmp_path)
    url = address(server.url("Alice"))
    try:
        server.start()
        found = rows(url)
        assert {found[key].status for key in STEPS} == {Finding.HOLDS}, found
        assert server._process is not None
        server._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server._process.pid, os.WSTOPPED | os.WNOWAIT)
        monkeypatch.setattr(relay.transport.mqtt, "CONNECT_SECONDS", 0.5)
        found = rows(url)
        assert broken(found) == {"login"}
        assert "does not answer" in found["login"].detail
        assert "hangs" in found["login"].detail
        server.kill()
        found = rows(url)
        assert broken(found) == {"reach"}
        assert "is running" in found["reach"].detail
    finally:
        server.kill()


@pytest.mark.parametrize("kind", [Nats, Mosquitto])
def test_a_refused_login_is_reported(tmp_path: Path, kind: type[_Server]) -> None:
    server = kind(tmp_path)
    try:
        server.start()
        url = server.url("Alice").replace("s%40cret", "wrong")
        found = rows(url)
        assert broken(found) == {"login"}
        assert "refuses the login" in found["login"].detail
        assert "wrong" not in str(found)
    finally:
        server.kill()


def test_a_broken_store_is_reported(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's folder disappears while the broker is running, as when a disk is removed."""
    monkeypatch.setattr(relay.transport.mqtt, "PUBLISH_SECONDS", 3.0)
    nats.start()
    shutil.rmtree(nats._data)
    nats._data.write_text("not a folder")
    found = rows(address(nats.url("Alice")))
    assert found["reach"].status is Finding.HOLDS
    assert broken(found) & {"login", "subscribe", "passes"}, found
    assert "full or broken" in " ".join(found[key].detail for key in broken(found))


def test_a_full_store_is_reported(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mail for an absent agent fills it up to the limit in its configuration."""
    monkeypatch.setattr(relay.transport.mqtt, "PUBLISH_SECONDS", 3.0)
    config = nats._directory / "nats-server.conf"
    config.write_text(config.read_text().replace("10GB", "2MB"))
    nats.start()
    asyncio.run(fill(nats))
    found = rows(address(nats.url("Alice")))
    assert found["reach"].status is Finding.HOLDS
    assert broken(found) & {"login", "subscribe", "passes"}, found
    assert "storage is full" in " ".join(found[key].detail for key in broken(found))


async def fill(nats: Nats) -> None:
    endpoint = Endpoint.of(nats.url("Bob"))
    bob = MqttTransport(endpoint, Login("filled", True, endpoint.user, endpoint.password))
    await bob.connect()
    await bob.subscribe(topics.inbox_filter("default", "Bob"), 1)
    bob.close()
    endpoint = Endpoint.of(nats.url("Alice"))
    alice = MqttTransport(endpoint, Login("filling", False, endpoint.user, endpoint.password))
    await alice.connect()
    with contextlib.suppress(ConnectionLost), contextlib.closing(alice):
        for _ in range(100):
            await alice.publish(topics.inbox("default", "Bob", "Alice"), os.urandom(60_000))
        raise AssertionError("it accepted 6 MB")


def test_two_brokers_are_not_one_bus(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    first, second = Mosquitto(tmp_path / "1"), Mosquitto(tmp_path / "2")
    try:
        first.start()
        second.start()
        found = rows(address(first.url("Alice")), address(second.url("Alice")))
        assert broken(found) == {"cluster"}
        assert "they are different brokers" in found["cluster"].detail
        second.kill()
        found = rows(address(first.url("Alice")), address(second.url("Alice")))
        assert broken(found) == {"reach"}
        assert str(second.port) in found["reach"].detail
        assert "a message passes at 1 of 2" in found["cluster"].detail
    finally:
        first.kill()
        second.kill()


def test_a_cluster_is_one_bus_until_it_loses_its_majority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    with serving(tmp_path) as cluster:
        alices = cluster.url("Alice").split(",")
        urls = [address(url) for url in alices]
        # Once a message passes, the cluster has elected a leader.
        wait_until(lambda: passes(*alices))
        # With logins: the nodes have one configuration, so the attacks, of ten seconds, pass at one for all.
        steps = {*STEPS, "cluster"}
        assert not broken(rows(*alices)) & steps
        assert not broken(rows(urls[0]))
        cluster.nodes[2].kill()
        # Once a message passes at both, the remaining nodes have elected leaders.
        wait_until(lambda: passes(*alices[:2]))
        found = wait_until(
            lambda: broken(latest := rows_if_connected(*alices)) & steps == {"reach"} and latest
        )
        assert found
        assert str(cluster.nodes[2].port) in found["reach"].detail
        assert found["cluster"].status is Finding.UNPROVED
        assert "the 2 that work do" in found["cluster"].detail
        cluster.nodes[1].kill()
        found = rows(urls[0])
        assert found["reach"].status is Finding.HOLDS
        (bad,) = broken(found)
        assert bad in {"login", "subscribe", "passes"}
        assert "majority" in found[bad].detail
