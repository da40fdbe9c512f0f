"""Pipes instead of the agent's terminal, for those of its descriptors 0, 1 and 2 that the user redirected.

    user's 0 ──→ agent's 0
    agent's 1 ──→ user's 1, ring (OUTPUT)
    agent's 2 ──→ user's 2, ring (ERRORS)

Each is forwarded separately, byte for byte.  The PTY stays the agent's controlling terminal: /dev/tty works.
As with the kernel's pipes, a writer blocks on a slow reader, and ends once its reader has gone.
"""

from __future__ import annotations

import errno
import os
import select

from relay.shim import ring
from relay.shim.user_terminal import BLOCKING_PIECE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.shim.loop import Loop
    from relay.shim.ring import RingWriter

PIECE = 1 << 16
"""Bytes of one read."""

LIMIT = 1 << 16
"""Bytes buffered for a slow reader, in addition to the pipes' own buffers."""


class Flow:
    """Moves bytes from `source` to `sink`, and closes both at the end; a sink of -1 discards everything.

    seen:   called with what was read. ended: called at the end.
    failed: called before that if writing failed, other than because the reader has gone.
    """

    def __init__(
        self,
        loop: Loop,
        source: int,
        sink: int,
        seen: Callable[[bytes], None],
        ended: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.over = False
        self._loop = loop
        self._source, self._sink = source, sink
        self._seen = seen
        self._ended = ended
        self._failed = failed
        self._queued = bytearray()
        self._finishing = False
        loop.add(source, select.POLLIN, lambda _: self._read())
        if sink >= 0:
            loop.add(sink, 0, lambda _: self._write())

    def finish(self) -> None:
        """Drain the source, and end: its writer has ended, though other processes may hold it open."""
        self._finishing = True
        while not self.over and self._source >= 0 and len(self._queued) < LIMIT:
            self._read()

    def end(self) -> None:
        """End now, and discard what was not written."""
        self._queued.clear()
        self._close_source()
        self._settle()

    def _read(self) -> None:
        try:
            data = os.read(self._source, PIECE)
        except BlockingIOError:
            if not self._finishing:
                return
            data = b""
        except OSError:
            data = b""
        if not data:
            self._close_source()
        else:
            self._seen(data)
            if self._sink >= 0:
                self._queued += data
        self._settle()

    def _write(self) -> None:
        """Write one piece: poll(2) guarantees that this much does not block."""
        try:
            del self._queued[: os.write(self._sink, self._queued[:BLOCKING_PIECE])]
        except BlockingIOError:
            return
        except OSError as error:  # let the writer lose its reader, too
            if error.errno != errno.EPIPE:
                self._failed(error)
            self.end()
            return
        if self._finishing and self._source >= 0:
            self.finish()
        self._settle()

    def _settle(self) -> None:
        """Watch the descriptors that have work left, or end."""
        if self.over:
            return
        if self._source >= 0:
            self._loop.watch(self._source, select.POLLIN if len(self._queued) < LIMIT else 0)
        if self._sink >= 0:
            self._loop.watch(self._sink, select.POLLOUT if self._queued else 0)
        if self._source < 0 and not self._queued:
            self.over = True
            if self._sink >= 0:
                self._loop.remove(self._sink)
                os.close(self._sink)
            self._ended()

    def _close_source(self) -> None:
        if self._source >= 0:
            self._loop.remove(self._source)
            os.close(self._source)
            self._source = -1


class Pipes:
    """The pipes of one agent.

    ours:    our ends of the pipes, by the agent's descriptor, from `make`.
    users:   the user's descriptors for them, which we close; output without one is discarded.
    drained: called after `finish`, once all of the agent's output is written.
    failed:  called if some of it cannot be written, as on a full disk.
    """

    def __init__(
        self,
        loop: Loop,
        ring_: RingWriter,
        ours: dict[int, int],
        users: dict[int, int],
        drained: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._drained = drained
        self._finishing = False
        self._input: Flow | None = None
        self._outputs: list[Flow] = []
        # The virtual screen emulates a terminal: without CRs, its lines would not start at the left edge.
        kinds = {
            1: lambda data: ring_.output(data.replace(b"\n", b"\r\n")),
            2: lambda data: ring_.append(ring.ERRORS, data),
        }
        for number, end in ours.items():
            users_end = users.get(number, -1)
            if number:
                self._outputs.append(Flow(loop, end, users_end, kinds[number], self._look, failed))
            elif users_end < 0:
                os.close(end)  # there is no input
            else:
                self._input = Flow(loop, users_end, end, lambda _: None, lambda: None, lambda _: None)

    def finish(self) -> None:
        """Forward the rest of the ended agent's output."""
        if self._input is not None:
            self._input.end()
        self._finishing = True
        for flow in self._outputs:
            flow.finish()
        self._look()

    def lose(self) -> None:
        """Discard what the readers have not taken yet."""
        for flow in self._outputs:
            flow.end()

    def _look(self) -> None:
        if self._finishing and all(flow.over for flow in self._outputs):
            self._finishing = False
            self._drained()
