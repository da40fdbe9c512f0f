"""A connection to the broker.

MQTT 3.1.1 with QoS 1 through aiomqtt (relay needs nothing of MQTT 5), and through the public callbacks of the
paho client that aiomqtt drives.  A transport is used once: it connects, works until the connection is lost,
and is discarded; the messaging client makes the next.

aiomqtt alone would wait in vain for the answer to a login whose connection is closed, forget what arrived
before a loss, watch the socket for each packet, even if it is closed by then, and wake up every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, Self

import aiomqtt
import paho.mqtt.client as paho
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.enums import MQTTErrorCode

from relay.clock import until_tick
from relay.errors import BrokerError
from relay.transport.arrivals import Arrivals, Inbound
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint

CONNECT_SECONDS = 5.0
PUBLISH_SECONDS = 10.0
"""Seconds that a silent broker may take to answer."""

LONGEST_SECONDS = 60.0
"""Seconds that a broker may take to answer if it sends much else first."""

REFUSED_SECONDS = 10.0
"""Seconds for which a refused subscription is retried before the access list is blamed: a cluster of
nats-servers elects a leader within 4 to 9 seconds (server/raft.go of its source)."""

KEEPALIVE_SECONDS = 20
IN_FLIGHT = 64
"""Maximum publishes that await the broker's acknowledgement."""

_ASK_AGAIN = 0.3  # seconds

# aiomqtt logs each lost connection, which the messaging client reports in its own words. Disabled, the logger
# does not even create a record for each packet, a tenth of a packet's cost.
_quiet = logging.Logger("relay.transport.mqtt")
_quiet.disabled = True


class ConnectionLost(BrokerError):
    """The broker has gone or does not answer; connect again later."""


class LoginCut(ConnectionLost):
    """The broker has closed the connection during the login."""


class LoginRefused(BrokerError):
    """The broker does not know the user, or the password is wrong."""


class MqttTransport:
    """One connection to a broker over aiomqtt. Every method but `close` may raise ConnectionLost."""

    def __init__(self, endpoint: Endpoint, login: Login, *, patience: float = LONGEST_SECONDS) -> None:
        """patience: seconds within which the broker must answer, if less than the default."""
        self.endpoint = endpoint
        self._answer_seconds = min(patience, PUBLISH_SECONDS)
        self._client = aiomqtt.Client(
            endpoint.host,
            endpoint.port,
            username=login.user,
            password=login.password,
            identifier=login.client_id,
            # In 3.1.1, this alone decides whether the broker keeps the mailbox.
            clean_session=not login.keep,
            protocol=aiomqtt.ProtocolVersion.V311,
            will=None if login.farewell is None else aiomqtt.Will(*login.farewell, 1, login.retained),
            keepalive=KEEPALIVE_SECONDS,
            timeout=min(patience, CONNECT_SECONDS),
            # The library warns on stderr, which is the user's terminal.
            logger=_quiet,
            max_inflight_messages=IN_FLIGHT,
            tls_context=ssl.create_default_context() if endpoint.tls else None,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
        self._limits: dict[asyncio.Timeout, float] = {}  # of pending answers: the latest deadline of each
        self._extended = 0.0
        self._waits_to_write = False  # the socket takes nothing more for now
        self._loop = asyncio.get_running_loop()
        self._arrivals = Arrivals()  # not yielded yet
        self._news = asyncio.Event()  # more has arrived, or the connection is lost
        self._lost: asyncio.Future[None] = self._loop.create_future()
        # aiomqtt 2 shows the client that it drives in no other way.
        self._paho = self._client._client
        self._paho.connect_timeout = self._client.timeout
        self._paho.on_socket_open = self._opened
        self._paho.on_socket_register_write = self._write_soon
        self._paho.on_socket_unregister_write = self._written
        self._paho.on_message = self._arrived
        self._paho.on_disconnect = self._disconnected
        # aiomqtt's callback, until it is called.
        self._welcome, self._paho.on_connect = self._paho.on_connect, self._answered

    async def connect(self) -> Self:
        """Connect, log in, and return self. Raise LoginRefused if the broker does not know the login."""
        # In its own task: a cancelled connect would continue in its thread and log in unattended.
        connecting = self._loop.create_task(self._client.__aenter__())
        try:
            ends: set[asyncio.Future[Any]] = {connecting, self._lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._welcome is not None and not connecting.done():
                connecting.cancel()
                self.close()
                raise LoginCut(
                    f"the program at {self.endpoint.url} does not answer like an MQTT broker (it closed the "
                    "connection during the login). Check the host and port, or try again if the broker is "
                    "just starting."
                )
            await asyncio.shield(connecting)
            return self
        except MqttConnectError as error:
            self.close()
            raise LoginRefused(self._refusal(error)) from None
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            self.close()
            raise ConnectionLost(self._explain(error)) from None
        except asyncio.CancelledError:
            connecting.add_done_callback(self._forget)
            raise

    async def subscribe(self, topic: str, qos: int, *, insist: bool = False) -> None:
        """Subscribe. Raise BrokerError if the broker does not allow it.

        insist: retry for REFUSED_SECONDS; a cluster that is electing a leader refuses, too.
        """
        until = self._loop.time() + REFUSED_SECONDS
        while True:
            async with self._bounded("subscribe"):
                granted = await self._client.subscribe(topic, qos, timeout=math.inf)
            # MQTT 3.1.1 section 3.9.3
            if all((code if isinstance(code, int) else code.value) < 0x80 for code in granted):
                return
            if not insist or self._loop.time() > until:
                raise BrokerError(
                    f"the broker at {self.endpoint.url} does not allow {topic!r}. Check its access list; "
                    "for a cluster, also check that most nodes are running."
                )
            await asyncio.sleep(_ASK_AGAIN)

    async def unsubscribe(self, topic: str) -> None:
        """Cancel a subscription, if there is one, even one that the broker has kept with the mailbox."""
        async with self._bounded("unsubscribe"):
            await self._client.unsubscribe(topic, timeout=math.inf)

    def send(self, topic: str, payload: bytes) -> bool:
        """Publish at QoS 0, which may be lost; return False if the broker takes nothing now."""
        if self._waits_to_write or self._lost.done():
            return False
        # For each packet at QoS 0, paho would make an acknowledgement of 100 objects.
        acknowledged, self._paho.on_publish = self._paho.on_publish, None
        try:
            self._paho.publish(topic, payload)
        finally:
            self._paho.on_publish = acknowledged
        return True

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish; return once the broker has acknowledged it, which says nothing about any receiver."""
        async with self._bounded("publish"):
            await self._client.publish(topic, payload, qos=1, retain=retain, timeout=math.inf)
        self._extend()

    async def arriving(self) -> AsyncIterator[Inbound]:
        """Yield arriving payloads until the connection is lost; publishers take turns."""
        while True:
            self._news.clear()
            for inbound in self._arrivals.left():
                yield inbound
                self._extend()
            if self._lost.done():
                raise ConnectionLost(self._explain(aiomqtt.MqttError("it closed the connection")))
            await self._news.wait()

    def close(self, *, politely: bool = True) -> None:
        """Disconnect at once; never raise. May be called twice, and after a failed login.

        politely: tell the broker first; otherwise it publishes the farewell.
        """
        # Not with the library's __aexit__: it waits, and may swallow the cancellation that led here.
        if (sock := self._paho.socket()) is None:  # aiomqtt leaves it open even after a failed login
            return
        self._paho.on_socket_register_write = None  # without this callback, paho writes at once
        with contextlib.suppress(OSError):
            if politely:
                self._paho.disconnect()
            if isinstance(sock, socket.socket):
                sock.shutdown(socket.SHUT_RDWR)
        self._paho.disconnect()  # if the socket is still open: writing fails now, so paho closes it

    @contextlib.asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        """Raise ConnectionLost if the block takes longer than with a working broker.

        This replaces the library's own time limit: asyncio.wait_for sometimes swallows a cancellation
        (before Python 3.12).
        """
        try:
            async with asyncio.timeout(self._answer_seconds) as limit:
                self._limits[limit] = self._loop.time() + LONGEST_SECONDS
                try:
                    yield
                finally:
                    del self._limits[limit]
        except TimeoutError:
            raise ConnectionLost(
                f"the broker at {self.endpoint.url} does not answer a {what}; reconnecting."
            ) from None
        except aiomqtt.MqttError as error:
            raise ConnectionLost(self._explain(error)) from None

    def _extend(self) -> None:
        """Extend the time limits: something arrived, so the broker works."""
        now = self._loop.time()
        if now - self._extended > self._answer_seconds / 10:
            self._extended = now
            for limit, latest in self._limits.items():
                if not limit.expired():
                    limit.reschedule(min(now + self._answer_seconds, latest))

    def _opened(self, _client: paho.Client, _userdata: object, sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._watch, sock)  # this is the thread that connects

    def _watch(self, sock: socket.socket) -> None:
        if sock.fileno() != -1:
            self._loop.add_reader(sock.fileno(), self._read, sock)
            self._keep_alive()

    def _answered(self, *answer: Any) -> None:
        """Pass on the answer to the login; from now on, write each packet at once."""
        if self._welcome is not None:
            self._welcome(*answer)
            self._welcome = None
        self._paho.on_socket_register_write = self._write

    def _disconnected(self, *_: object) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        self._news.set()

    def _arrived(self, _client: paho.Client, _userdata: object, message: paho.MQTTMessage) -> None:
        self._arrivals.add(Inbound(message.topic, bytes(message.payload), message.retain, message.qos))
        self._news.set()

    def _read(self, sock: socket.socket) -> None:
        try:
            self._paho.loop_read()
            while isinstance(sock, ssl.SSLSocket) and sock.fileno() != -1 and sock.pending():
                self._paho.loop_read()  # the socket does not report what TLS has already read
        except Exception:  # noqa: BLE001  from a packet that paho cannot parse
            self.close()

    def _write_soon(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._write)  # this is the thread that connects

    def _write(self, *_: object) -> None:
        """Write what waits; what the socket does not accept, once it is ready."""
        self._paho.loop_write()
        if self._paho.want_write() and isinstance(sock := self._paho.socket(), socket.socket):
            self._waits_to_write = True
            self._loop.add_writer(sock.fileno(), self._paho.loop_write)

    def _written(self, _client: paho.Client, _userdata: object, sock: Any) -> None:
        if self._waits_to_write:  # `remove_writer` alone would cost as much as a packet
            self._waits_to_write = False
            self._loop.remove_writer(sock.fileno())

    def _keep_alive(self) -> None:
        """Send a ping if one is due, and look again at a tick of this process."""
        if self._paho.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._loop.call_later(until_tick(KEEPALIVE_SECONDS / 4), self._keep_alive)

    def _forget(self, connecting: asyncio.Task[aiomqtt.Client]) -> None:
        """Close a connection whose login nobody awaits any more."""
        if not connecting.cancelled():
            connecting.exception()
        self.close()

    def _refusal(self, error: MqttConnectError) -> str:
        url, user = self.endpoint.url, self._paho.username
        if user is None or self.endpoint.user is not None or self.endpoint.kind == "embedded":
            return f"the broker at {url} refuses the login ({error}). Check the user and password."
        return (
            f"the broker at {url} refuses the login of {user} ({error}). `relay broker acl` writes its "
            "list of users, and `relay broker credentials export|import` copies a login to another host."
        )

    def _explain(self, error: Exception) -> str:
        url = self.endpoint.url
        text = str(error)
        if "timed out" in text:
            return (
                f"the program at {url} does not answer like an MQTT broker within "
                f"{self._client.timeout:.0f} s. Check the host and port."
            )
        if refused := re.search(r"certificate verify failed: .+?(?=\.? \(_ssl)", text):
            return (
                f"the certificate of the broker at {url} was rejected ({refused[0]}). It must be valid for "
                "that host; for a private authority, set SSL_CERT_FILE to its certificate."
            )
        return f"no connection to the broker at {url} ({text})."


@contextlib.asynccontextmanager
async def connected(endpoint: Endpoint, login: Login) -> AsyncIterator[MqttTransport]:
    """Yield a connection for a block. Raise BrokerError."""
    with contextlib.closing(await MqttTransport(endpoint, login).connect()) as transport:
        yield transport


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
