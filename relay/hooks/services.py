"""The services of a session for its handlers: protocols that the session and the memory store fulfil."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.hooks.problem import Problem
from relay.messaging.message import Message, Priority


class Remembered(Protocol):
    """One memory. `time` is seconds since the epoch."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def shared(self) -> bool: ...
    @property
    def time(self) -> float: ...


class MemoryBackend(Protocol):
    """A store of memories for one agent; its methods may be called from any thread and take milliseconds."""

    def save(self, text: str, *, shared: bool = False) -> Remembered: ...
    def search(self, query: str, limit: int = 10) -> Sequence[Remembered]: ...
    def list(self, limit: int = 20) -> Sequence[Remembered]: ...
    def forget(self, id: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the team. `online`: a live session has the name; None while that is unknown."""

    name: str
    online: bool | None


class Services(Protocol):
    """The session, as its handlers need it. Call everything but `loop` on `loop`'s thread only."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The session's event loop."""
        ...

    def inject(self, text: str, source: str) -> None:
        """Queue `text` for the agent; `source` is the name of the handler that asks."""
        ...

    async def send(
        self,
        to: str,
        body: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: Priority = Priority.NORMAL,
        ttl: float | None = None,
    ) -> Sequence[Message]:
        """Send in this agent's name to a name, `*` or `#channel`: one message per receiver, each committed.

        Raise UnknownRecipient, InvalidName or MessageRefused.
        """
        ...

    async def outcomes(self, messages: Sequence[Message], seconds: float) -> Sequence[Message]:
        """Return `messages` of this agent once all have ended or are held, or after `seconds`."""
        ...

    def roster(self) -> Sequence[Member]:
        """Return everybody that the team has ever known but this agent."""
        ...

    def report(self, problem: Problem) -> None:
        """Show `problem` to the user and write it to the journal."""
        ...
