"""Access lists: `topics.grants` in the words of each broker.

The embedded broker is configured from here too, so that one table says what an agent may do.
"""

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
    "# Written by `relay broker acl`; run it again for more agents.\n"
    "# Each agent publishes under its own name alone, and hears its own inbox and its team's presence.\n"
)


def nats_users(agents: Iterable[Credentials]) -> list[dict[str, Any]]:
    """The `users` of nats-server's `authorization`.

    MQTT only: over the port for NATS clients an agent could ask JetStream for another's mail.
    https://docs.nats.io/running-a-nats-service/configuration/securing_nats/authorization
    """
    users = []
    for agent in agents:
        grants = topics.grants(agent.team, agent.name)
        users.append(
            {
                "user": agent.user,
                "password": agent.password,
                "allowed_connection_types": ["MQTT"],
                "permissions": {
                    "publish": {"allow": [_subject(topic) for topic in grants.publish]},
                    "subscribe": {"allow": [_subject(topic) for topic in grants.subscribe]},
                },
            }
        )
    return users


def nats(agents: Iterable[Credentials]) -> str:
    """A file for nats-server's configuration to include."""
    return f"{_MADE}authorization: {json.dumps({'users': nats_users(agents)}, indent=1)}\n"


def mosquitto(agents: Iterable[Credentials]) -> str:
    """Mosquitto's `acl_file` (mosquitto.conf(5)). It has no line that holds for everybody (`pattern`).

    What %u stands for there has a slash in it with us, which is two levels of a topic.
    """
    blocks = [_MADE]
    for agent in agents:
        grants = topics.grants(agent.team, agent.name)
        blocks.append(
            f"user {agent.user}\n"
            + "".join(f"topic write {topic}\n" for topic in grants.publish)
            + "".join(f"topic read {topic}\n" for topic in grants.subscribe)
        )
    return "\n".join(blocks)


def mosquitto_passwords(agents: Iterable[Credentials]) -> str:
    """Mosquitto's `password_file`: hashes only."""
    return "".join(f"{agent.user}:{_hash(agent.password)}\n" for agent in agents)


def _hash(password: str) -> str:
    """mosquitto_passwd's format 7: PBKDF2-SHA512 (its source, password_mosq.c)."""
    salt = secrets.token_bytes(_SALT)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS)
    return f"$7${_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _subject(topic: str) -> str:
    """The NATS subject for an MQTT topic filter: `.` is `/`, `*` is `+` (no level of ours holds a dot)."""
    return topic.replace("/", ".").replace("+", "*")
