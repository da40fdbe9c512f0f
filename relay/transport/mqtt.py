"""A connection to the broker.

MQTT 3.1.1 with QoS 1 through aiomqtt (relay needs nothing of MQTT 5).  A transport is used once: it connects,
works until the connection is lost, and is discarded; the messaging client makes the next.
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
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import aiomqtt
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.enums import MQTTErrorCode

from relay.clock import until_tick
from relay.errors import BrokerError
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
_TOO_EARLY = "it closed the connection during the login"

# aiomqtt logs each lost connection, which the messaging client reports in its own words. Disabled, the logger
# does not even create a record for each packet, a tenth of a packet's cost.
_quiet = logging.Logger("relay.transport.mqtt")
_quiet.disabled = True


def _look_at(lost: asyncio.Future[None]) -> None:
    """Retrieve the result of `lost`; otherwise asyncio complains on stderr that nobody did."""
    if not lost.cancelled():
        lost.exception()


class ConnectionLost(BrokerError):
    """The broker has gone or does not answer; connect again later."""


class LoginRefused(BrokerError):
    """The broker does not know the user, or the password is wrong."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A payload that arrived.

    retained: the broker had kept it, so its age is unknown.
    qos:      0: the broker sends all that it has, without waiting for acknowledgements.
    """

    topic: str
    payload: bytes
    retained: bool
    qos: int = 1


class _Mail(asyncio.Queue[aiomqtt.Message]):
    """Arrived payloads. came: set when more have arrived; waiting for it removes none."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)  # a hook for subclasses
        self.came = asyncio.Event()

    def _put(self, item: aiomqtt.Message) -> None:
        super()._put(item)
        self.came.set()


class MqttTransport:
    """One connection to a broker over aiomqtt. Every method but `close` may raise ConnectionLost."""

    def __init__(self, endpoint: Endpoint, login: Login, *, patience: float = LONGEST_SECONDS) -> None:
        """patience: seconds within which the broker must answer, if less than the default."""
        self.endpoint = endpoint
        self._login_seconds = min(patience, CONNECT_SECONDS)
        self._answer_seconds = min(patience, PUBLISH_SECONDS)
        self._user = login.user
        self._client = aiomqtt.Client(
            endpoint.host,
            endpoint.port,
            username=login.user,
            password=login.password,
            identifier=login.client_id,
            # In 3.1.1, this alone decides whether the broker keeps the mailbox.
            clean_session=not login.keep,
            protocol=aiomqtt.ProtocolVersion.V311,
            will=None if login.farewell is None else aiomqtt.Will(*login.farewell, qos=1, retain=True),
            keepalive=KEEPALIVE_SECONDS,
            timeout=self._login_seconds,
            queue_type=_Mail,
            # The library warns on stderr, which is the user's terminal.
            logger=_quiet,
            max_inflight_messages=IN_FLIGHT,
            tls_context=ssl.create_default_context() if endpoint.tls else None,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
        self._client.pending_calls_threshold = 10 * IN_FLIGHT
        # Set if the connection is lost at once; aiomqtt replaces this future after the login.
        self._lost_at_once = self._client._disconnected
        self._welcome = self._client._connected
        self._limits: dict[asyncio.Timeout, float] = {}  # of pending answers: the latest deadline of each
        self._extended = 0.0
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        raw = self._client._client
        raw.connect_timeout = self._login_seconds
        raw.on_socket_register_write = self._register_write
        self._after_disconnect, raw.on_disconnect = raw.on_disconnect, self._disconnected
        self._client._misc_loop = self._keep_alive  # type: ignore[method-assign]

    async def connect(self) -> None:
        """Connect and log in. Raise LoginRefused if the broker does not know the login."""
        # In its own task: a cancelled connect would continue in its thread and log in unattended.
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

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish; return once the broker has acknowledged it, which says nothing about any receiver."""
        async with self._bounded("publish"):
            await self._client.publish(topic, payload, qos=1, retain=retain, timeout=math.inf)
        self._extend()

    async def arriving(self) -> AsyncIterator[Inbound]:
        """Yield arriving payloads until the connection is lost."""
        # The library's own iterator would lose the message that it was about to yield when it is cancelled,
        # and its queue when the connection is lost, although the broker has acknowledgements for all of them.
        came, lost = self._mail.came, self._client._disconnected
        lost.add_done_callback(lambda _: came.set())
        while True:
            for inbound in self.left():
                yield inbound
            if lost.done():
                _look_at(lost)
                raise ConnectionLost(self._explain(aiomqtt.MqttError("it closed the connection")))
            await came.wait()

    def left(self) -> Iterator[Inbound]:
        """Yield payloads that have arrived and were not yielded yet, even after `close`."""
        self._mail.came.clear()
        while not self._mail.empty():
            message = self._mail.get_nowait()
            yield Inbound(str(message.topic), bytes(message.payload), message.retain, message.qos)
            self._extend()

    @property
    def _mail(self) -> _Mail:
        return cast(_Mail, self._client._queue)

    def close(self) -> None:
        """Disconnect politely, at once; never raise. May be called twice, and after a failed login."""
        # Not with the library's __aexit__: it waits, and may swallow the cancellation that led here.
        raw = self._client._client
        sock = raw.socket()
        if isinstance(sock, socket.socket):  # aiomqtt leaves it open even after a failed login
            raw.on_socket_register_write = None  # without this callback, paho writes at once
            with contextlib.suppress(OSError):
                raw.disconnect()
                sock.shutdown(socket.SHUT_RDWR)
            while raw.socket() is not None:  # reads what had arrived, then the end of file, which closes it
                raw.loop_read()
        for lost in (self._lost_at_once, self._client._disconnected):
            if lost.done():
                _look_at(lost)
            else:  # the connecting thread may still report a loss
                lost.add_done_callback(_look_at)

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

    def _disconnected(self, *details: Any) -> None:
        """End a login whose connection is gone: aiomqtt would wait for its answer in vain."""
        self._loop.call_soon_threadsafe(self._end_login)  # this may be the connecting thread
        if self._after_disconnect is not None:
            self._after_disconnect(*details)

    def _end_login(self) -> None:
        if not self._welcome.done():
            self._welcome.set_exception(aiomqtt.MqttError(_TOO_EARLY))

    async def _keep_alive(self) -> None:
        """Send pings when they are due.

        This replaces aiomqtt's own check every second, which was a quarter of an idle session's wakeups.
        """
        while self._client._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:  # noqa: ASYNC110
            await asyncio.sleep(until_tick(KEEPALIVE_SECONDS / 4))

    def _forget(self, connecting: asyncio.Task[aiomqtt.Client]) -> None:
        """Close a connection whose login nobody awaits any more."""
        if not connecting.cancelled():
            connecting.exception()
        # aiomqtt's own callback asks for the result of the login, which raises if the login was cancelled.
        self._client._client.on_disconnect = None
        self.close()

    def _register_write(self, _client: object, _userdata: object, sock: Any) -> None:
        """Write at once; write what the socket does not accept once it is ready.

        This replaces aiomqtt's own method, which watches the socket for each packet, from the loop's next
        iteration, when the socket may be closed.
        """
        if threading.get_ident() == self._thread:
            raw = self._client._client
            raw.loop_write()
            if raw.want_write():
                self._watch(sock)
        else:  # the connecting thread
            self._loop.call_soon_threadsafe(self._watch, sock)

    def _watch(self, sock: socket.socket) -> None:
        if sock.fileno() != -1:
            self._loop.add_writer(sock.fileno(), self._client._client.loop_write)

    def _refusal(self, error: MqttConnectError) -> str:
        url = self.endpoint.url
        if self._user is None or self.endpoint.user is not None or self.endpoint.kind == "embedded":
            return f"the broker at {url} refuses the login ({error}). Check the user and password."
        return (
            f"the broker at {url} refuses the login of {self._user} ({error}). `relay broker acl` writes its "
            "list of users, and `relay broker credentials export|import` copies a login to another host."
        )

    def _explain(self, error: Exception) -> str:
        url = self.endpoint.url
        text = str(error)
        if text == _TOO_EARLY:
            return (
                f"the program at {url} does not answer like an MQTT broker ({text}). Check the host and "
                "port, or try again if the broker is just starting."
            )
        if "timed out" in text:
            return (
                f"the program at {url} does not answer like an MQTT broker within "
                f"{self._login_seconds:.0f} s. Check the host and port."
            )
        if refused := re.search(r"certificate verify failed: .+?(?=\.? \(_ssl)", text):
            return (
                f"the certificate of the broker at {url} was rejected ({refused[0]}). It must be valid for "
                "that host; for a private authority, set SSL_CERT_FILE to its certificate."
            )
        return f"no connection to the broker at {url} ({text})."
