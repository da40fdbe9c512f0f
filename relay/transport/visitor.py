"""Connections of agents that test a broker, beside their real ones: to listen, to publish, or to break."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from relay.errors import BrokerError
from relay.transport import packets, topics
from relay.transport.credentials import Credentials, Login, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import CONNECT_SECONDS, ConnectionLost, MqttTransport

SETTLE_SECONDS = 0.2
"""Extra seconds to wait: a cluster may deliver an earlier message later."""

ANSWER_SECONDS = 15.0


def beside(endpoint: Endpoint, agent: Credentials, *, keep: bool = False) -> Login:
    """Return the login for a connection of `agent` beside its real ones."""
    return replace(for_endpoint(endpoint, agent), client_id=anybody(), keep=keep)


def anybody() -> str:
    """Return a client id that nobody has."""
    return f"relay-{secrets.token_hex(16)}"


def token() -> bytes:
    """Return a payload that nobody else publishes; agents ignore it as foreign."""
    return f"relay doctor {secrets.token_hex(8)}".encode()


@dataclass(eq=False, slots=True)
class Ear:
    """The payloads and topics that one connection receives. own: the topic on which it publishes to itself.

    deaf: the broker refused a subscription, or the connection was lost.
    """

    transport: MqttTransport
    own: str
    heard: set[bytes] = field(default_factory=set)
    topics: list[str] = field(default_factory=list)
    deaf: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        try:
            async for inbound in self.transport.arriving():
                self.heard.add(inbound.payload)
                self.topics.append(inbound.topic)
                self._news.set()
        except ConnectionLost:
            self.deaf = True
            self._news.set()

    async def hears(self, token: bytes, seconds: float = ANSWER_SECONDS) -> bool:
        """Return True if `token` arrives in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while token not in self.heard and not self.deaf:
                    self._news.clear()
                    await self._news.wait()
        return token in self.heard

    async def settled(self) -> None:
        """Wait until earlier payloads have arrived, if they arrive at all. Raise BrokerError."""
        if self.deaf:
            return
        await self.transport.publish(self.own, fence := token())
        if not await self.hears(fence) and not self.deaf:
            raise BrokerError(f"a message published to {self.own} did not arrive. Try again.")
        await asyncio.sleep(SETTLE_SECONDS)


@contextlib.asynccontextmanager
async def hearing(transport: MqttTransport, agent: Credentials, *presences: str) -> AsyncIterator[Ear]:
    """Listen over `transport` to the inbox of `agent`, and to `presences`. Raise BrokerError."""
    ear = Ear(transport, topics.inbox(agent.team, agent.name, agent.name))
    await transport.subscribe(topics.inbox_filter(agent.team, agent.name), 1, insist=True)
    for filter in presences:
        await transport.subscribe(filter, 0)
    listening = asyncio.create_task(ear.listen())
    try:
        yield ear
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


@contextlib.asynccontextmanager
async def raw_login(
    endpoint: Endpoint, login: Login, will: tuple[str, bytes] | None = None
) -> AsyncIterator[bool]:
    """Log in with a clean session, for a block; yield True if the broker accepts. Raise ConnectionLost.

    By hand, as no client library allows it: with any client id or user, and a will that is not retained.

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
