"""The shim's connections: JSON lines in both directions over a Unix socket, with descriptors (SCM_RIGHTS)."""

from __future__ import annotations

import _socket
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relay.shim.loop import Loop

    OnLine = Callable[[dict[str, Any], list[int]], None]

MAX_LINE = 1 << 20
"""Bytes of one line, unless the channel sets its own limit."""

MAX_UNSENT = 1 << 22
"""Bytes buffered for the peer; beyond that, the peer is considered gone."""

_PIECE = 1 << 16
_FDS = 8
_INT = 4


class JsonChannel:
    """One connection. `on_line` gets each line with its descriptors, and must close those.

    on_line, on_gone: replaceable; `on_gone` is called once, unless `close` was called first.
    """

    def __init__(
        self, loop: Loop, fd: int, on_line: OnLine, on_gone: Callable[[], None], *, most: int = MAX_LINE
    ) -> None:
        self._loop = loop
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self._socket.setblocking(False)
        self.fd = fd
        self.on_line = on_line
        self.on_gone = on_gone
        self._most = most
        self._received = bytearray()
        self._fds: list[int] = []
        self._unsent = bytearray()
        self._last = False
        loop.add(fd, select.POLLIN, self._ready)

    def send(self, **fields: Any) -> None:
        """Send one line, buffering what the peer does not read at once."""
        import json  # 5 ms: not before the agent's first output

        if self.fd < 0:
            return
        self._unsent += json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        if len(self._unsent) > MAX_UNSENT + (self._most - MAX_LINE):
            self._gone()
            return
        self._flush()

    def finish(self, **fields: Any) -> None:
        """Send a last line, and close the connection once it is flushed."""
        self.on_gone = lambda: None
        self._last = True
        self.send(**fields)

    def drain(self) -> None:
        """Read what the peer sent before it ended."""
        while self.fd >= 0 and self._receive():
            pass

    def close(self) -> None:
        """Close the connection; no callback follows."""
        if self.fd >= 0:
            self._loop.remove(self.fd)
            self._socket.close()
            self.fd = -1
            for fd in self._fds:
                os.close(fd)
            self._fds = []

    def _ready(self, mask: int) -> None:
        if mask & select.POLLOUT:
            self._flush()
        if mask & ~select.POLLOUT and self.fd >= 0:
            self._receive()

    def _receive(self) -> bool:
        """Read and handle what has arrived; return False if nothing has."""
        import json

        try:
            data, ancillary, _, _ = self._socket.recvmsg(_PIECE, _socket.CMSG_SPACE(_FDS * _INT))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data, ancillary = b"", []
        for level, kind, raw in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                whole = memoryview(raw[: len(raw) - len(raw) % _INT]).cast("i")
                self._fds += whole.tolist()
                for fd in whole:
                    os.set_inheritable(fd, False)  # a session that starts meanwhile must not inherit it
        if not data or len(self._fds) > _FDS:
            self._gone()
            return False
        seen = len(self._received)
        self._received += data
        while self.fd >= 0 and (end := self._received.find(b"\n", seen)) >= 0:
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            seen = 0
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                fields = None
            if not isinstance(fields, dict):
                self._gone()
                return False
            fds, self._fds = self._fds, []
            try:
                self.on_line(fields, fds)
            except Exception as error:  # noqa: BLE001 - our bug, or another version's fields
                self._loop.log(error)
        if len(self._received) > self._most:
            self._gone()
        return True

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                self._loop.watch(self.fd, select.POLLIN | select.POLLOUT)
                return
            except OSError:
                self._gone()
                return
            del self._unsent[:sent]
        if self._last:
            self.close()
        else:
            self._loop.watch(self.fd, select.POLLIN)

    def _gone(self) -> None:
        if self.fd >= 0:
            self.close()
            self.on_gone()
