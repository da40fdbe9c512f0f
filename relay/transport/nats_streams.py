"""The streams in which nats-server keeps MQTT data, created in memory and with bounds.

nats-server itself creates them without bounds, in files: one agent's retained messages could fill the store,
and a full disk would stop the bus.  They never hold the only copy: mail waits in the ledgers until its
receipt comes, and agents announce themselves again.

The names and subjects are nats-server's own (server/mqtt.go).  This module uses its protocol for clients,
https://docs.nats.io/reference/reference-protocols/nats-protocol, and JetStream's API,
https://docs.nats.io/reference/reference-protocols/nats_api_reference.
"""

from __future__ import annotations

import json
import socket
from typing import Any

SUBJECTS = {"publish": "$JS.API.STREAM.CREATE.*", "subscribe": "_INBOX.relay"}
"""The subjects that the user who creates the streams may publish and subscribe to."""

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


def admits(host: str, port: int, user: str | None, password: str | None, timeout: float) -> bool:
    """Return True if a NATS server lets `user` in. Raise OSError, and ValueError if it is none.

    timeout: seconds for each answer.
    """
    with socket.create_connection((host, port), timeout) as connection, connection.makefile("rwb") as server:
        if not server.readline(_LONGEST).startswith(b"INFO "):
            raise ValueError(f"no NATS server at port {port}")
        server.write(_hello(user, password) + b"PING\r\n")
        server.flush()
        return b"PONG" in server.readline(_LONGEST)


def _hello(user: str | None, password: str | None) -> bytes:
    login = {} if user is None else {"user": user, "pass": password}
    return f"CONNECT {json.dumps({'verbose': False, 'pedantic': False} | login)}\r\n".encode()


def create(host: str, port: int, user: str, password: str, timeout: float) -> None:
    """Create the streams over the port for NATS clients. Raise OSError and ValueError.

    timeout: seconds for each answer.
    """
    with socket.create_connection((host, port), timeout) as connection, connection.makefile("rwb") as server:
        server.write(_hello(user, password) + f"SUB {SUBJECTS['subscribe']} 1\r\n".encode())
        for name, bounds in _STREAMS.items():
            stream = {
                "name": name,
                "retention": "limits",
                "storage": "memory",
                "discard": "old",
                "max_consumers": _MAX_CONSUMERS,
                **bounds,
            }
            payload = json.dumps(stream).encode()
            head = f"PUB $JS.API.STREAM.CREATE.{name} {SUBJECTS['subscribe']} {len(payload)}\r\n"
            server.write(head.encode() + payload + b"\r\n")
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
            elif line.startswith(b"PING"):
                server.write(b"PONG\r\n")
                server.flush()
