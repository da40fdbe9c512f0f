"""An attacker with valid credentials of its own.

    python tests/messaging/hostile.py TEAM NAME VICTIM SHARE

Runs each of ATTACKS, or a SHARE of it, in turn in the home of the environment, against VICTIM where one is
needed, at least once and until standard input ends; prints the name of each attack after running it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import secrets
import select
import socket
import sys
import time
from dataclasses import replace
from functools import partial

import packets

from relay.home import Home
from relay.message import Message, Priority, State
from relay.messaging.envelope import Envelope, Receipt, encode
from relay.transport import broker, presence, topics
from relay.transport.presence import Presence

MB = 1 << 20
BIG = bytes(MB - 1000)  # the broker's largest payload, minus the topic
BATCH = 100  # publishes between two reads of acknowledgements

TRIES = 5
"""Login attempts."""


class Hostile:
    """The connections of `name`, who attacks `victim`."""

    def __init__(self, home: Home, team: str = "default", name: str = "Mallory", victim: str = "Bob") -> None:
        self.endpoint, self.credentials = broker.admit(home, team, name)
        self.team, self.name, self.victim = team, name, victim
        self._home = home
        self._open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """Connect without sending anything."""
        found = socket.create_connection((self.endpoint.host, self.endpoint.port), 60)
        self._open.append(found)
        return found

    def login(self, client_id: str = "", *, keep: bool = False) -> socket.socket:
        """Log in and return the connection. keep: make the session persistent (MQTT 3.1.1, 3.1.2.4).

        A busy broker may cut off a client that has just connected, so this retries, as relay does.
        """
        for _ in range(TRIES - 1):
            with contextlib.suppress(OSError, EOFError, AssertionError, IndexError, ValueError):
                return self._login(client_id, keep=keep)
        return self._login(client_id, keep=keep)

    def _login(self, client_id: str, *, keep: bool) -> socket.socket:
        connection = self.connect()
        login = packets.connect(
            client_id or secrets.token_hex(8), self.credentials.user, self.credentials.password
        )
        flags = login.index(b"MQTT\x04") + 5
        connection.sendall(
            login[:flags] + bytes([login[flags] & ~(0x02 if keep else 0)]) + login[flags + 1 :]
        )
        assert packets.read(connection.makefile("rb")).body[1:] == b"\0"
        return connection

    def publish(self, connection: socket.socket, number: int, packet: bytes) -> None:
        """Send packet `number`, counted from 0, and read the acknowledgements after each BATCH."""
        connection.sendall(packet)
        if number % BATCH == BATCH - 1:
            read_acknowledgements(connection, BATCH)

    def topic(self, to: str = "") -> str:
        return topics.inbox(self.team, to or self.victim, self.name)

    def envelope(self, number: int, text: str, origin: str, priority: Priority, ttl: float | None) -> bytes:
        """Return the payload of a valid message."""
        message = Message(
            secrets.token_hex(8), self.name, self.victim, text, time.time(), State.STORED, priority=priority
        )
        return encode(Envelope(message, origin, number + 1, 1, ttl))

    def close(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()


def retained(packet: bytes) -> bytes:
    """Return a PUBLISH with the retain flag (section 3.3.1.3)."""
    return bytes([packet[0] | 1]) + packet[1:]


def unacknowledged(topic: str, payload: bytes) -> bytes:
    """Return a PUBLISH at QoS 0 (section 4.3.1), which nobody acknowledges."""
    return packets._packet(packets.PUBLISH, packets._field(topic.encode()) + payload)


def read_acknowledgements(connection: socket.socket, count: int) -> None:
    """Read `count` acknowledgements of 4 bytes each."""
    left = 4 * count
    while left:
        got = len(connection.recv(left))
        if not got:
            raise ConnectionError
        left -= got


# The attacks.


def retain_many(mallory: Hostile, count: int, payload: bytes) -> None:
    """Publish retained messages under `count` topics."""
    connection = mallory.login()
    for number in range(count):
        packet = packets.publish(mallory.topic(f"r{number}"), payload)
        mallory.publish(connection, number, retained(packet))


def leave_sessions(mallory: Hostile, sessions: int, messages: int) -> None:
    """Leave persistent sessions, with messages waiting for each."""
    inbox = topics.inbox_filter(mallory.team, mallory.name)
    for number in range(sessions):
        connection = mallory.login(f"mallory-{number}", keep=True)
        connection.sendall(packets.subscribe(inbox))
        read_acknowledgements(connection, 1)
        connection.recv(1)  # a SUBACK has 5
        connection.close()
    connection = mallory.login()
    for _ in range(messages):
        connection.sendall(packets.publish(mallory.topic(mallory.name), BIG))
        read_acknowledgements(connection, 1)


def leave_subscriptions(mallory: Hostile, sessions: int, filters: int) -> None:
    """Leave persistent sessions with many subscriptions, each of which has a mailbox."""
    for number in range(sessions):
        connection = mallory.login(f"subscriber-{number}", keep=True)
        stream = connection.makefile("rb")
        for level in range(filters):
            connection.sendall(
                packets.subscribe(topics.inbox(mallory.team, mallory.name, f"{number}-{level}"))
            )
            assert packets.read(stream).kind == 0x90  # SUBACK


def read_nothing(mallory: Hostile, connections: int, messages: int) -> None:
    """Read nothing, so that messages to itself pile up in the broker for each connection."""
    for _ in range(connections):
        connection = mallory.login()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(packets.subscribe(topics.inbox_filter(mallory.team, mallory.name)))
    connection = mallory.login()
    for _ in range(messages):
        connection.sendall(unacknowledged(mallory.topic(mallory.name), BIG))


def send_nonsense(mallory: Hostile, count: int) -> None:
    """Send malformed packets, as a stranger and as a logged-in client."""
    for number in range(count):
        connection = mallory.login() if number % 10 == 0 else mallory.connect()
        with contextlib.suppress(OSError):
            connection.sendall(os.urandom(64))
        connection.close()


def never_log_in(mallory: Hostile, count: int) -> None:
    for _ in range(count):
        mallory.connect().sendall(b"\x10")


def flood(
    mallory: Hostile,
    count: int,
    size: int = 60_000,
    priority: Priority = Priority.LOW,
    *,
    new_streams: bool = False,
    ttl: float | None = None,
) -> None:
    """Send valid messages. new_streams: each in a separate stream; ttl: seconds until each expires."""
    connection, origin, text = mallory.login(), secrets.token_hex(8), "x" * size
    for number in range(count):
        stream = (0, text, secrets.token_hex(8)) if new_streams else (number, text, origin)
        packet = packets.publish(mallory.topic(), mallory.envelope(*stream, priority, ttl))
        mallory.publish(connection, number, packet)


def flood_unacknowledged(mallory: Hostile, count: int, size: int = 10) -> None:
    """Publish as fast as the broker reads, without waiting for acknowledgements."""
    connection, origin, text = mallory.login(), secrets.token_hex(8), "x" * size
    envelopes = [mallory.envelope(number, text, origin, Priority.NORMAL, None) for number in range(1000)]
    for number in range(count):
        connection.sendall(unacknowledged(mallory.topic(), envelopes[number % len(envelopes)]))


def announce(mallory: Hostile, count: int, *, ask: bool = True) -> None:
    """Join and leave repeatedly, each time from a new home and as a new run."""
    connection, topic = mallory.login(), topics.presence(mallory.team, mallory.name)
    for number in range(count):
        fresh = secrets.token_hex(8)
        announcement = Presence(
            mallory.name, bool(number % 2), time.time(), f"{number:016}", fresh, fresh, fresh, owner=fresh
        )
        if ask:
            mallory.publish(connection, number, packets.publish(topic, presence.encode(announcement)))
        else:
            connection.sendall(unacknowledged(topic, presence.encode(announcement)))


def send_forgeries(mallory: Hostile, count: int) -> None:
    """Send almost valid payloads, and receipts for messages that nobody sent."""
    connection = mallory.login()
    valid = json.loads(mallory.envelope(0, "x" * 1000, secrets.token_hex(8), Priority.NORMAL, None))
    receipt = Receipt("0" * 16, mallory.name, mallory.victim, State.INJECTED)
    forged = [
        json.dumps({**valid, "from": mallory.victim}).encode(),
        json.dumps({**valid, "origin": "of/another"}).encode(),
        json.dumps({**valid, "note": "x" * 100_000}).encode(),
        json.dumps({**valid, "body": "x" * 300_000}).encode(),
        b"{" * 100_000,
        encode(receipt),
        encode(replace(receipt, id="1" * 16, state=State.REJECTED, detail="x" * 1000)),
    ]
    for number in range(count):
        mallory.publish(connection, number, packets.publish(mallory.topic(), forged[number % len(forged)]))


ATTACKS: dict[str, partial[None]] = {
    "retained": partial(retain_many, count=200, payload=BIG),
    "small retained": partial(retain_many, count=2_000, payload=bytes(1000)),
    "persistent sessions": partial(leave_sessions, sessions=20, messages=10),
    "subscriptions": partial(leave_subscriptions, sessions=3, filters=400),
    "unread messages": partial(read_nothing, connections=100, messages=60),
    "nonsense": partial(send_nonsense, count=300),
    "connections without a login": partial(never_log_in, count=200),
    "a flood": partial(flood, count=800),
    "a flood of small messages": partial(flood, count=3_000, size=10, priority=Priority.URGENT),
    "streams": partial(flood, count=1_000, size=10, new_streams=True),
    "messages that expire immediately": partial(flood, count=600, ttl=0.001),
    "an unacknowledged flood": partial(flood_unacknowledged, count=5_000),
    "announcements": partial(announce, count=2_000),
    "forgeries": partial(send_forgeries, count=700),
}
"""The attacks; each takes a second or two."""


def reduced(attack: partial[None], share: float) -> partial[None]:
    """Return the attack with that share of its connections, messages and so on."""
    counts = {name: math.ceil(share * n) for name, n in attack.keywords.items() if name in _COUNTS}
    return partial(attack, **counts)


_COUNTS = {"connections", "count", "filters", "messages", "sessions"}


def main() -> None:
    home, [*who, share] = Home.from_env(), sys.argv[1:]
    for number in itertools.count():
        for name, attack in ATTACKS.items():
            try:
                mallory = Hostile(home, *who)
                reduced(attack, float(share))(mallory)
                mallory.close()
            except (OSError, EOFError):  # the broker was killed, or cut the connection
                mallory.close()
            print(name, flush=True)
            if number and select.select([sys.stdin], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main()
