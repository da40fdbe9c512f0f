"""Real sessions of `relay wrap` on several hosts, with an external broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from peers import Cluster, Mosquitto

from hosts import Host, Network
from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, messages
from support import LONG, wait_until

Networks = Callable[[int], Network]
Brokers = Callable[[Host], Mosquitto]


def wrap(host: Host, name: str, broker: Mosquitto | Cluster) -> FakeAgent:
    if isinstance(broker, Mosquitto):
        return FakeAgent(host.relay, name).wrap(options=("--broker", broker.url))
    certificate = {"SSL_CERT_FILE": str(broker.certificate)}
    return FakeAgent(host.relay, name).wrap(options=("--broker", broker.url(name)), env=certificate)


def connected(session: FakeAgent) -> FakeAgent:
    """Return `session` once it is connected under its name."""
    wait_until(lambda: any("connected" in entry["status"] for entry in session.events("bus")), timeout=60)
    return session


def knows(host: Host, name: str) -> None:
    """Wait until the home of `host` knows an agent of that name."""
    with Ledger(Home.from_env(host.relay.environment).ledger) as ledger:
        wait_until(lambda: name in ledger.registry.known("default"))


def test_agents_on_two_hosts_exchange_messages_and_a_second_one_of_a_name_is_refused(
    network: Networks, mosquitto: Brokers
) -> None:
    net = network(2)
    broker = mosquitto(net.hosts[0])
    broker.start()
    alice, bob = wrap(net.hosts[0], "Alice", broker), wrap(net.hosts[1], "Bob", broker)
    knows(net.hosts[0], "Bob")
    alice.say("\n".join(f"@relay:Bob number {number}" for number in range(20)))
    bob.receives("number 19")
    bob.receives_exactly(*(("Alice", f"number {number}") for number in range(20)))
    bob.say("@relay:Alice all here")
    alice.receives("all here")
    alice.receives_exactly(("Bob", "all here"))
    for agent in (alice, bob):
        wait_until(lambda: {m["state"] for m in messages(agent.relay)} == {"injected"})  # noqa: B023
    other = wrap(net.hosts[0], "Bob", broker)
    other.notice("'Bob' is already on the bus, on host 'host-2'")
    other.say("@memory:save the agent lives on")
    other.receives("Saved to memory")


@pytest.mark.skipif(not LONG, reason="a name that is free again: RELAY_LONG=1")
@pytest.mark.slow
def test_a_refused_session_takes_the_name_once_it_is_free(network: Networks, mosquitto: Brokers) -> None:
    net = network(2)
    broker = mosquitto(net.hosts[0])
    broker.start()
    first = connected(wrap(net.hosts[0], "Bob", broker))
    other = wrap(net.hosts[1], "Bob", broker)
    other.notice("'Bob' is already on the bus")
    net.hosts[0].relay("stop", "Bob")
    assert first.ended()
    connected(other)


@pytest.mark.timeout(500)
def test_sessions_keep_talking_while_each_cluster_node_is_killed(network: Networks, tmp_path: Path) -> None:
    """The sessions are on separate hosts; messages arrive once and in order, whichever node is lost."""
    net = network(5)
    cluster = Cluster(net.hosts[:3], tmp_path)
    for node in cluster.nodes:
        cluster.start(node)
    alice, bob = wrap(net.hosts[3], "Alice", cluster), wrap(net.hosts[4], "Bob", cluster)
    knows(net.hosts[3], "Bob")
    knows(net.hosts[4], "Alice")
    sent: list[str] = []

    def exchange(about: str) -> None:
        bodies = [f"{about} {number}" for number in range(10 if LONG else 4)]
        sent.extend(bodies)
        alice.say("\n".join(f"@relay:Bob {body}" for body in bodies))
        bob.say("\n".join(f"@relay:Alice {body}" for body in bodies))

    def all_arrive() -> None:
        for agent, other in ((alice, "Bob"), (bob, "Alice")):
            wait_until(lambda: len(agent.texts()) >= len(sent), timeout=120, message=agent.log)  # noqa: B023
            assert agent.texts() == [(other, body) for body in sent]

    for node in cluster.nodes:
        exchange(f"{node} is up")
        cluster.kill(node)
        exchange(f"{node} is down")
        all_arrive()
        cluster.start(node)
        exchange(f"{node} is back")
        all_arrive()
    for agent in (alice, bob):
        wait_until(lambda: {m["state"] for m in messages(agent.relay)} == {"injected"})  # noqa: B023
