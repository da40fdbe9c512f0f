"""The shipped config/nats/cluster.conf, with a test's addresses and paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SHIPPED = Path(__file__).parent.parent / "config" / "nats" / "cluster.conf"


def adapted(
    name: str, address: str, port: int, routes: Mapping[str, str], data: Path, directory: Path
) -> str:
    """Return the configuration file of the node `name`, which serves MQTT at `address` and `port`.

    routes:    the address and port at which each node listens for the others, by name.
    directory: the folder of the file, which also contains cert.pem, key.pem and relay.conf.
    """
    text = SHIPPED.read_text()
    changes = {
        "server_name: nats-1": f"server_name: {name}",
        '"127.0.0.1:4222"': '"127.0.0.1:-1"',
        "host: 0.0.0.0": f"host: {address}",
        "port: 8883": f"port: {port}",
        '"0.0.0.0:6222"': f'"{routes[name]}"',
        '"/var/lib/nats"': f'"{data}"',
        "/etc/nats/server.crt": f"{directory}/cert.pem",
        "/etc/nats/server.key": f"{directory}/key.pem",
        "/etc/nats/ca.crt": f"{directory}/cert.pem",
        "relay/relay.conf": "relay.conf",
    }
    changes |= {f"{node}.example.org:6222": route for node, route in routes.items()}
    for shipped, here in changes.items():
        assert shipped in text, shipped
        text = text.replace(shipped, here)
    return text
