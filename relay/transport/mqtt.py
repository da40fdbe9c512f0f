"""A connection to the broker.

MQTT 3.1.1 with QoS 1 (nothing of MQTT 5 is relied upon) through aiomqtt.  A transport is used once: it
connects, works until the connection is lost, and is thrown away; the courier makes the next.
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
from relay.transport.endpoint import Endpoint

CONNECT_SECONDS = 5.0
PUBLISH_SECONDS = 10.0
"""How long a broker from which nothing comes may take for an answer."""

LONGEST_SECONDS = 60.0
"""How long one may take from which much else comes before the answer."""
KEEPALIVE_SECONDS = 20
IN_FLIGHT = 64
"""Publishes that await the broker's acknowledgement at one time."""

# aiomqtt writes each lost connection to its logger; the courier tells of it in its own words.  Disabled, it
# does not even make the record of each packet, a tenth of what a packet costs.
_quiet = logging.Logger("relay.transport.mqtt")
_quiet.disabled = True


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


class MqttTransport:
    """One connection to a broker over aiomqtt. Every method but `close` may raise ConnectionLost."""

    def __init__(self, endpoint: Endpoint, identity: Identity) -> None:
        self.endpoint = endpoint
        self._user = identity.user
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
        # A connection that is lost at once says so here, and aiomqtt forgets it when the login is through.
        self._lost_at_once = self._client._disconnected
        self._limits: dict[asyncio.Timeout, float] = {}  # of what is being waited for: until when, at most
        self._extended = 0.0
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._client._client.on_socket_register_write = self._register_write

    async def connect(self) -> None:
        """Connect and log in; raise LoginRefused where the broker does not know the login."""
        # In a task of its own: a cancelled connect would go on in its thread and log in unattended.
        connecting = asyncio.create_task(self._client.__aenter__())
        try:
            await asyncio.shield(connecting)
        except MqttConnectError as error:
            self._end()
            raise LoginRefused(self._refusal(error)) from None
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            self._end()
            raise ConnectionLost(self._explain(error)) from None
        except asyncio.CancelledError:
            connecting.add_done_callback(self._forget)
            raise

    async def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe; raise BrokerError where the broker does not allow it."""
        async with self._bounded("subscribe"):
            granted = await self._client.subscribe(topic, qos, timeout=math.inf)
        if any((code if isinstance(code, int) else code.value) >= 0x80 for code in granted):
            # MQTT 3.1.1 section 3.9.3
            raise BrokerError(
                f"the broker at {self.endpoint.url} does not allow {topic!r}. Check its access list."
            )

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Return when the broker has acknowledged it, which says nothing about any receiver."""
        async with self._bounded("publish"):
            await self._client.publish(topic, payload, qos=1, retain=retain, timeout=math.inf)
        self._extend()

    async def arriving(self) -> AsyncIterator[Inbound]:
        """Yield what arrives, for ever."""
        try:
            async for message in self._client.messages:
                self._extend()
                yield Inbound(str(message.topic), bytes(message.payload), message.retain)
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None

    def close(self) -> None:
        """Disconnect politely, at once; never raise."""
        # Not by the library's __aexit__: it waits, and may swallow the cancellation that led here.
        self._end()

    @contextlib.asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        """Wait no longer than a broker that works may take: what a dying one cuts off would never end.

        Not by the library's own time limit: asyncio.wait_for swallows a cancellation now and then (before
        Python 3.12).
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
        """Something came: the broker works."""
        now = self._loop.time()
        if now - self._extended > PUBLISH_SECONDS / 10:
            self._extended = now
            for limit, latest in self._limits.items():
                if not limit.expired():
                    limit.reschedule(min(now + PUBLISH_SECONDS, latest))

    def _forget(self, connecting: asyncio.Task[aiomqtt.Client]) -> None:
        """Nobody waits for this login any more."""
        if not connecting.cancelled():
            connecting.exception()
        # aiomqtt's own asks how the login came out, which raises when that was cancelled.
        self._client._client.on_disconnect = None
        self._end()

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

    def _end(self) -> None:
        """Disconnect and close the socket; also after a login that failed, where aiomqtt leaves it open."""
        raw = self._client._client
        sock = raw.socket()
        if isinstance(sock, socket.socket):
            raw.on_socket_register_write = None  # it writes at once, then
            with contextlib.suppress(OSError):
                raw.disconnect()
                sock.shutdown(socket.SHUT_RDWR)
            while raw.socket() is not None:  # what had arrived, then the end, which closes it
                raw.loop_read()
        for lost in (self._lost_at_once, self._client._disconnected):
            if lost.done() and not lost.cancelled():
                lost.exception()  # or asyncio complains on stderr that nobody looked

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
        if (
            "during message iteration" in text
        ):  # aiomqtt's words for a connection that was lost while it listened
            text = "it closed the connection"
        return f"no connection to the broker at {url} ({text})."
