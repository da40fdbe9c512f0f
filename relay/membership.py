"""`relay.connect`: makes a program a member of a team, which sends and receives messages as agents do.

with relay.connect("ci") as me:                  async with relay.connect("ci") as me:
    me.send("Alice", "Is main ready?")               await me.send("Alice", "Is main ready?")
    for message in me.messages():                    async for message in me.messages():
        me.reply(message, "Thanks.")                     await me.reply(message, "Thanks.")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from relay.hooks.commands import Member
from relay.message import Message
from relay.session.program_session import ProgramSession

T = TypeVar("T")


def connect(name: str, *, team: str | None = None, channels: Sequence[str] = ()) -> TeamMembership:
    """Return a context manager, for `with` or `async with`, that makes this program the member `name`.

    team:     by default that of RELAY_TEAM, or "default".
    channels: the channels to join, such as ["#ops"].

    Raise InvalidName.  Entering raises NameInUse, NotAllowed (within an agent), HomeError or LedgerError.
    Leaving it with an exception gives the messages back whose loop bodies are not done.
    """
    if isinstance(channels, str):
        raise TypeError(f"channels must be a list, such as [{channels!r}], not a string")
    return TeamMembership(partial(ProgramSession, name, team, tuple(channels)))


class TeamMembership:
    """The context manager of `connect`. Each `with` joins the team with a new session."""

    def __init__(self, session: Callable[[], ProgramSession]) -> None:
        self._new = session
        self._session = session()

    def __enter__(self) -> ProgramMember:
        session = self._new()
        try:
            session.enter().result()
        except BaseException:  # such as Ctrl-C
            session.leave(done=False)
            raise
        self._session = session
        return ProgramMember(session)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.leave(done=kind is None).result()

    async def __aenter__(self) -> AsyncProgramMember:
        session = self._new()
        try:
            await asyncio.shield(asyncio.wrap_future(session.enter()))
        except BaseException:  # such as a timeout
            session.leave(done=False)
            raise
        self._session = session
        return AsyncProgramMember(session)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.wrap_future(self._session.leave(done=kind is None)))


class ProgramMember:
    """A member of a team. Its methods may be called from any thread."""

    def __init__(self, session: ProgramSession) -> None:
        self._session = session

    def send(
        self,
        to: str,
        text: str,
        *,
        wait: float | None = None,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: str = "normal",
        expires: float | None = None,
    ) -> Sequence[Message]:
        """Send to a name, `*` or `#channel`, as `ctx.relay.send` does; return one Message per receiver.

        Raise UnknownRecipient, InvalidName or MessageRefused.
        """
        send = self._session.relay.send
        return self._result(
            send(to, text, wait=wait, thread=thread, reply_to=reply_to, priority=priority, expires=expires)
        )

    def reply(self, message: Message, text: str, *, wait: float | None = None) -> Message:
        """Answer the sender of `message`, in its thread."""
        return self._result(_reply(self._session, message, text, wait))

    def messages(self, timeout: float | None = None) -> Iterator[Message]:
        """Yield messages as they arrive; end after `timeout` seconds without one.

        A message is acknowledged when its loop asks for the next one, or its thread after leaving the loop,
        or when the `with` block is left without an exception.  Each message goes to one loop.
        """
        with self._session.message_loop(threading.current_thread()) as loop:
            while (message := self._result(self._session.inbox.take(loop, timeout))) is not None:
                loop.given = message.id
                yield message

    def agents(self) -> Sequence[Member]:
        """Return everyone else in the team, online or not."""
        return self._result(self._session.relay.roster())

    def _result(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._session.call(work)
        try:
            return future.result()
        finally:
            future.cancel()  # after Ctrl-C


class AsyncProgramMember:
    """A member of a team, for asyncio. Its methods are those of ProgramMember."""

    def __init__(self, session: ProgramSession) -> None:
        self._session = session

    async def send(
        self,
        to: str,
        text: str,
        *,
        wait: float | None = None,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: str = "normal",
        expires: float | None = None,
    ) -> Sequence[Message]:
        """See ProgramMember.send."""
        send = self._session.relay.send
        return await self._result(
            send(to, text, wait=wait, thread=thread, reply_to=reply_to, priority=priority, expires=expires)
        )

    async def reply(self, message: Message, text: str, *, wait: float | None = None) -> Message:
        """See ProgramMember.reply."""
        return await self._result(_reply(self._session, message, text, wait))

    async def messages(self, timeout: float | None = None) -> AsyncIterator[Message]:
        """See ProgramMember.messages."""
        with self._session.message_loop(asyncio.current_task()) as loop:
            while (message := await self._result(self._session.inbox.take(loop, timeout))) is not None:
                loop.given = message.id
                yield message

    async def agents(self) -> Sequence[Member]:
        """See ProgramMember.agents."""
        return await self._result(self._session.relay.roster())

    async def _result(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._session.call(work))


async def _reply(session: ProgramSession, message: Message, text: str, wait: float | None) -> Message:
    thread = message.thread or message.id
    (sent,) = await session.relay.send(message.sender, text, wait=wait, reply_to=message.id, thread=thread)
    return sent
