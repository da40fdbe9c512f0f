"""The control socket: serves the requests of other processes.

One JSON object per line, each way: the answer to `{"op": "info"}` is `{"info": {...}}`; an error is
`{"error": MESSAGE, "type": CLASS}`. `{"op": "hook"}` has an answer in two parts (relay.agents.hook_client); a
line of an agent's own protocol (relay.features.peers) has none.

The shim holds the socket (relay.shim), so requests wait while there is no session.

No agent can use up the connections of another one's session: once there are MOST, or MAX_HELD bytes, those of
an agent with more than SHARE give way, and then those that are waiting for no answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from relay.agents.hook_reply import ReplyOutcome, Settle
from relay.control.sessions import MAX_LINE
from relay.dataclass import dataclass
from relay.errors import RelayError, UsageError
from relay.peer import peer

_log = logging.getLogger(__name__)

Answer = dict[str, Any]

MAX_HELD = 192 << 20
"""Maximum bytes of incomplete requests, over all connections."""

MOST = 256
"""Maximum number of connections at a time. For one more, another is closed, or else the new one waits."""

SHARE = 16
"""Connections of another agent that are not closed in favour of others."""

IDLE = 60.0
"""Seconds that a connection has to send a request."""

OWN, USER, NOBODY = "own", "", "nobody"
"""Owners of connections: the session's own agent, the user, and a process whose owner is unknown. Another
agent's are TEAM/NAME."""

MAX_HOOK = 64 << 20
"""Maximum bytes of a hook's request, which contains a tool call, such as a Write of a whole file."""

_HOOK = b'{"op": "hook", '  # the start of a hook's request, as relay.agents.hook_client writes it
_FDS = 8  # descriptors that may come with one request
_ACCEPT_RETRY = 0.5  # seconds until the next try after accept(2) has failed


@dataclass(slots=True)
class Connection:
    """One connection: its socket and the process id of the peer.

    settle: called with the outcome of the last answer.
    task:   serves it.
    owner:  whose it is; None: not yet asked.
    idle:   it has no request that waits for an answer.
    """

    channel: socket.socket
    pid: int
    settle: Settle | None = None
    task: asyncio.Task[None] | None = None
    owner: str | None = None
    idle: bool = True

    async def write(self, data: bytes) -> None:
        """Send `data`. Raise OSError if the peer has gone."""
        await asyncio.get_running_loop().sock_sendall(self.channel, data)

    async def show_life(self) -> None:
        """Tell a hook's client that its event is taken: JSON allows a blank before the answer."""
        with suppress(OSError):  # the event counts even if the client has given up
            await self.write(b" ")

    async def spoken(self) -> None:
        """Wait until the peer sends something more, or has gone."""
        await _readable(self.channel)

    def settled(self, outcome: ReplyOutcome) -> None:
        """Call `settle` with the outcome of the last answer, once."""
        settle, self.settle = self.settle, None
        if settle is not None:
            settle(outcome)


@dataclass(slots=True)
class Request:
    """One request: its fields, the descriptors that came with it, and its connection.

    The server closes the descriptors.
    """

    fields: dict[str, Any]
    fds: list[int]
    connection: Connection

    @property
    def pid(self) -> int:
        return self.connection.pid

    @property
    def channel(self) -> socket.socket:
        return self.connection.channel


class ControlServer:
    """Accepts connections on the listening socket `listener`, and lets `handle` answer each request.

    owners: returns the owners of sockets, such as USER. Only OWN may send long hook requests.
    """

    def __init__(
        self,
        listener: int,
        handle: Callable[[Request], Awaitable[Answer]],
        owners: Callable[[Sequence[int]], list[str]] = lambda fds: [USER] * len(fds),
    ) -> None:
        self._handle = handle
        self._owners = owners
        self._listener = socket.socket(fileno=listener)
        self._listener.setblocking(False)
        self._held = Held(lambda: self._close(self._from_the_greediest()))
        self._open: dict[int, Connection] = {}  # by descriptor, oldest first
        self._free = asyncio.Semaphore(MOST)
        self._waits = False  # a new connection, until another one ends

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    channel = await self._accept()
                    if self._free.locked():
                        idle = [each for each in self._open.values() if each.idle]
                        self._close(self._from_the_greediest() or idle)
                    self._waits = self._free.locked()
                    try:
                        await self._free.acquire()
                    except asyncio.CancelledError:
                        channel.close()
                        raise
                    connection = Connection(channel, 0)
                    self._open[channel.fileno()] = connection
                    connection.task = tasks.create_task(self._serve(connection))
                    connection.task.add_done_callback(partial(self._ended, connection))
        finally:
            self._listener.close()

    def _from_the_greediest(self) -> list[Connection]:
        """Return the connections of the other agent that has the most, if it has more than SHARE."""
        unknown = [each for each in self._open.values() if each.owner is None]
        owners = self._owners([each.channel.fileno() for each in unknown])
        for connection, owner in zip(unknown, owners, strict=True):
            connection.owner = owner
        counted = Counter(each.owner for each in self._open.values() if each.owner not in {OWN, USER})
        for greediest, number in counted.most_common(1):
            if number > SHARE:
                return [each for each in self._open.values() if each.owner == greediest]
        return []

    def _close(self, connections: list[Connection]) -> bool:
        """Close one of these; return False if there is none."""
        for each in sorted(connections, key=lambda each: (not each.idle, each.owner == OWN))[:1]:
            self._open.pop(each.channel.fileno())
            if each.task is not None:
                each.task.cancel()
            return True
        return False

    async def _accept(self) -> socket.socket:
        while True:
            try:
                return self._listener.accept()[0]
            except BlockingIOError:
                await _readable(self._listener)
            except OSError as error:  # out of descriptors or memory (accept(2)); clients wait
                _log.warning("the control socket accepts no connections for now: %s", error)
                await asyncio.sleep(_ACCEPT_RETRY)

    async def _serve(self, connection: Connection) -> None:
        """Answer the requests of one connection. Its failures do not affect other connections."""
        channel = connection.channel
        try:
            channel.setblocking(False)
            connection.pid, uid = peer(channel.fileno())
            if uid not in (os.getuid(), 0):
                return
            requests = lines(channel, lambda: self._owners([channel.fileno()]) == [OWN], self._held)
            while True:
                connection.idle = True
                if self._waits and connection.settle is None:
                    break
                async with asyncio.timeout(IDLE):
                    sent = await anext(requests, None)
                if sent is None:
                    break
                connection.idle = False
                request = Request(*sent, connection)
                answer = await self._answer(request)
                try:
                    if answer:
                        await send(channel, answer)
                except OSError:
                    connection.settled(ReplyOutcome.UNSENT)
                    raise
        except ValueError as error:
            with suppress(OSError):
                await send(channel, _refusal(UsageError(f"a session accepts JSON lines only: {error}.")))
        except OSError:
            pass  # the peer has gone
        except Exception:  # noqa: BLE001 (logged with its traceback, contained; its client says so)
            _log.exception("a connection to the control socket")

    def _ended(self, connection: Connection, _: asyncio.Task[None]) -> None:
        connection.settled(ReplyOutcome.UNKNOWN)
        self._waits = False
        self._open.pop(connection.channel.fileno(), None)
        connection.channel.close()
        self._free.release()

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self._handle(request)
        except RelayError as error:
            return _refusal(error)
        except Exception as error:  # noqa: BLE001 (logged with its traceback, answered, contained)
            _log.exception("the request %r failed", request.fields.get("op"))
            why = f"the session failed to do that ({type(error).__name__}). See session.log."
            return _refusal(RelayError(why))
        finally:
            for fd in request.fds:
                os.close(fd)


def _refusal(error: RelayError) -> Answer:
    return {"error": str(error), "type": type(error).__name__}


class Held:
    """The size of all incomplete requests, in bytes, over all connections.

    make_room: called if they are too large; returns False if no other connection gives way.
    """

    def __init__(self, make_room: Callable[[], bool]) -> None:
        self._size = 0
        self._make_room = make_room

    def add(self, size: int) -> None:
        """Add `size` bytes. Raise ValueError if that is too much."""
        self._size += size
        if self._size > MAX_HELD and not self._make_room():
            raise ValueError("too much is being sent at once; try again")

    def remove(self, size: int) -> None:
        self._size -= size


async def lines(
    channel: socket.socket, may_be_long: Callable[[], bool], held: Held
) -> AsyncIterator[tuple[dict[str, Any], list[int]]]:
    """Yield each request on `channel` as (fields, descriptors) until the peer closes it.

    Raise ValueError for a request that is not a JSON object, or is longer than MAX_LINE bytes (a hook's:
    MAX_HOOK, if `may_be_long` returns True).
    """
    most = MAX_LINE
    received = bytearray()
    fds: list[int] = []
    try:
        while True:
            data, new = await _receive(channel)
            fds += new
            if not data:
                return
            if len(fds) > _FDS:
                raise ValueError("a request has too many descriptors")
            seen = len(received)
            received += data
            held.add(len(data))
            while (end := received.find(b"\n", seen)) >= 0:
                try:
                    fields = json.loads(received[:end])
                except RecursionError:
                    raise ValueError("a request is nested too deeply") from None
                del received[: end + 1]
                held.remove(end + 1)
                seen = 0
                if not isinstance(fields, dict):
                    raise ValueError("a request is a JSON object")
                handed, fds = fds, []
                yield fields, handed
            if len(received) > most and most < MAX_HOOK and received.startswith(_HOOK) and may_be_long():
                most = MAX_HOOK
            if len(received) > (most if received.startswith(_HOOK) else MAX_LINE):
                raise ValueError("a request is too long")
    finally:
        held.remove(len(received))
        for fd in fds:
            os.close(fd)


async def send(channel: socket.socket, answer: Answer) -> None:
    """Write one line. Raise OSError if the peer has gone."""
    await asyncio.get_running_loop().sock_sendall(channel, json.dumps(answer).encode() + b"\n")


async def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(channel, 1 << 16, _FDS)
        except BlockingIOError:
            await _readable(channel)
        else:
            return data, list(fds)


async def _readable(channel: socket.socket) -> None:
    """Wait until there is something to receive or to accept.

    Unlike with the event loop's own sock_accept, a cancellation loses nothing, and causes no error.
    """
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(channel, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(channel)
