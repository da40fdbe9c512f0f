"""Connections of a home's agents to their broker, each with the agent's own rights."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace

from relay.home import Home
from relay.transport import broker
from relay.transport.credentials import Login, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import LoginRefused, MqttTransport

_LOGINS = 5


class Connector:
    """Connects agents of `home` to its embedded broker, started on demand, or to the one at `url`.

    external: the broker is one of the user's own, which keeps the mail of agents that are away.
    """

    def __init__(self, home: Home, url: str | None = None, *, port: int | None = None) -> None:
        """Raise BrokerError for a malformed URL. port: where to start the embedded broker (None: any)."""
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

        mailbox:  take over the agent's mailbox, and end the connection that has it.
        farewell: (topic, payload) that the broker publishes, retained, when the connection breaks.
        """
        endpoint, login = await asyncio.to_thread(self._admit, team, name)
        if not mailbox:
            login = replace(login, client_id=f"relay-{secrets.token_hex(16)}")
        # All users of the embedded broker share the ledger, which keeps what waits for absent agents. If the
        # broker kept it too, it could fill up, and would then take nothing more from anybody.
        login = replace(login, keep=mailbox and self.external, farewell=farewell)
        # The embedded broker knows the login, but nats-server refuses every login while it reads its
        # configuration again, for another agent's sake.
        tries = 1 if self.external else _LOGINS
        while True:
            transport = MqttTransport(endpoint, login)
            try:
                await transport.connect()
            except LoginRefused:
                tries -= 1
                if not tries:
                    raise
            else:
                return transport

    def _admit(self, team: str, name: str) -> tuple[Endpoint, Login]:
        if self._url is not None:
            return self._url, for_endpoint(self._url, broker.credentials(self._home, team, name))
        endpoint, credentials = broker.admit(self._home, team, name, port=self._port)
        return endpoint, for_endpoint(endpoint, credentials)
