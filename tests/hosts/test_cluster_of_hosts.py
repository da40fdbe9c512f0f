"""A cluster of three nats-servers, each on a host: killed node by node, and cut off host by host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from peers import Cluster, Peer

from hosts import Network

GAP = 20.0 if os.getloadavg()[0] <= (os.cpu_count() or 1) else 45.0
"""Seconds until everything said when a node died has arrived: as in tests/messaging/test_cluster.py."""

Networks = Callable[[int], Network]
Act = Callable[[Cluster, str], object]


class Talk:
    """Two agents on different hosts that send each other the same."""

    def __init__(self, net: Network, cluster: Cluster) -> None:
        for node in cluster.nodes:
            cluster.start(node)
        self.alice = Peer(net.hosts[3], "Alice", cluster, keepalive=4).connected()
        self.bob = Peer(net.hosts[4], "Bob", cluster, keepalive=4).connected()
        self.alice.sees(self.bob)
        self.bob.sees(self.alice)
        self.sent: list[str] = []

    def more(self, about: str) -> None:
        """Have each send the other 50 messages."""
        bodies = [f"{about} {number}" for number in range(50)]
        self.sent += bodies
        self.alice.send(self.bob, bodies)
        self.bob.send(self.alice, bodies)

    def arrives(self) -> None:
        """Check that all that was ever sent has arrived once, and in order."""
        self.bob.receives(self.alice, self.sent)
        self.alice.receives(self.bob, self.sent)

    def ends(self) -> None:
        self.alice.learns(self.bob, len(self.sent))
        self.bob.learns(self.alice, len(self.sent))


def each_may_be_away(net: Network, tmp_path: Path, away: Act, back: Act) -> float:
    """Have two hosts talk before, while and after each node of a cluster on three others is `away`.

    Return the longest time, in seconds, from a node's failure until everything had arrived.
    """
    cluster = Cluster(net.hosts[:3], tmp_path)
    talk = Talk(net, cluster)
    longest = 0.0
    for node in cluster.nodes:
        talk.more(f"{node} is there")
        away(cluster, node)
        begun = time.monotonic()
        talk.more(f"{node} is away")
        talk.arrives()
        gap = time.monotonic() - begun
        print(f"{node} is away: {gap:.1f} s")
        longest = max(longest, gap)
        back(cluster, node)
        talk.more(f"{node} is back")
        talk.arrives()
    talk.ends()
    return longest


@pytest.mark.timeout(500)
def test_each_node_may_be_killed(network: Networks, tmp_path: Path) -> None:
    assert each_may_be_away(network(5), tmp_path, Cluster.kill, Cluster.start) < GAP


@pytest.mark.timeout(500)
@pytest.mark.slow
@pytest.mark.skipif("RELAY_LONG" not in os.environ, reason="hosts of a cluster cut off: set RELAY_LONG=1")
def test_each_host_may_be_cut_off(network: Networks, tmp_path: Path) -> None:
    net = network(5)

    def cut_off(cluster: Cluster, node: str) -> None:
        net.cut(cluster.host(node))

    each_may_be_away(net, tmp_path, cut_off, lambda *_: net.heal())
