"""The shim's own control socket, which works without a session: status, attach, stop, reload.

One request per connection: a JSON object on one line, answered by another; an error is `{"error": MESSAGE,
"type": CLASS}`.  `{"op": "attach"}` carries a terminal's descriptors (SCM_RIGHTS) and turns the connection
into a client's channel.
"""

from __future__ import annotations

import _socket
import os
import select

from relay.errors import RelayError
from relay.peer import peer
from relay.shim.channel import JsonChannel
from relay.shim.terminals import TerminalClient
from relay.shim.user_terminal import AttachedTerminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relay.shim.loop import Loop
    from relay.shim.session_process import SessionProcess
    from relay.shim.terminals import TerminalServer

    May = Callable[[int, str], str | None]

BACKLOG = 128
"""Pending connections per listening socket; the session's socket collects them while no session runs."""

MAX_REQUEST = 1 << 16
"""Bytes of one request: a terminal's attributes take a few hundred."""

MOST = 32
"""Concurrent connections other than clients'. One more closes the oldest: a request takes only a moment."""

PAUSE = 0.5
"""Seconds to stop accepting connections after running out of descriptors."""

STOPPING = 40.0
"""Maximum seconds that a stop takes."""


class ShimControl:
    """Listens next to `path`, the session's socket.

    may:  returns why the peer of a socket may not do an operation, or None.
    stop: ends the agent for good; True: at once.
    """

    def __init__(
        self,
        loop: Loop,
        session: SessionProcess,
        terminals: TerminalServer,
        path: str,
        may: May,
        stop: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._session = session
        self._terminals = terminals
        self._path = path
        self._may = may
        self._end = stop
        self._name = ""
        self._open: dict[JsonChannel, None] = {}  # oldest first
        self._listener = bind(path.removesuffix(".sock") + ".shim")

    def listen(self, name: str) -> None:
        """Start answering requests. name: the agent's."""
        self._name = name
        self._loop.add(self._listener.fileno(), select.POLLIN, lambda _: self._accept())

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]
        except BlockingIOError:
            return
        except OSError:  # no descriptor is free (accept(2)): leave the caller waiting
            listener = self._listener.fileno()
            self._loop.watch(listener, 0)
            self._loop.later(PAUSE, lambda: self._loop.watch(listener, select.POLLIN))
            return
        if peer(fd)[1] not in (os.getuid(), 0):
            os.close(fd)
            return
        if len(self._open) >= MOST:
            oldest = next(iter(self._open))
            oldest.close()
            del self._open[oldest]
        channel = JsonChannel(self._loop, fd, lambda fields, fds: None, lambda: None, most=MAX_REQUEST)
        channel.on_line = lambda fields, fds: self._requested(channel, fields, fds)
        channel.on_gone = lambda: self._open.pop(channel, None)
        self._open[channel] = None

    def _requested(self, channel: JsonChannel, fields: dict[str, Any], fds: list[int]) -> None:
        operation = str(fields.get("op"))
        try:
            if operation not in {"status", "attach", "stop", "reload"}:
                self._answer(channel, error=f"a shim has no operation {operation!r}.", type="UsageError")
            elif operation != "status" and (why := self._may(channel.fd, operation)) is not None:
                self._answer(channel, error=why, type="NotAllowed")
            elif operation == "attach":
                self._attach(channel, fields, fds)
            elif operation == "stop":
                self._stop(channel, now=fields.get("now") is not False)
            elif operation == "reload":
                self._reload(channel)
            else:
                self._status(channel)
        except RelayError as error:
            self._answer(channel, error=str(error), type=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - our own bug, or no descriptor is free
            self._loop.log(error)
            self._fail(channel, f"{operation} failed ({type(error).__name__}: {error}). See session.log.")
        finally:
            _close(fds)

    def _fail(self, channel: JsonChannel, why: str) -> None:
        """Answer with an error, also if the connection is already a client's."""
        gone = channel.on_gone
        self._answer(channel, error=why, type="RelayError", event="detached", reset="", notices=[why])
        gone()

    def _answer(self, channel: JsonChannel, **fields: Any) -> None:
        self._open.pop(channel, None)
        channel.on_line = lambda fields, fds: _close(fds)
        channel.finish(**fields)

    def _status(self, channel: JsonChannel) -> None:
        session = self._session
        self._answer(
            channel,
            pid=session.pid,
            terminal_pid=os.getpid(),
            agent_pid=self._terminals.forwarder.pty.pid,
            restarts=session.about["restarts"],
            resumes=session.about["resumes"],
            generation=session.generation,
            ready=session.ready,
            failed=session.failed,
        )

    def _attach(self, channel: JsonChannel, fields: dict[str, Any], fds: list[int]) -> None:
        saved, name = fields.get("saved"), self._name
        if len(fds) != 2 or not isinstance(saved, list | None):
            self._answer(channel, error="attaching needs a terminal's file descriptors.", type="UsageError")
            return
        if self._terminals.attached and not fields.get("takeover"):
            text = f"{name} is attached to another terminal. Take over with `relay attach --takeover {name}`."
            self._answer(channel, error=text, type="RelayError")
            return
        attached = AttachedTerminal(*fds, interactive=bool(fields.get("interactive")), saved=saved)
        if self._terminals.take_over(TerminalClient(channel, owner=False), attached):
            self._open.pop(channel, None)
        else:
            text = f"{name} is about to restart. Try again in a moment."
            if self._session.about["kept"] in {"", "stop"}:
                text = (
                    f"{name} no longer has a terminal: it has ended, or ignores the hang-up. `relay stop "
                    f"{name}` stops what is left of it."
                )
            self._answer(channel, error=text, type="RelayError")

    def _stop(self, channel: JsonChannel, *, now: bool) -> None:
        """Stop the agent; if `now`, kill it and its session, which may hang."""
        if now:
            self._session.finish()
        self._end(now)
        self._answer(channel, ok=True, patience=STOPPING)

    def _reload(self, channel: JsonChannel) -> None:
        if self._session.ended == "":  # until its work is done, it may hang, also after the agent's end
            self._answer(channel, error=f"{self._name} is ending.", type="RelayError")
            return
        before = self._session.generation
        if self._session.failed:
            self._session.listen_at(bind(self._path).detach())
        self._session.replace()
        self._answer(channel, ok=True, generation=before)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def bind(path: str) -> _socket.socket:
    """Return a listening socket (0600) at `path`, replacing a dead shim's: we hold the name."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    listener.setblocking(False)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener
