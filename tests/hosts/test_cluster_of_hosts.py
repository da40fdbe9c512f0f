"""A cluster of three nats-servers, each on a host, cut off host by host.

test_sessions_on_hosts.py kills node by node.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from peers import Cluster, Peer

from hosts import Network
from support import LONG

Networks = Callable[[int], Network]


class Talk:
    """Two agents on different hosts that send each other the same messages."""

    def __init__(self, net: Network, cluster: Cluster) -> None:
        for node in cluster.nodes:
            cluster.start(node)
        self.alice = Peer(net.hosts[3], "Alice", cluster, keepalive=4).connected()
        self.bob = Peer(net.hosts[4], "Bob", cluster, keepalive=4).connected()
        self.alice.sees(self.bob)
        self.bob.sees(self.alice)
        self.sent: list[str] = []

    def exchange(self, about: str) -> None:
        """Have each send the other some messages."""
        bodies = [f"{about} {number}" for number in range(50)]
        self.sent += bodies
        self.alice.send(self.bob, bodies)
        self.bob.send(self.alice, bodies)

    def all_arrive(self) -> None:
        """Check that everything ever sent has arrived, once and in order."""
        self.bob.receives(self.alice, self.sent)
        self.alice.receives(self.bob, self.sent)

    def all_are_confirmed(self) -> None:
        self.alice.has_outcomes(self.bob, len(self.sent))
        self.bob.has_outcomes(self.alice, len(self.sent))


@pytest.mark.timeout(500)
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="hosts of a cluster cut off: set RELAY_LONG=1")
def test_each_host_can_be_cut_off(network: Networks, tmp_path: Path) -> None:
    """Two other hosts talk before, during and after the time in which each is cut off."""
    net = network(5)
    cluster = Cluster(net.hosts[:3], tmp_path)
    talk = Talk(net, cluster)
    for node in cluster.nodes:
        talk.exchange(f"{node} is up")
        net.cut(cluster.host(node))
        talk.exchange(f"{node} is down")
        talk.all_arrive()
        net.heal()
        talk.exchange(f"{node} is back")
        talk.all_arrive()
    talk.all_are_confirmed()
