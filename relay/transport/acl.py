"""Access lists: `topics.grants` in the format of each broker, the embedded one included."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterable
from typing import Any

from relay.transport import topics
from relay.transport.credentials import Credentials

_SALT = 12  # bytes, as mosquitto_passwd takes
_ROUNDS = 101  # mosquitto_passwd's own count; our passwords are 192 random bits, and need no more

_MADE = (
    "# Written by `relay broker acl`; run it again to add agents.\n"
    "# Each agent publishes only under its own name, and receives only its own inbox and its team's "
    "presence.\n"
)


def nats_users(agents: Iterable[Credentials]) -> list[dict[str, Any]]:
    """Return the `users` of nats-server's `authorization`.

    MQTT only: on the port for NATS clients, an agent could ask JetStream for another agent's mail.
    https://docs.nats.io/running-a-nats-service/configuration/securing_nats/authorization
    """
    return [
        {
            "user": agent.user,
            "password": agent.password,
            "allowed_connection_types": ["MQTT"],
            "permissions": {
                what: {"allow": [_subject(topic) for topic in allowed]}
                for what, allowed in topics.grants(agent.team, agent.name).items()
            },
        }
        for agent in agents
    ]


def nats(agents: Iterable[Credentials]) -> str:
    """Return a file for nats-server's configuration to include."""
    return f"{_MADE}authorization: {json.dumps({'users': nats_users(agents)}, indent=1)}\n"


def mosquitto(agents: Iterable[Credentials]) -> str:
    """Return Mosquitto's `acl_file` (mosquitto.conf(5)).

    No `pattern` line can cover everyone: a user (%u there) contains a slash, so it spans two topic levels.
    """
    blocks = [_MADE]
    for agent in agents:
        publish, subscribe = topics.grants(agent.team, agent.name).values()
        lines = [f"user {agent.user}", *(f"topic write {topic}" for topic in publish)]
        lines += [f"topic read {topic}" for topic in subscribe]
        blocks.append("".join(f"{line}\n" for line in lines))
    return "\n".join(blocks)


def mosquitto_passwords(agents: Iterable[Credentials]) -> str:
    """Return Mosquitto's `password_file`: hashes only."""
    return "".join(f"{agent.user}:{_hash(agent.password)}\n" for agent in agents)


def _hash(password: str) -> str:
    """Return the hash in mosquitto_passwd's format 7: PBKDF2-SHA512 (its source, password_mosq.c)."""
    salt = secrets.token_bytes(_SALT)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS)
    return f"$7${_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _subject(topic: str) -> str:
    """Return the NATS subject for an MQTT topic filter: `.` for `/`, `*` for `+` (no level holds a dot)."""
    return topic.replace("/", ".").replace("+", "*")
