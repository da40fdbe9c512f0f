"""A name on two hosts: the second is refused, a dead one is released, and its mail follows the name."""

from __future__ import annotations

from collections.abc import Callable

from peers import Mosquitto, Peer

from hosts import Host, Network

Networks = Callable[[int], Network]
Brokers = Callable[[Host], Mosquitto]


def test_a_name_in_use_on_another_host_is_refused_until_its_holder_dies(
    network: Networks, mosquitto: Brokers
) -> None:
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    net.shape(delay=0.1, loss=0.05)
    alice = Peer(net.hosts[0], "Alice", broker).connected()
    bob = Peer(net.hosts[1], "Bob", broker).connected()
    alice.sees(bob)
    second = Peer(net.hosts[2], "Bob", broker)
    assert "'Bob' is already on the bus, on host 'host-2'" in second.expect("refused")["text"]
    alice.send(bob, ["for the first"])
    bob.receives(alice, ["for the first"])
    alice.has_outcomes(bob, 1)
    bob.kill()
    third = Peer(net.hosts[2], "Bob", broker).connected()
    alice.send(third, ["for the next holder"])
    third.receives(alice, ["for the next holder"])
    alice.has_outcomes(third, 2)


def test_only_one_of_two_simultaneous_agents_gets_the_name(network: Networks, mosquitto: Brokers) -> None:
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    net.shape(delay=0.1)
    both = [Peer(host, "Bob", broker) for host in net.hosts[1:]]
    refused = [peer for peer in both if peer.is_refused()]
    assert len(refused) == 1
    (winner,) = [peer for peer in both if peer not in refused]
    alice = Peer(net.hosts[0], "Alice", broker).connected()
    alice.sees(winner)
    alice.send(winner, ["hello"])
    winner.receives(alice, ["hello"])


def test_the_name_of_a_cut_off_host_is_released_and_not_given_back(
    network: Networks, mosquitto: Brokers
) -> None:
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    alice = Peer(net.hosts[0], "Alice", broker).connected()
    first = Peer(net.hosts[1], "Bob", broker, keepalive=5).connected()
    alice.sees(first)
    alice.send(first, ["one"])
    first.receives(alice, ["one"])
    alice.has_outcomes(first, 1)
    net.cut(net.hosts[1])
    # Neither the broker nor Alice knows yet that it is cut off.
    alice.send(first, ["to whom"])
    alice.expect("sent", lambda event: event["body"] == "to whom")
    second = Peer(net.hosts[2], "Bob", broker, objection=1.0).connected()
    alice.send(second, ["two"])
    second.receives(alice, ["two"])
    # The first one may have received it.
    alice.expect("outcome", lambda event: event["body"] == "to whom" and event["state"] == "uncertain")
    net.heal()
    assert "'Bob' is already on the bus, on host 'host-3'" in first.expect("refused")["text"]
    alice.send(second, ["three"])
    second.receives(alice, ["two", "three"])
    alice.has_outcomes(second, 3)
    assert first.bodies(alice) in (["one"], ["one", "to whom"])
    assert not [event for event in second.events if event["event"] == "refused"]


def test_mail_follows_a_name_from_host_to_host_and_nothing_is_typed_twice(
    network: Networks, mosquitto: Brokers
) -> None:
    net = network(3)
    broker = mosquitto(net.hosts[0])
    broker.start()
    alice = Peer(net.hosts[0], "Alice", broker).connected()
    first = Peer(net.hosts[1], "Bob", broker).connected()
    alice.sees(first)
    alice.send(first, numbered(0, 10))
    first.receives(alice, numbered(0, 10))
    alice.has_outcomes(first, 10)
    first.kill()
    alice.sees()
    for count, host in ((20, net.hosts[2]), (40, net.hosts[1])):  # on another host, then on the first again
        alice.send(first, numbered(count - 10, count))  # while there is no Bob
        bob = Peer(host, "Bob", broker).connected()
        bob.receives(alice, numbered(count - 10, count))
        alice.send(bob, numbered(count, count + 10))
        bob.receives(alice, numbered(count - 10, count + 10))
        alice.has_outcomes(bob, count + 10)
        bob.kill()
        alice.sees()


def numbered(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]
