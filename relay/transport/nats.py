"""nats-server as the embedded broker: its configuration, and its ports.

JSON is valid in its format (https://docs.nats.io/running-a-nats-service/configuration).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path

from relay.transport import acl, nats_streams
from relay.transport.credentials import Credentials

HOST = "127.0.0.1"
SERVICE = "relay"
"""The supervisor's user; an agent's user contains a slash."""

_MAX_STORE = 1 << 20  # bytes in files, which stay unused: the streams are in memory
_MAX_PAYLOAD = 1 << 20  # bytes; our largest is envelope.MAX_PAYLOAD, less than half of it
_MAX_UNACKNOWLEDGED = 128  # messages in flight to one client, which acknowledges each on arrival
_WRITE_SECONDS = 3  # for one client's backlog; then it is disconnected, and reconnects
_ACKNOWLEDGES = 3  # seconds; messages that the broker had to drop count as unacknowledged until then
_SESSION_SECONDS = 60  # for which the broker keeps mail of a lost client; ours waits in the ledger


def render(agents: Iterable[Credentials], port: int, password: str) -> str:
    """Return the configuration of a broker that keeps its store where it runs and listens on `port`.

    It has no path: nats-server reads JSON as its own format, in which a string cannot have every character.

    password: that of SERVICE, the first of the users, which come last in its one line of JSON.
    """
    service = {
        "user": SERVICE,
        "password": password,
        "allowed_connection_types": ["STANDARD"],
        "permissions": {what: {"allow": subjects} for what, subjects in nats_streams.SUBJECTS.items()},
    }
    return json.dumps(
        {
            "server_name": "relay",
            "host": HOST,
            "port": -1,
            "max_payload": _MAX_PAYLOAD,
            "write_deadline": f"{_WRITE_SECONDS}s",
            "mqtt": {
                "host": HOST,
                "port": port,
                "consumer_memory_storage": True,
                "consumer_inactive_threshold": f"{_SESSION_SECONDS}s",
                "ack_wait": f"{_ACKNOWLEDGES}s",
                "max_ack_pending": _MAX_UNACKNOWLEDGED,
            },
            "jetstream": {
                "store_dir": ".",
                "max_memory_store": 2 * nats_streams.MAX_MEMORY,
                "max_file_store": _MAX_STORE,
            },
            "authorization": {"users": [service, *acl.nats_users(agents)]},
        }
    )


def admits(configuration: str, agent: Credentials, port: int, password: str) -> bool:
    """Return True if `configuration` is current and has `agent`; ignore the other users."""
    settings = render([], port, password).removesuffix("]}}")
    return configuration.startswith(settings) and json.dumps(acl.nats_users([agent])[0]) in configuration


def free_port(configuration: Path) -> int:
    """Return the last broker's port, where sessions look for the next one; another port if it is taken."""
    try:
        last = int(json.loads(configuration.read_bytes())["mqtt"]["port"])
    except (OSError, ValueError, KeyError, TypeError):
        last = 0
    if last and is_free(last):
        return last
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return True if a broker could listen on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like nats-server: TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True
