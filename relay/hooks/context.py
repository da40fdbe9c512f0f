"""`ctx`: the session as its handlers see and use it.

The session makes one `Context`; the runner hands each call a view of it, so that every injection carries the
handler's name.  You can use everything from any thread, even after the handler has returned.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from relay.errors import MessageRefused, NotAllowed, RelayError
from relay.eventbus import EventBus, Question
from relay.hooks.apply import apply
from relay.hooks.commands import (
    NO_SPAWN,
    HandlerProblem,
    ListMembers,
    Member,
    Problem,
    ReleaseAgent,
    SendMessage,
    SpawnAgent,
)
from relay.hooks.result import HookResult
from relay.memory.backend import Memory
from relay.memory.config import MemoryConfig
from relay.memory.store import MemoryStore
from relay.message import Message, OutgoingMessage, Priority
from relay.place import Place

MAX_OUTPUT = 10_000
"""Logical lines that `ctx.output` keeps."""

MAX_MESSAGES = 1_000
"""Messages that `ctx.messages` keeps."""

T = TypeVar("T")


class MemoryService:
    """`ctx.memory`: the memories of this agent.

    Methods block until the answer arrives: milliseconds for the embedded store, up to `config.timeout`
    seconds for other backends.  Every method raises MemoryStoreError if the store cannot be used.

    store: the store, or the error that explains why there is none.
    """

    def __init__(self, store: MemoryStore | RelayError, config: MemoryConfig | None = None) -> None:
        self._store = store
        self.config = config or MemoryConfig()

    def save(self, text: str, *, shared: bool = False, metadata: Mapping[str, Any] | None = None) -> Memory:
        """Save `text` for this agent, or with `shared` for its whole team.

        metadata: any JSON values.
        """
        return self._open().save(text, shared=shared, metadata=metadata)

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        """Return the memories that match `query`, best first; any text is a valid query."""
        return self._open().search(query, limit)

    def list(self, limit: int = 20) -> Sequence[Memory]:
        """Return the newest memories, newest first."""
        return self._open().list(limit)

    def forget(self, id: str) -> bool:
        """Delete one memory; return False if there is none with this id."""
        return self._open().forget(id)

    add = save
    delete = forget

    def _open(self) -> MemoryStore:
        if isinstance(self._store, RelayError):
            raise self._store
        return self._store


class RelayService:
    """`ctx.relay`: messages to other agents; await them to know the outcome."""

    def __init__(self, bus: EventBus, place: Place | None = None) -> None:
        self._bus = bus
        self._place = place

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

        wait:     return once every message is final (injected, uncertain, rejected, expired) or held, or
                  after this many seconds; the returned messages have their states.
        reply_to: the id of the message it answers; by default the last one that the agent received from `to`
                  since the user's last input. thread: what it belongs to; by default that message's thread.
        priority: "urgent", "normal" or "low". expires: seconds until it expires.

        Raise UnknownRecipient, InvalidName or MessageRefused; each says what to do.
        """
        message = _outgoing(to, body, thread, reply_to, priority, expires, self._place)
        return await self._on_session(send(self._bus, message, wait))

    async def broadcast(self, body: str) -> Sequence[Message]:
        """Send to everyone else in the team."""
        return await self.send("*", body)

    async def roster(self) -> Sequence[Member]:
        """Return everyone else in the team, online or not."""
        return await self._on_session(self._bus.gather(ListMembers()))

    async def member(self, name: str) -> Member | None:
        """Return the agent called `name` in the team, None if there is none.

        If it runs in this home, its name is spelled as given.
        """
        return next(iter(await self._on_session(self._bus.gather(ListMembers(name)))), None)

    async def spawn(self, name: str, command: str, task: str = "") -> str:
        """Start another agent of the fleet, and return a sentence about it (docs/FLEET.md).

        command: an agent in the fleet file, or its program. task: the first prompt.

        Raise NotAllowed, InvalidName or another RelayError; each says what to do.
        """
        words = _text(name, "name"), _text(command, "command"), _text(task, "task")
        return await self._on_session(_allowed(self._bus, SpawnAgent(*words)))

    async def release(self, name: str) -> str:
        """Stop an agent that this one started, and return a sentence about it. Raise RelayError."""
        return await self._on_session(_allowed(self._bus, ReleaseAgent(_text(name, "name"))))

    async def _on_session(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._bus.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._bus.loop))


async def send(bus: EventBus, message: OutgoingMessage, wait: float | None = None) -> Sequence[Message]:
    """Send `message` in the agent's name, as SendMessage; raise MessageRefused if nothing sends it."""
    for sent in await bus.ask(SendMessage(message, wait)):
        return sent
    raise MessageRefused("this session has no place on the bus, so it neither sends nor receives messages.")


async def _allowed(bus: EventBus, question: Question[str]) -> str:
    """Return the answer to `question`; raise NotAllowed if nobody may answer it."""
    for answer in await bus.ask(question):
        return answer
    raise NotAllowed(NO_SPAWN)


class HandlerCall:
    """One call of a handler, and the texts it injects, in order, until it returns.

    source: the handler's name.
    place:  that of the directive it handles; None if it handles an event.
    """

    def __init__(self, source: str, place: Place | None = None) -> None:
        self.source = source
        self.place = place
        self._lock = threading.Lock()
        self._texts: list[str] | None = []

    def add(self, text: str) -> bool:
        """Add `text`; return False if the call is over, and the caller must inject the text."""
        with self._lock:
            if self._texts is None:
                return False
            self._texts.append(text)
            return True

    def close(self) -> list[str]:
        with self._lock:
            texts, self._texts = self._texts or [], None
            return texts


class History:
    """The latest output and messages of a session, oldest first; the session appends to it.

    output:   the last MAX_OUTPUT logical lines of the agent.
    messages: the last MAX_MESSAGES that it sent or received.
    """

    def __init__(self) -> None:
        self.output: deque[str] = deque(maxlen=MAX_OUTPUT)
        self.messages: deque[Message] = deque(maxlen=MAX_MESSAGES)


class Context:
    """The session as a handler sees it.

    agent_id:     the agent's id, unique in its home; agent_name: its name; session_id: this run's id.
    working_dir:  the agent's folder; env: the agent's environment.
    task:         the value of `relay wrap --task`, or None.
    memory:       see MemoryService; relay: see RelayService.

    `session_key` (the agent's id with its session's), `workspace_dir` (the working folder) and
    `message_provider` (always "relay") are other hook systems' names.
    """

    message_provider: ClassVar[str] = "relay"

    def __init__(
        self,
        *,
        agent_id: str,
        agent_name: str,
        session_id: str,
        working_dir: Path,
        env: Mapping[str, str],
        memory: MemoryService,
        task: str | None = None,
        bus: EventBus,
        history: History,
    ) -> None:
        self.agent_id, self.agent_name, self.session_id = agent_id, agent_name, session_id
        self.working_dir, self.env, self.task = working_dir, env, task
        self.memory = memory
        self.relay = RelayService(bus)
        self._bus = bus
        self._history = history
        self._call = HandlerCall("relay")
        self._call.close()

    @property
    def session_key(self) -> str:
        return f"{self.agent_id}/{self.session_id}"

    @property
    def workspace_dir(self) -> Path:
        return self.working_dir

    @property
    def output(self) -> list[str]:
        """The agent's output in logical lines, oldest first; the last `MAX_OUTPUT` of them."""
        # Copied in one step in C, so the session may append meanwhile.
        return list(self._history.output.copy())

    @property
    def messages(self) -> list[Message]:
        """The messages that this agent sent and received, oldest first; the last `MAX_MESSAGES` of them."""
        return list(self._history.messages.copy())

    def inject(self, text: str) -> None:
        """Give `text` to the agent as soon as it is safe."""
        text = _text(text, "text")
        if text and not self._call.add(text):
            result = HookResult.inject(text, source=self._call.source)
            self._bus.loop.call_soon_threadsafe(apply, self._bus, [result])

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
        """Send a message and continue; a failure is reported to the user. `ctx.relay.send` waits instead."""
        message = _outgoing(to, body, thread, reply_to, priority, expires, self._call.place)
        asyncio.run_coroutine_threadsafe(self._send(message), self._bus.loop)

    def notify(self, channel: str, text: str) -> None:
        """Send `text` to a channel, named with or without its `#`."""
        self.send("#" + _text(channel, "channel").removeprefix("#"), text)

    async def _send(self, message: OutgoingMessage) -> None:
        try:
            await send(self._bus, message)
        except RelayError as error:
            what = f"could not send a message to {message.to!r}: {error}"
            self._bus.publish(HandlerProblem(Problem(self._call.source, "not_sent", what)))

    def for_call(self, call: HandlerCall) -> Context:
        """Return a view for one call: its injections carry its source, and go to the call while it lasts."""
        view = copy.copy(self)
        view._call = call
        view.relay = RelayService(self._bus, call.place)
        return view


def _outgoing(
    to: object,
    body: object,
    thread: object,
    reply_to: object,
    priority: str,
    expires: object,
    place: Place | None,
) -> OutgoingMessage:
    to, body = _text(to, "to"), _text(body, "body")
    thread = None if thread is None else _text(thread, "thread")
    reply_to = None if reply_to is None else _text(reply_to, "reply_to (the id of a message)")
    if priority not in set(Priority):
        raise ValueError(f"priority must be 'urgent', 'normal' or 'low', not {priority!r}")
    if not isinstance(expires, int | float | None):
        raise TypeError(f"expires must be a number of seconds, not {expires!r} ({type(expires).__name__})")
    return OutgoingMessage(to, body, thread, reply_to, Priority(priority), expires, place=place)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {value!r} ({type(value).__name__})")
    return value
