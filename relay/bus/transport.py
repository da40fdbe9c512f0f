"""A connection to the broker: what the bus needs of one, and the MQTT one.

MQTT 3.1.1 with QoS 1 (nothing of MQTT 5 is relied upon) through aiomqtt.  A transport is used once: it
connects, works until the connection is lost, and is thrown away; the courier makes the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import aiomqtt
from aiomqtt.exceptions import MqttConnectError

from relay.bus.broker import Endpoint
from relay.errors import BrokerError

CONNECT_SECONDS = 5.0
PUBLISH_SECONDS = 10.0
KEEPALIVE_SECONDS = 20
IN_FLIGHT = 64
"""Publishes that await the broker's acknowledgement at one time."""

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

_quiet = logging.Logger("relay.bus.mqtt")
_quiet.addHandler(logging.NullHandler())


class ConnectionLost(BrokerError):
    """The broker went away or does not answer; connect again later."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A payload that arrived. retained: the broker had kept it, so its age is unknown."""

    topic: str
    payload: bytes
    retained: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """How to log in. keep: whether the broker keeps mail for `client_id` while it is away.

    farewell: (topic, payload) that the broker publishes, retained, when the connection breaks.
    """

    client_id: str
    keep: bool
    user: str | None = None
    password: str | None = None
    farewell: tuple[str, bytes] | None = None


class Transport(Protocol):
    """One connection. Every method may raise ConnectionLost."""

    async def connect(self) -> None: ...

    async def subscribe(self, topic: str, qos: int) -> None:
        """Raises BrokerError where the broker does not allow it."""
        ...

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Return when the broker has acknowledged it, which says nothing about any receiver."""
        ...

    def arriving(self) -> AsyncIterator[Inbound]: ...

    async def close(self) -> None:
        """Disconnect politely; bounded, never raises."""
        ...


class MqttTransport:
    """`Transport` over aiomqtt."""

    def __init__(self, endpoint: Endpoint, identity: Identity) -> None:
        self._endpoint = endpoint
        farewell = identity.farewell
        self._client = aiomqtt.Client(
            endpoint.host,
            endpoint.port,
            username=identity.user,
            password=identity.password,
            identifier=identity.client_id,
            # On 3.1.1 this alone decides whether the broker keeps the mailbox.
            clean_session=not identity.keep,
            protocol=aiomqtt.ProtocolVersion.V311,
            will=None if farewell is None else aiomqtt.Will(*farewell, qos=1, retain=True),
            keepalive=KEEPALIVE_SECONDS,
            timeout=CONNECT_SECONDS,
            # The library warns on stderr, which is the person's terminal.
            logger=_quiet,
            max_inflight_messages=IN_FLIGHT,
            tls_context=ssl.create_default_context() if endpoint.tls else None,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
        self._client.pending_calls_threshold = 10 * IN_FLIGHT

    async def connect(self) -> None:
        try:
            await self._client.__aenter__()
        except MqttConnectError as error:
            self._abandon()
            raise BrokerError(
                f"the broker at {self._endpoint.url} refuses the login ({error}). Check user and password."
            ) from None
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            self._abandon()
            raise ConnectionLost(self._explain(error)) from None
        except asyncio.CancelledError:
            self._abandon()
            raise

    async def subscribe(self, topic: str, qos: int) -> None:
        try:
            granted = await self._client.subscribe(topic, qos)
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None
        if any(
            (code if isinstance(code, int) else code.value) >= 0x80 for code in granted
        ):  # MQTT 3.1.1 section 3.9.3
            raise BrokerError(
                f"the broker at {self._endpoint.url} does not allow {topic!r}. Check its access list."
            )

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        try:
            # A publish that a dying broker cuts off would otherwise wait for ever.
            await self._client.publish(topic, payload, qos=1, retain=retain, timeout=PUBLISH_SECONDS)
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None

    async def arriving(self) -> AsyncIterator[Inbound]:
        try:
            async for message in self._client.messages:
                yield Inbound(str(message.topic), bytes(message.payload), message.retain)
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None

    async def close(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._client.__aexit__(None, None, None)
        self._abandon()

    def _abandon(self) -> None:
        """Close the socket: aiomqtt leaves it open (and in the event loop) when a login times out."""
        raw = self._client._client
        sock = raw.socket()
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            while raw.socket() is not None:  # what had arrived, then the end, which closes it
                raw.loop_read()

    def _explain(self, error: Exception) -> str:
        url = self._endpoint.url
        text = str(error)
        if "timed out" in text:
            return (
                f"what listens at {url} does not answer like an MQTT broker within "
                f"{CONNECT_SECONDS:.0f} s. Check host and port."
            )
        return f"no connection to the broker at {url} ({text})."
