"""Connections of a home's agents to their broker: where it is, and how each of them logs in."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from relay.home import Home
from relay.transport import broker
from relay.transport.credentials import Login, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import Identity, LoginRefused, MqttTransport

_LOGINS = 5


class Connector:
    """Connects agents of `home` to its embedded broker, started on demand, or to the one at `url`.

    external: whether the broker is one of the user's own.  It keeps the mail of agents that are away.
    """

    def __init__(self, home: Home, url: str | None = None, *, port: int | None = None) -> None:
        """Raise BrokerError for a malformed URL. port: where an embedded broker listens that is started."""
        self._home = home
        self._url = None if url is None else Endpoint.of(url)
        self._port = port
        self.external = self._url is not None

    def use(self) -> contextlib.AbstractContextManager[None]:
        """Keep an embedded broker running for a block. Entering it blocks; raise HomeError."""
        return contextlib.nullcontext() if self.external else broker.use(self._home)

    async def connect(
        self, team: str, name: str, *, mailbox: bool = False, farewell: tuple[str, bytes] | None = None
    ) -> MqttTransport:
        """Return a connection with the rights of `name` in `team`. Raise BrokerError and HomeError.

        mailbox:  take its mailbox, which ends the connection that has it; else be one beside it.
        farewell: (topic, payload) that the broker publishes, retained, when the connection breaks.
        """
        endpoint, login = await asyncio.to_thread(self._admit, team, name)
        identity = Identity(
            login.client_id if mailbox else f"relay-{secrets.token_hex(16)}",
            # All that use the embedded broker share the ledger, which keeps what waits for who is away. A
            # broker that kept it too could fill up, and would then take nothing more from anybody.
            keep=mailbox and self.external,
            user=login.user,
            password=login.password,
            farewell=farewell,
        )
        # The embedded broker knows all whom it was told of, but nats-server also refuses those who come at
        # the moment at which it reads its configuration again, for somebody else's sake.
        tries = 1 if self.external else _LOGINS
        while True:
            transport = MqttTransport(endpoint, identity)
            try:
                await transport.connect()
            except LoginRefused:
                tries -= 1
                if not tries:
                    raise
            else:
                return transport

    def _admit(self, team: str, name: str) -> tuple[Endpoint, Login]:
        """Where the broker is, and how `name` logs in there."""
        if self._url is None:
            endpoint, credentials = broker.admit(self._home, team, name, port=self._port)
        else:
            endpoint, credentials = self._url, broker.credentials(self._home, team, name)
        return endpoint, for_endpoint(endpoint, credentials)
