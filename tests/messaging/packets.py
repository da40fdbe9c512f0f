"""Hand-made MQTT 3.1.1 packets, for what a library would not send."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

PUBLISH = 0x30
KEEPALIVE_SECONDS = 60

_FLAGS = 0x80 | 0x40 | 0x02  # user, password, clean session


class Packet(NamedTuple):
    """A packet. kind: the upper four bits of its first byte, such as PUBLISH."""

    kind: int
    body: bytes


def connect(client_id: str, user: str, password: str) -> bytes:
    """Return a CONNECT with a clean session (section 3.1)."""
    head = b"\x00\x04MQTT\x04" + bytes([_FLAGS]) + KEEPALIVE_SECONDS.to_bytes(2, "big")
    return _packet(0x10, head + b"".join(_field(text.encode()) for text in (client_id, user, password)))


def subscribe(topic: str) -> bytes:
    """Return a SUBSCRIBE with QoS 1 (section 3.8)."""
    return _packet(0x82, b"\x00\x01" + _field(topic.encode()) + b"\x01")


def publish(topic: str, payload: bytes) -> bytes:
    """Return a PUBLISH with QoS 1, not retained (section 3.3)."""
    return _packet(PUBLISH | 0x02, _field(topic.encode()) + b"\x00\x02" + payload)


def read(reader: BinaryIO) -> Packet:
    """Return the next packet. Raise EOFError if the connection ends first."""
    first, size, shift = _exactly(reader, 1)[0], 0, 0
    while True:
        (digit,) = _exactly(reader, 1)
        size |= (digit & 0x7F) << shift
        shift += 7
        if digit < 0x80:
            return Packet(first & 0xF0, _exactly(reader, size))


def _exactly(reader: BinaryIO, size: int) -> bytes:
    found = reader.read(size)
    if len(found) < size:
        raise EOFError("the connection ended")
    return found


def _field(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def _packet(first: int, body: bytes) -> bytes:
    """Return a packet with its length encoded as in section 2.2.3."""
    encoded, size = [first], len(body)
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size]) + body
