"""Connections of a home's agents to their broker, each with the agent's own rights."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from relay.backoff import Backoff
from relay.dataclass import replace
from relay.errors import BrokerError
from relay.home import Home
from relay.transport import broker
from relay.transport.credentials import Credentials, Login, anybody, for_endpoint
from relay.transport.endpoint import Endpoint, endpoints
from relay.transport.mqtt import LONGEST_SECONDS, ConnectionLost, LoginRefused, MqttTransport

NODE_ANSWERS = Backoff(3.0, LONGEST_SECONDS)
"""The wait for a node's answer if there is another one to try: longer after each failed connection, because
over a slow link the answer to a long message takes longer."""

_LOGINS = 5


class Connector:
    """Connects agents of `home` to its embedded broker, started on demand, or to the one at `url`.

    external: the user's own broker, which keeps the mail of absent agents.
    """

    def __init__(self, home: Home, url: str | None = None) -> None:
        """Raise BrokerError for a malformed URL. It may name several nodes (`endpoints`), tried in turn."""
        self._home = home
        self._nodes = deque(endpoints(url or ""))  # in the order in which to try them
        self._patience = NODE_ANSWERS.first
        self.external = bool(self._nodes)

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
        if not self.external:
            endpoint, credentials = await asyncio.to_thread(broker.admit, self._home, team, name)
            # All users of the embedded broker share the ledger, which keeps the mail of absent agents. If the
            # broker kept it too, it could fill up, and would then accept nothing more from anybody.
            login = _login(endpoint, credentials, mailbox, farewell)
            # The broker knows this login, but nats-server refuses every login while it reloads its
            # configuration for another agent.
            for _ in range(_LOGINS - 1):
                with contextlib.suppress(LoginRefused):
                    return await MqttTransport(endpoint, login).connect()
            return await MqttTransport(endpoint, login).connect()
        credentials = await asyncio.to_thread(broker.credentials, self._home, team, name)
        patience = self._patience if len(self._nodes) > 1 else LONGEST_SECONDS
        failures: list[BrokerError] = []
        for endpoint in tuple(self._nodes):
            try:
                login = replace(_login(endpoint, credentials, mailbox, farewell), keep=mailbox)
                return await MqttTransport(endpoint, login, patience=patience).connect()
            except BrokerError as error:
                failures.append(error)
                self._pass_over(endpoint)
        if len(failures) == 1:
            raise failures[0]
        raise ConnectionLost(" ".join(sorted(map(str, failures))))

    def turn(self, failures: int) -> list[str]:
        """Start with another node next time; return the URLs of an external broker in that order.

        failures: how many connections failed in a row.
        """
        self._patience = NODE_ANSWERS.wait(failures)
        self._nodes.rotate(-1)
        return [node.url for node in self._nodes]

    def _pass_over(self, node: Endpoint) -> None:
        if self._nodes[0] == node:  # otherwise another connection was faster
            self._nodes.rotate(-1)


def _login(
    endpoint: Endpoint, credentials: Credentials, mailbox: bool, farewell: tuple[str, bytes] | None
) -> Login:
    login = for_endpoint(endpoint, credentials)
    return replace(login, client_id=login.client_id if mailbox else anybody(), farewell=farewell)
