"""An agent on the bus as a test sees it: a real messaging client and everything it reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import ledgers
from relay.eventbus import Event
from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging.client import MessagingClient
from relay.messaging.doorbell import ring, ring_for
from relay.messaging.events import MessageStored, OutcomeReported, StatusReported
from relay.messaging.name_owners import Owner
from relay.messaging.runaway import Limits
from relay.names import PERSON
from relay.transport import broker
from relay.transport.credentials import Credentials
from support import PATIENCE, eventually

UNGUARDED = Limits(rate=0, depth=0, broadcasts=0)
"""Tests send faster than agents do."""


class Agent:
    """client: set while the agent is `running`."""

    client: MessagingClient

    def __init__(
        self,
        home: Home,
        name: str,
        *,
        team: str = "default",
        url: str | None = None,
        limits: Limits = UNGUARDED,
        owner: Owner | None = None,
    ) -> None:
        self.home = home
        self.name = name
        self.team = team
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.outcomes: asyncio.Queue[Message] = asyncio.Queue()
        self.statuses: asyncio.Queue[str] = asyncio.Queue()
        self.url = url
        self._limits = limits
        self._owner = owner

    async def open(self) -> MessagingClient:
        self.client = await MessagingClient.open(
            self.home,
            self.team,
            self.name,
            publish=self.publish,
            broker_url=self.url,
            limits=self._limits,
            owner=self._owner,
            begins=True,
        )
        return self.client

    def publish(self, event: Event) -> None:
        match event:
            case MessageStored(message):
                self.messages.put_nowait(message)
            case OutcomeReported(message):
                self.outcomes.put_nowait(message)
            case StatusReported(text):
                self.statuses.put_nowait(text)

    def notify(self) -> None:
        """Do what a command does that has changed the ledger."""
        ring(self.home, self.team, self.name)

    async def send(self, to: str, body: str, **more: Any) -> list[Message]:
        return await self.client.send(OutgoingMessage(to, body, **more))

    async def status(self, part: str) -> str:
        """Return the next status that contains `part`."""
        async with asyncio.timeout(PATIENCE):
            while True:
                text = await self.statuses.get()
                if part in text:
                    return text

    async def receive(self, count: int = 1) -> list[Message]:
        """Return the next messages, in order."""
        async with asyncio.timeout(PATIENCE):
            return [await self.messages.get() for _ in range(count)]

    async def outcome(self, state: State) -> Message:
        """Return the next outcome with that state."""
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self.outcomes.get()
                if message.state is state:
                    return message

    async def sees(self, name: str, *, online: bool = True) -> None:
        """Wait until the roster shows `name` as online, or offline."""

        async def seen() -> bool:
            return any(p.name == name and p.online is online for p in await self.client.roster())

        await eventually(seen)

    async def knows(self, name: str) -> bool:
        """Return whether its home has seen `name` announced online; the roster also lists local agents."""
        tracker = self.client._listener.tracker
        return await tracker.ledger.run(lambda ledger: tracker.attendance(ledger).online(name))

    async def waiting(self) -> list[str]:
        """Return the texts waiting for it, in order."""
        return [message.body for message in await self.client.waiting()]

    async def inject(self, message: Message) -> None:
        """Do what a session does with a message that it can type."""
        await self.client.injecting(message.id)
        await self.client.settle(message.id, State.INJECTED)

    @property
    def ignored(self) -> int:
        """Return how many payloads were foreign or did not match their topic."""
        return self.client._receiver.ignored

    async def ledger(self) -> list[Message]:
        """Return the messages in its home's ledger."""
        return await ledgers.messages(self.home)

    async def all_are(self, state: State) -> None:
        """Wait until all messages of its home are in that state."""

        async def reached() -> bool:
            return all(message.state is state for message in await self.ledger())

        await eventually(reached)


@contextlib.asynccontextmanager
async def running(agent: Agent, *, connected: bool = True) -> AsyncIterator[Agent]:
    """Open the agent's client and run it for a block."""
    task = asyncio.create_task((await agent.open()).run())
    try:
        if connected:
            await agent.status("connected")
        yield agent
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def register(home: Home, name: str, *, here: bool = True) -> None:
    """Register `name` in the team, as its earlier session would have (here), or as heard of elsewhere."""
    await ledgers.in_ledger(home, lambda ledger: ledger.registry.register("default", name, here=here))


def far_from(home: Home) -> Home:
    """Return another home, always the same one."""
    return Home.from_env({"RELAY_HOME": str(home.state.parent.parent / "far")}).ensure()


def adopt(home: Home, credentials: Credentials) -> None:
    """Store credentials from another home, as `relay broker credentials import` does."""
    with broker.credential_store(home) as store:
        store.put(credentials)


async def abroad(home: Home, name: str, *, team: str = "default", **more: Any) -> Agent:
    """Return an agent of another home (`far_from`) on the embedded broker of `home`."""
    endpoint, own = await asyncio.to_thread(broker.admit, home, team, name)
    url = f"mqtt://{quote(own.user, safe='')}:{own.password}@{endpoint.host}:{endpoint.port}"
    return Agent(far_from(home), name, team=team, url=url, **more)


async def send_as_user(home: Home, to: str, text: str) -> None:
    """Send a message as `relay send` does outside an agent, except that no session publishes it."""
    sent = await ledgers.in_ledger(home, lambda ledger: ledgers.post(ledger, "default", PERSON, to, text))
    ring_for(home, "default", sent)
