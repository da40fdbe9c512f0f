"""Connections of agents that test a broker, beside their real ones: to listen, to publish, or to break."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from relay.dataclass import dataclass, field, replace
from relay.errors import BrokerError
from relay.transport import topics
from relay.transport.credentials import Credentials, Login, anybody, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import ConnectionLost, LoginCut, LoginRefused, MqttTransport

SETTLE_SECONDS = 0.2
"""Extra seconds to wait: a cluster may deliver an earlier message later."""

ANSWER_SECONDS = 15.0


def beside(endpoint: Endpoint, agent: Credentials, *, keep: bool = False) -> Login:
    """Return the login for a connection of `agent` beside its real ones."""
    return replace(for_endpoint(endpoint, agent), client_id=anybody(), keep=keep)


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


async def accepts(endpoint: Endpoint, login: Login) -> bool:
    """Return True if the broker accepts `login`. Raise ConnectionLost if it does not answer.

    The connection is closed; with a farewell it breaks, so that the broker publishes that.
    """
    try:
        transport = await MqttTransport(endpoint, login).connect()
    except (LoginRefused, LoginCut):  # some brokers close the connection instead of answering
        return False
    transport.close(politely=login.farewell is None)
    return True
