"""A login at an MQTT broker by hand: what no client library offers, for those who test a broker.

A will that is not retained, a connection that breaks at once, somebody else's client id, no user at all.
MQTT 3.1.1 sections 3.1 (CONNECT) and 3.2 (CONNACK).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import CONNECT_SECONDS, ConnectionLost

_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20
_KEEPALIVE = 60  # seconds


@contextlib.asynccontextmanager
async def raw_login(
    endpoint: Endpoint,
    client_id: str,
    *,
    user: str | None = None,
    password: str | None = None,
    will: tuple[str, bytes] | None = None,
) -> AsyncIterator[bool]:
    """Log in with a clean session, for a block; whether the broker let us in. Raises ConnectionLost.

    will: (topic, payload), QoS 1, not retained. With one the connection breaks at the end of the block, so
    that the broker publishes it; without, it ends politely.
    """
    context = ssl.create_default_context() if endpoint.tls else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"no connection to the broker at {endpoint.url} ({error}).") from None
    try:
        writer.write(_connect(client_id, user, password, will))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                answer = await reader.readexactly(4)
        except (asyncio.IncompleteReadError, OSError):
            answer = b""  # some close the connection instead of an answer
        except TimeoutError:
            raise ConnectionLost(f"the broker at {endpoint.url} does not answer to a login.") from None
        yield len(answer) == 4 and answer[0] == _CONNACK and answer[3] == 0
        if will is None:
            with contextlib.suppress(OSError):
                writer.write(_DISCONNECT)
                await writer.drain()
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _connect(client_id: str, user: str | None, password: str | None, will: tuple[str, bytes] | None) -> bytes:
    flags, payload = 0x02, _field(client_id.encode())  # clean session
    if will is not None:
        flags |= 0x04 | 0x08  # a will of QoS 1
        payload += _field(will[0].encode()) + _field(will[1])
    if user is not None:
        flags |= 0x80
        payload += _field(user.encode())
    if password is not None:
        flags |= 0x40
        payload += _field(password.encode())
    body = b"\x00\x04MQTT\x04" + bytes([flags]) + _KEEPALIVE.to_bytes(2) + payload
    return b"\x10" + _length(len(body)) + body


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


def _length(size: int) -> bytes:
    """MQTT 3.1.1 section 2.2.3."""
    encoded = bytearray()
    while True:
        size, digit = divmod(size, 128)
        encoded.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(encoded)
