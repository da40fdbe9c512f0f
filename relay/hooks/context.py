"""`ctx`: the session as its handlers see and use it.

The session makes one `Context`; the runner hands each call a view of it, so that every injection carries the
handler's name.  Everything may be used from any thread, and after the handler has returned, too.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from relay.errors import RelayError
from relay.hooks.config import MemoryConfig
from relay.hooks.problem import Problem
from relay.hooks.services import Member, MemoryBackend, Remembered, Services
from relay.messaging.message import Message, Priority

MAX_OUTPUT = 10_000
"""Logical lines that `ctx.output` keeps."""

MAX_MESSAGES = 1_000
"""Messages that `ctx.messages` keeps."""

T = TypeVar("T")


class MemoryService:
    """`ctx.memory`: the memories of this agent. Synchronous: the embedded store answers in milliseconds.

    Every method raises MemoryStoreError where the store cannot be used.
    """

    def __init__(self, backend: MemoryBackend, config: MemoryConfig | None = None) -> None:
        self._backend = backend
        self.config = config or MemoryConfig()

    def save(self, text: str, *, shared: bool = False) -> Remembered:
        """Remember `text` for this agent, or with `shared` for its whole team."""
        return self._backend.save(text, shared=shared)

    def search(self, query: str, limit: int = 10) -> Sequence[Remembered]:
        """Return the memories that fit `query`, best first; any text is a valid query."""
        return self._backend.search(query, limit)

    def list(self, limit: int = 20) -> Sequence[Remembered]:
        """Return the newest memories, newest first."""
        return self._backend.list(limit)

    def forget(self, id: str) -> bool:
        """Delete one memory; False if there is none with this id."""
        return self._backend.forget(id)

    add = save
    delete = forget


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """A message that a handler sends."""

    to: str
    body: str
    thread: str | None
    reply_to: str | None
    priority: Priority
    ttl: float | None

    async def send(self, services: Services, wait: float | None = None) -> Sequence[Message]:
        """Send the message, on the session's loop; with `wait` (seconds) return it as it ends.

        Sending and waiting are one step, so that no end is missed.
        """
        sent = await services.send(
            self.to,
            self.body,
            thread=self.thread,
            reply_to=self.reply_to,
            priority=self.priority,
            ttl=self.ttl,
        )
        return sent if wait is None else await services.outcomes(sent, wait)


class RelayService:
    """`ctx.relay`: messages to other agents; await them to know the outcome."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def send(
        self,
        to: str,
        body: str,
        *,
        wait: float | None = None,
        reply_to: str | None = None,
        thread: str | None = None,
        priority: str = "normal",
        expires: float | None = None,
    ) -> Sequence[Message]:
        """Send to a name, `*` or `#channel`; one Message per receiver, committed in the ledger.

        wait:     return when every message has ended (injected, uncertain, rejected, expired) or is held, or
                  after so many seconds; the messages returned have their states.
        reply_to: the id of the message that it answers; by default the last one from `to` that the agent got
                  since the user spoke. thread: what it belongs to; by default the thread of that one.
        priority: "urgent", "normal" or "low". expires: seconds after which it is given up.

        Raise UnknownRecipient, InvalidName or MessageRefused, each with what to do.
        """
        message = _Outgoing(
            _text(to, "to"), _text(body, "body"), thread, reply_to, _priority(priority), expires
        )
        return await self._on_session(message.send(self._services, wait))

    async def broadcast(self, body: str) -> Sequence[Message]:
        """Send to everybody else in the team."""
        return await self.send("*", body)

    async def roster(self) -> Sequence[Member]:
        """Return everybody else in the team, online or not."""

        async def read() -> Sequence[Member]:
            return self._services.roster()

        return await self._on_session(read())

    async def _on_session(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._services.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._services.loop))


class Collector:
    """The texts that one call of a handler injects, in order, until the call is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[str] | None = []

    def add(self, text: str) -> bool:
        """Take `text`; False if the call is over, and the caller has to inject it."""
        with self._lock:
            if self._texts is None:
                return False
            self._texts.append(text)
            return True

    def close(self) -> list[str]:
        with self._lock:
            texts, self._texts = self._texts or [], None
            return texts


class Context:
    """The session as a handler sees it.

    agent_id:     the agent's id, unique in its home; agent_name: its name; session_id: this run's id.
    working_dir:  the folder in which the agent runs; env: the agent's environment.
    task:         what `relay wrap --task` said, or None.
    memory:       see MemoryService; relay: see RelayService.

    `session_key` (the agent's id with its session's), `workspace_dir` (the working folder) and
    `message_provider` (always "relay") are other hook systems' names.
    """

    message_provider = "relay"

    def __init__(
        self,
        *,
        agent_id: str,
        agent_name: str,
        session_id: str,
        working_dir: Path,
        env: Mapping[str, str],
        services: Services,
        memory: MemoryService,
        task: str | None = None,
        output: deque[str] | None = None,
        messages: deque[Message] | None = None,
    ) -> None:
        self.agent_id = agent_id
        self.agent_name = agent_name
        self.session_id = session_id
        self.working_dir = working_dir
        self.env = env
        self.task = task
        self.memory = memory
        self.relay = RelayService(services)
        self._services = services
        self._output = deque(maxlen=MAX_OUTPUT) if output is None else output
        self._messages = deque(maxlen=MAX_MESSAGES) if messages is None else messages
        self._source = "relay"
        self._collector: Collector | None = None

    @property
    def session_key(self) -> str:
        return f"{self.agent_id}/{self.session_id}"

    @property
    def workspace_dir(self) -> Path:
        return self.working_dir

    @property
    def output(self) -> list[str]:
        """The logical lines that the agent said, oldest first; the last `MAX_OUTPUT` of them."""
        return list(self._output.copy())  # one step in C, so a session that appends meanwhile does no harm

    @property
    def messages(self) -> list[Message]:
        """The messages that this agent sent and received, oldest first; the last `MAX_MESSAGES` of them."""
        return list(self._messages.copy())

    def inject(self, text: str) -> None:
        """Give `text` to the agent as soon as that is safe."""
        text = _text(text, "text")
        if text and not (self._collector and self._collector.add(text)):
            loop = self._services.loop
            loop.call_soon_threadsafe(self._services.inject, text, self._source)

    inject_message = inject

    def send(
        self,
        to: str,
        body: str,
        *,
        reply_to: str | None = None,
        thread: str | None = None,
        priority: str = "normal",
        expires: float | None = None,
    ) -> None:
        """Send a message and go on; a failure is reported to the user. `ctx.relay.send` waits instead."""
        message = _Outgoing(
            _text(to, "to"), _text(body, "body"), thread, reply_to, _priority(priority), expires
        )
        asyncio.run_coroutine_threadsafe(self._send(message), self._services.loop)

    def notify(self, channel: str, text: str) -> None:
        """Send `text` to a channel, named with or without its `#`."""
        self.send("#" + _text(channel, "channel").removeprefix("#"), text)

    async def _send(self, message: _Outgoing) -> None:
        try:
            await message.send(self._services)
        except RelayError as error:
            self._services.report(
                Problem(self._source, "not_sent", f"could not send a message to {message.to!r}: {error}")
            )

    def for_handler(self, source: str, collector: Collector) -> Context:
        """Return the view of one call: its injections carry `source` and go to `collector` till it closes."""
        view = copy.copy(self)
        view._source = source
        view._collector = collector
        return view


def _priority(value: str) -> Priority:
    if value not in set(Priority):
        raise ValueError(f"priority is 'urgent', 'normal' or 'low', not {value!r}")
    return Priority(value)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {value!r} ({type(value).__name__})")
    return value
