"""A login at an MQTT broker by hand, for tests of a broker that no client library allows.

A will that is not retained, a connection that breaks at once, another agent's client id, no user at all.
MQTT 3.1.1 sections 3.1 (CONNECT) and 3.2 (CONNACK).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import CONNECT_SECONDS, ConnectionLost

_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20
_KEEPALIVE = 60  # seconds


@contextlib.asynccontextmanager
async def raw_login(
    endpoint: Endpoint, login: Login, will: tuple[str, bytes] | None = None
) -> AsyncIterator[bool]:
    """Log in with a clean session, for a block; yield True if the broker accepts. Raise ConnectionLost.

    will: (topic, payload), QoS 1, not retained. With a will the connection breaks at the end of the block, so
    that the broker publishes it; without, it ends politely.
    """
    context = ssl.create_default_context() if endpoint.tls else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"no connection to the broker at {endpoint.url} ({error}).") from None
    try:
        writer.write(_connect(login, will))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                answer = await reader.readexactly(4)
        except TimeoutError:  # an OSError, too, which would be taken for a refusal
            raise ConnectionLost(f"the broker at {endpoint.url} does not answer to a login.") from None
        except (asyncio.IncompleteReadError, OSError):
            answer = b""  # some close the connection instead of an answer
        yield len(answer) == 4 and answer[0] == _CONNACK and answer[3] == 0
        if will is None:
            with contextlib.suppress(OSError):
                writer.write(_DISCONNECT)
                await writer.drain()
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _connect(login: Login, will: tuple[str, bytes] | None) -> bytes:
    flags, fields = 0x02, [login.client_id.encode()]  # clean session
    if will is not None:
        flags |= 0x04 | 0x08  # a will of QoS 1
        fields += [will[0].encode(), will[1]]
    for text, flag in ((login.user, 0x80), (login.password, 0x40)):
        if text is not None:
            flags |= flag
            fields.append(text.encode())
    payload = b"".join(len(each).to_bytes(2) + each for each in fields)
    body = b"\x00\x04MQTT\x04" + bytes([flags]) + _KEEPALIVE.to_bytes(2) + payload
    return b"\x10" + _length(len(body)) + body


def _length(size: int) -> bytes:
    """Return `size` as MQTT 3.1.1 section 2.2.3 encodes it."""
    encoded = []
    while size >= 128:
        encoded.append(size % 128 | 0x80)
        size //= 128
    return bytes([*encoded, size])
