"""A hand-made login to an MQTT broker, for tests that no client library allows.

A will that is not retained, a connection that breaks at once, another agent's client id, no user at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from relay.transport import packets
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import CONNECT_SECONDS, ConnectionLost


@contextlib.asynccontextmanager
async def raw_login(
    endpoint: Endpoint, login: Login, will: tuple[str, bytes] | None = None
) -> AsyncIterator[bool]:
    """Log in with a clean session, for a block; yield True if the broker accepts. Raise ConnectionLost.

    will: (topic, payload), QoS 1, not retained. With a will, the connection breaks at the end of the block,
    so that the broker publishes the will; without one, the client disconnects cleanly.
    """
    context = ssl.create_default_context() if endpoint.tls else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"no connection to the broker at {endpoint.url} ({error}).") from None
    try:
        writer.write(packets.connect(login.client_id, login.user, login.password, will))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                answer = await reader.readexactly(4)
        except TimeoutError:  # an OSError, too, and would be taken for a refusal
            raise ConnectionLost(f"the broker at {endpoint.url} does not answer a login.") from None
        except (asyncio.IncompleteReadError, OSError):
            answer = b""  # some brokers close the connection instead of answering
        yield len(answer) == 4 and answer[0] == packets.CONNACK and answer[3] == 0
        if will is None:
            with contextlib.suppress(OSError):
                writer.write(packets.DISCONNECT)
                await writer.drain()
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
