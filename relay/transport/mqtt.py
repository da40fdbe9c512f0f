"""A connection to the broker.

MQTT 3.1.1 with QoS 1 (nothing of MQTT 5 is relied upon) through aiomqtt.  A transport is used once: it
connects, works until the connection is lost, and is thrown away; the messaging client makes the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiomqtt
from aiomqtt.exceptions import MqttConnectError

from relay.errors import BrokerError
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint

CONNECT_SECONDS = 5.0
PUBLISH_SECONDS = 10.0
"""Seconds that a silent broker may take for an answer."""

LONGEST_SECONDS = 60.0
"""Seconds that a broker may take that sends much else before the answer."""
KEEPALIVE_SECONDS = 20
IN_FLIGHT = 64
"""Publishes that await the broker's acknowledgement at one time."""

# aiomqtt writes each lost connection to its logger, which the messaging client reports in its own words.
# Disabled, it does not even make the record of each packet, a tenth of what a packet costs.
_quiet = logging.Logger("relay.transport.mqtt")
_quiet.disabled = True


def _look_at(lost: asyncio.Future[None]) -> None:
    """Take note of how `lost` came out; else asyncio complains on stderr that nobody did."""
    if not lost.cancelled():
        lost.exception()


class ConnectionLost(BrokerError):
    """The broker went away or does not answer; connect again later."""


class LoginRefused(BrokerError):
    """The broker does not know the user, or the password is wrong."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A payload that arrived. retained: the broker had kept it, so its age is unknown."""

    topic: str
    payload: bytes
    retained: bool


class MqttTransport:
    """One connection to a broker over aiomqtt. Every method but `close` may raise ConnectionLost."""

    def __init__(self, endpoint: Endpoint, login: Login) -> None:
        self.endpoint = endpoint
        self._user = login.user
        self._client = aiomqtt.Client(
            endpoint.host,
            endpoint.port,
            username=login.user,
            password=login.password,
            identifier=login.client_id,
            # On 3.1.1 this alone decides whether the broker keeps the mailbox.
            clean_session=not login.keep,
            protocol=aiomqtt.ProtocolVersion.V311,
            will=None if login.farewell is None else aiomqtt.Will(*login.farewell, qos=1, retain=True),
            keepalive=KEEPALIVE_SECONDS,
            timeout=CONNECT_SECONDS,
            # The library warns on stderr, which is the user's terminal.
            logger=_quiet,
            max_inflight_messages=IN_FLIGHT,
            tls_context=ssl.create_default_context() if endpoint.tls else None,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
        self._client.pending_calls_threshold = 10 * IN_FLIGHT
        # A connection that is lost at once says so here, and aiomqtt forgets it when the login is through.
        self._lost_at_once = self._client._disconnected
        self._limits: dict[asyncio.Timeout, float] = {}  # of what is being waited for: until when, at most
        self._extended = 0.0
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._client._client.on_socket_register_write = self._register_write

    async def connect(self) -> None:
        """Connect and log in. Raise LoginRefused if the broker does not know the login."""
        # In a task of its own: a cancelled connect would go on in its thread and log in unattended.
        connecting = asyncio.create_task(self._client.__aenter__())
        try:
            await asyncio.shield(connecting)
        except MqttConnectError as error:
            self.close()
            raise LoginRefused(self._refusal(error)) from None
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            self.close()
            raise ConnectionLost(self._explain(error)) from None
        except asyncio.CancelledError:
            connecting.add_done_callback(self._forget)
            raise

    async def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe. Raise BrokerError if the broker does not allow it."""
        async with self._bounded("subscribe"):
            granted = await self._client.subscribe(topic, qos, timeout=math.inf)
        if any((code if isinstance(code, int) else code.value) >= 0x80 for code in granted):
            # MQTT 3.1.1 section 3.9.3
            raise BrokerError(
                f"the broker at {self.endpoint.url} does not allow {topic!r}. Check its access list."
            )

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish; return when the broker has acknowledged it, which says nothing about any receiver."""
        async with self._bounded("publish"):
            await self._client.publish(topic, payload, qos=1, retain=retain, timeout=math.inf)
        self._extend()

    async def arriving(self) -> AsyncIterator[Inbound]:
        """Yield what arrives, until the connection is lost."""
        try:
            async for message in self._client.messages:
                self._extend()
                yield Inbound(str(message.topic), bytes(message.payload), message.retain)
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None

    def close(self) -> None:
        """Disconnect politely, at once; never raise. May be called twice, and after a failed login."""
        # Not by the library's __aexit__: it waits, and may swallow the cancellation that led here.
        raw = self._client._client
        sock = raw.socket()
        if isinstance(sock, socket.socket):  # aiomqtt leaves it open after a login that failed, too
            raw.on_socket_register_write = None  # it writes at once, then
            with contextlib.suppress(OSError):
                raw.disconnect()
                sock.shutdown(socket.SHUT_RDWR)
            while raw.socket() is not None:  # what had arrived, then the end, which closes it
                raw.loop_read()
        for lost in (self._lost_at_once, self._client._disconnected):
            if lost.done():
                _look_at(lost)
            else:  # the thread that connects may still report a loss
                lost.add_done_callback(_look_at)

    @contextlib.asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        """Raise ConnectionLost if the block takes longer than with a working broker.

        The library's own time limit is not used: asyncio.wait_for swallows a cancellation now and then
        (before Python 3.12).
        """
        try:
            async with asyncio.timeout(PUBLISH_SECONDS) as limit:
                self._limits[limit] = self._loop.time() + LONGEST_SECONDS
                try:
                    yield
                finally:
                    del self._limits[limit]
        except TimeoutError:
            raise ConnectionLost(
                f"the broker at {self.endpoint.url} does not answer to a {what}; connecting again."
            ) from None
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None

    def _extend(self) -> None:
        """Extend the time limits: something came, so the broker works."""
        now = self._loop.time()
        if now - self._extended > PUBLISH_SECONDS / 10:
            self._extended = now
            for limit, latest in self._limits.items():
                if not limit.expired():
                    limit.reschedule(min(now + PUBLISH_SECONDS, latest))

    def _forget(self, connecting: asyncio.Task[aiomqtt.Client]) -> None:
        """Close a connection for whose login nobody waits any more."""
        if not connecting.cancelled():
            connecting.exception()
        # aiomqtt's own asks how the login came out, which raises when that was cancelled.
        self._client._client.on_disconnect = None
        self.close()

    def _register_write(self, _client: object, _userdata: object, sock: Any) -> None:
        """Write when the socket is ready.

        In place of aiomqtt's own, which puts it off to the loop's next turn, when the socket may be closed.
        """
        if threading.get_ident() == self._thread:
            self._watch(sock)
        else:  # the thread that connects
            self._loop.call_soon_threadsafe(self._watch, sock)

    def _watch(self, sock: socket.socket) -> None:
        if sock.fileno() != -1:
            self._loop.add_writer(sock.fileno(), self._client._client.loop_write)

    def _refusal(self, error: MqttConnectError) -> str:
        url = self.endpoint.url
        if self._user is None or self.endpoint.user is not None or self.endpoint.kind == "embedded":
            return f"the broker at {url} refuses the login ({error}). Check user and password."
        return (
            f"the broker at {url} refuses the login of {self._user} ({error}). `relay broker acl` "
            "writes the list of its users, and `relay broker credentials export|import` takes a login to "
            "another host."
        )

    def _explain(self, error: Exception) -> str:
        url = self.endpoint.url
        text = str(error)
        if "timed out" in text:
            return (
                f"what listens at {url} does not answer like an MQTT broker within "
                f"{CONNECT_SECONDS:.0f} s. Check host and port."
            )
        if refused := re.search(r"certificate verify failed: .+?(?=\.? \(_ssl)", text):
            return (
                f"the certificate of the broker at {url} is not accepted ({refused[0]}). It has to be valid "
                "for that host; for a private authority, name its certificate in SSL_CERT_FILE."
            )
        if "during message iteration" in text:  # aiomqtt's words for a connection lost while it listened
            text = "it closed the connection"
        return f"no connection to the broker at {url} ({text})."
