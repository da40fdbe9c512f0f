"""Messages, presence and names between hosts, over good, bad and broken links."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from peers import Mosquitto, Peer

from hosts import Host, Network
from support import LONG, many

Networks = Callable[[int], Network]
Brokers = Callable[[Host], Mosquitto]


def numbered(text: str, count: int) -> list[str]:
    return [f"{text} {number}" for number in range(count)]


def test_messages_between_two_and_three_hosts_arrive_once_and_in_order(
    network: Networks, mosquitto: Brokers
) -> None:
    hosts = network(3).hosts
    broker = mosquitto(hosts[0])
    broker.start()
    alice, bob = (Peer(host, name, broker) for host, name in zip(hosts, ["Alice", "Bob"], strict=False))
    exchange([alice, bob], "of two")
    carol = Peer(hosts[2], "Carol", broker)
    exchange([alice, bob, carol], "of three")
    carol.kill()
    alice.sees(bob)


def exchange(peers: list[Peer], about: str) -> None:
    """Have all send to all others, once everybody sees exactly them."""
    for peer in peers:
        peer.connected().sees(*(other for other in peers if other is not peer))
    pairs = list(itertools.permutations(peers, 2))
    before = {pair: pair[1].bodies(pair[0]) for pair in pairs}
    texts = numbered(about, many(30))
    for sender, receiver in pairs:
        sender.send(receiver, texts)
    for sender, receiver in pairs:
        expected = before[sender, receiver] + texts
        receiver.receives(sender, expected)
        sender.has_outcomes(receiver, len(expected))


def test_a_slow_and_lossy_link_loses_and_reorders_nothing(network: Networks, mosquitto: Brokers) -> None:
    """The round trip to the broker takes 200 ms, and 5 % of the packets are lost."""
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    net.shape(delay=0.1, loss=0.05)
    alice, bob = Peer(net.hosts[1], "Alice", broker), Peer(net.hosts[2], "Bob", broker)
    alice.connected().sees(bob)
    bob.connected().sees(alice)
    count = many(300)
    alice.send(bob, numbered("there", count))
    bob.send(alice, numbered("back", count))
    bob.receives(alice, numbered("there", count))
    alice.receives(bob, numbered("back", count))
    alice.has_outcomes(bob, count)
    bob.has_outcomes(alice, count)


def test_messages_sent_while_a_host_is_cut_off_arrive_once_it_is_back(
    network: Networks, mosquitto: Brokers
) -> None:
    """The cut lasts until both ends drop the connection."""
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    alice = Peer(net.hosts[1], "Alice", broker, keepalive=2).connected()
    bob = Peer(net.hosts[2], "Bob", broker, keepalive=2).connected()
    alice.sees(bob)
    bob.sees(alice)
    partition(net, alice, bob, cut_off=lambda: alice.sees())


@pytest.mark.skipif(not LONG, reason="a host cut off for a minute: set RELAY_LONG=1")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_can_be_cut_off_for_a_minute(network: Networks, mosquitto: Brokers) -> None:
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    alice = Peer(net.hosts[1], "Alice", broker).connected()
    bob = Peer(net.hosts[2], "Bob", broker).connected()
    alice.sees(bob)
    bob.sees(alice)
    partition(net, alice, bob, cut_off=lambda: threading.Event().wait(60))


def partition(net: Network, alice: Peer, bob: Peer, *, cut_off: Callable[[], object]) -> None:
    """Cut Bob's host off in mid-conversation until `cut_off` returns; nothing is lost or duplicated."""
    part = many(40)
    there, back = numbered("there", 3 * part), numbered("back", 3 * part)
    alice.send(bob, there[:part])
    bob.send(alice, back[:part])
    net.cut(net.hosts[2])
    alice.send(bob, there[part : 2 * part])
    bob.send(alice, back[part : 2 * part])
    cut_off()
    alice.send(bob, there[2 * part :])
    net.heal()
    bob.send(alice, back[2 * part :])
    bob.receives(alice, there)
    alice.receives(bob, back)
    alice.has_outcomes(bob, 3 * part)
    bob.has_outcomes(alice, 3 * part)
    alice.sees(bob)
    bob.sees(alice)
    # What is republished for lack of a receipt must not be typed again.
    assert bob.bodies(alice) == there
    assert alice.bodies(bob) == back


def test_agents_start_and_queue_while_the_broker_is_down(network: Networks, mosquitto: Brokers) -> None:
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    alice, bob = Peer(net.hosts[1], "Alice", broker).connected(), Peer(net.hosts[2], "Bob", broker)
    alice.sees(bob)
    alice.kill()
    broker.kill()
    alice = Peer(net.hosts[1], "Alice", broker)
    alice.expect("status", lambda event: "no connection to the broker" in event["text"])
    alice.send(bob, ["queued"])
    assert alice.expect("sent")["state"] == "queued"
    broker.start()
    bob.receives(alice, ["queued"])
    alice.has_outcomes(bob, 1)
