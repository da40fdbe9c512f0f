"""The streams in which nats-server keeps MQTT data, created in memory and with bounds.

nats-server itself creates them without bounds, in files: one agent's retained messages could fill the store,
and a full disk would stop the bus.  They never hold the only copy: mail waits in the ledgers until its
receipt comes, and agents announce themselves again.

The names and subjects are nats-server's own (server/mqtt.go).  This module uses its protocol for clients,
https://docs.nats.io/reference/reference-protocols/nats-protocol, and JetStream's API,
https://docs.nats.io/reference/reference-protocols/nats_api_reference.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
from collections.abc import Iterator
from io import BufferedRWPair
from typing import Any

_REPLIES, _WATCH = "_INBOX.relay", "relay.watch"
SUBJECTS = {"publish": ["$JS.API.STREAM.CREATE.*", _WATCH], "subscribe": [_REPLIES, _WATCH]}
"""The subjects that the supervisor's user may publish and subscribe to."""

_MB = 1 << 20
_LONGEST = 1 << 16  # bytes of a line; what sends more is no NATS server
_MAX_CONSUMERS = 1 << 16
"""Maximum subscriptions with a mailbox, in all. A single agent could use up nats-server's own limit (1000
since 2.15), and nobody else could subscribe; the memory that these take is watched (broker_watch)."""

_STREAMS: dict[str, dict[str, Any]] = {
    # Messages in transit. If the broker drops the oldest, its sender's client sends it again. Each subject is
    # from one publisher to one receiver: a flood displaces its own oldest messages, not those of others.
    "$MQTT_msgs": {
        "subjects": ["$MQTT.msgs.>"],
        "retention": "interest",
        "max_bytes": 128 * _MB,
        "max_msgs_per_subject": 512,
    },
    # Presences (presence.MAX_PAYLOAD), one for each topic; relay retains nothing else.
    "$MQTT_rmsgs": {
        "subjects": ["$MQTT.rmsgs.>"],
        "max_bytes": 16 * _MB,
        "max_msgs_per_subject": 1,
        "max_msg_size": 20 << 10,
    },
    "$MQTT_sess": {"subjects": ["$MQTT.sess.>"], "max_bytes": 8 * _MB, "max_msgs_per_subject": 1},
    "$MQTT_out": {"subjects": ["$MQTT.out.>"], "retention": "interest", "max_bytes": 4 * _MB},
    "$MQTT_qos2in": {"subjects": ["$MQTT.qos2.in.>"], "max_bytes": 4 * _MB, "max_msgs_per_subject": 1},
}
MAX_MEMORY = sum(stream["max_bytes"] for stream in _STREAMS.values())
"""Maximum bytes of all streams together."""


Address = tuple[str, int]
Login = tuple[str | None, str | None]


def admits(address: Address, login: Login, timeout: float) -> bool:
    """Return True if a NATS server lets the user in. Raise OSError, and ValueError if it is none.

    timeout: seconds for each answer.
    """
    with _talking(address, login, timeout) as server:
        server.write(b"PING\r\n")
        server.flush()
        return b"PONG" in server.readline(_LONGEST)


def greet(address: Address, login: Login, timeout: float) -> None:
    """Log in, publish a message and receive it. Raise OSError and ValueError. timeout: as for `admits`."""
    token = secrets.token_hex(8)
    with _talking(address, login, timeout) as server:
        server.write(f"SUB {_WATCH} 1\r\nPUB {_WATCH} {len(token)}\r\n{token}\r\n".encode())
        server.flush()
        while token.encode() not in (line := server.readline(_LONGEST)):
            if line.startswith(b"-ERR") or not line:
                raise ValueError("it refuses logins")


def create(address: Address, login: Login, timeout: float) -> None:
    """Create the streams over the port for NATS clients. Raise OSError and ValueError. timeout: as above."""
    with _talking(address, login, timeout) as server:
        server.write(f"SUB {_REPLIES} 1\r\n".encode())
        for name, bounds in _STREAMS.items():
            stream = {
                "name": name,
                "retention": "limits",
                "storage": "memory",
                "discard": "old",
                "max_consumers": _MAX_CONSUMERS,
                **bounds,
            }
            payload = json.dumps(stream)
            head = f"PUB $JS.API.STREAM.CREATE.{name} {_REPLIES} {len(payload)}"
            server.write(f"{head}\r\n{payload}\r\n".encode())
        server.flush()
        answered = 0
        while answered < len(_STREAMS):
            line = server.readline()
            if line.startswith(b"MSG "):
                answer = json.loads(server.read(int(line.split()[-1]) + 2))
                if error := answer.get("error"):
                    raise ValueError(f"nats-server makes no stream: {error.get('description')}")
                answered += 1
            elif line.startswith(b"-ERR") or not line:
                raise ValueError(f"nats-server makes no streams: {line.decode(errors='replace').strip()}")


@contextlib.contextmanager
def _talking(address: Address, login: Login, timeout: float) -> Iterator[BufferedRWPair]:
    """Connect to a NATS server, and log in when the first command is sent."""
    user, password = login
    options = {"verbose": False, "pedantic": False} | (
        {} if user is None else {"user": user, "pass": password}
    )
    with socket.create_connection(address, timeout) as connection, connection.makefile("rwb") as server:
        if not server.readline(_LONGEST).startswith(b"INFO "):
            raise ValueError(f"no NATS server at port {address[1]}")
        server.write(f"CONNECT {json.dumps(options)}\r\n".encode())
        yield server
