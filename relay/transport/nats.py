"""nats-server as the embedded broker: its configuration, and the ports on which it listens.

JSON is valid in its format (https://docs.nats.io/running-a-nats-service/configuration).
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable
from pathlib import Path

from relay.transport import acl
from relay.transport.credentials import Credentials

HOST = "127.0.0.1"
_MAX_STORE = 1 << 30  # bytes that the broker may keep, of presences and of what is on its way
_MAX_PAYLOAD = 1 << 20  # bytes; our largest is envelope.MAX_PAYLOAD, less than half of it
_USERS = '"users": ['


def render(agents: Iterable[Credentials], directory: Path, port: int) -> str:
    """Return the configuration of a broker that keeps its store in `directory` and listens at `port`.

    It is one line of JSON, which ends with the users.
    """
    # With no users at all nats-server would let everybody in and allow everything.
    nothing = {"deny": [">"]}
    nobody = {
        "user": "nobody",
        "password": "",
        "allowed_connection_types": ["MQTT"],
        "permissions": {"publish": nothing, "subscribe": nothing},
    }
    return json.dumps(
        {
            "server_name": "relay",
            "host": HOST,
            "port": -1,
            "max_payload": _MAX_PAYLOAD,
            "mqtt": {"host": HOST, "port": port},
            "jetstream": {
                "store_dir": str(directory),
                "max_memory_store": 1 << 24,
                "max_file_store": _MAX_STORE,
            },
            "authorization": {"users": acl.nats_users(agents) or [nobody]},
        }
    )


def admits(configuration: str, agent: Credentials, directory: Path, port: int) -> bool:
    """Return True if `configuration` is a current one and has `agent`; look at none of the other users."""
    settings, _, user = render([agent], directory, port).removesuffix("]}}").partition(_USERS)
    return configuration.startswith(settings) and user in configuration


def native_port(printed: str) -> int | None:
    """Return the port for NATS clients that a server has `printed`, None if it has not."""
    found = re.search(rf"client connections on {re.escape(HOST)}:(\d+)", printed)
    return None if found is None else int(found[1])


def free_port(configuration: Path) -> int:
    """Return the port of the last broker, where sessions look for the next one; another if it is taken."""
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
    """Return True if a broker could listen at `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as nats-server does: TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True
