"""Messages, presence and names between hosts, over links that are good, bad, and cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from peers import Mosquitto, Peer

from hosts import Host, Network

Networks = Callable[[int], Network]
Brokers = Callable[[Host], Mosquitto]


def numbered(text: str, count: int) -> list[str]:
    return [f"{text} {number}" for number in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_messages_go_between_all_hosts_in_order_and_once(
    network: Networks, mosquitto: Brokers, count: int
) -> None:
    hosts = network(count).hosts
    broker = mosquitto(hosts[0])
    broker.start()
    peers = [Peer(host, name, broker) for host, name in zip(hosts, ["Alice", "Bob", "Carol"], strict=False)]
    for peer in peers:
        peer.connected().sees(*(other for other in peers if other is not peer))
    pairs = list(itertools.permutations(peers, 2))
    for sender, receiver in pairs:
        sender.send(receiver, numbered(sender.name, 30))
    for sender, receiver in pairs:
        receiver.receives(sender, numbered(sender.name, 30))
        sender.learns(receiver, 30)
    peers[-1].kill()
    peers[0].sees(*peers[1:-1])


def test_a_slow_and_lossy_link_loses_and_reorders_nothing(network: Networks, mosquitto: Brokers) -> None:
    """200 ms there and back to the broker, and 5 % of the packets are lost."""
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    net.shape(delay=0.1, loss=0.05)
    alice, bob = Peer(net.hosts[1], "Alice", broker), Peer(net.hosts[2], "Bob", broker)
    alice.connected().sees(bob)
    bob.connected().sees(alice)
    alice.send(bob, numbered("there", 300))
    bob.send(alice, numbered("back", 300))
    bob.receives(alice, numbered("there", 300))
    alice.receives(bob, numbered("back", 300))
    alice.learns(bob, 300)
    bob.learns(alice, 300)
