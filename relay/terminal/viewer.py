"""The viewer: shows an agent's terminal in the user's own, and passes on no keys.

    session ─ view_stream ─→ VirtualScreen ─ render ─→ Canvas ─→ the user's terminal
                                  └ rows that scroll off ─┘ (its scrollback)

None of the agent's bytes reach the user's terminal, so there are no queries for it to answer; it may have any
size, and shows the part that fits.  While no session answers, and between an agent and the next one
(`relay restart`), the last picture stays.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from relay.errors import RelayError
from relay.terminal.canvas import Canvas, Cursor
from relay.terminal.render import clip, render, render_row
from relay.terminal.screen import VirtualScreen
from relay.terminal.view_stream import OUTPUT, SCREEN, Unpacker
from relay.text import count

FRAME = 1 / 30
"""Minimum seconds between two frames; also at least twice the CPU time of the last one."""

RETRY = 0.1
"""Seconds between two attempts to reach a session."""

HINT = 3.0
"""Seconds for which the last row says how to leave, if it covers one of the agent's rows."""

HISTORY = 1000
"""Rows that may go into the scrollback with one frame, in addition to the first screen's."""

PIECE = 1 << 18
"""Bytes to read before the next frame."""

CANCEL = b"\x18"
"""Ends an incomplete sequence (ECMA-48: CAN)."""

LEAVES = "Ctrl-] d, Ctrl-C or q leaves"

Connect = Callable[[], socket.socket | None]


class AgentEnded(Exception):
    """The agent has ended. code: its exit code, or None if unknown."""

    def __init__(self, code: int | None) -> None:
        self.code = code


class Picture:
    """The agent's terminal as described by the stream so far.

    scrollback: keep the rows that scroll off, for `scrolled_off`.
    changed: the picture has changed since this was last set to False.
    code:    the exit code of the shown agent, if another one follows it; None: it has not ended.
    """

    def __init__(self, *, scrollback: bool = True) -> None:
        self.changed = False
        self.code: int | None = None
        self._screen: VirtualScreen | None = None
        self._session = ""
        self._shim = 0
        self._offset = 0
        self._scrollback = scrollback
        self._above: list[str] = []

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows) of the agent's terminal; (0, 0): nothing has arrived yet."""
        return (0, 0) if self._screen is None else (self._screen.columns, self._screen.height)

    @property
    def alternate(self) -> bool:
        return self._screen is not None and self._screen.alternate

    def take(self, fields: dict[str, Any], data: bytes) -> None:
        """Process one part of the stream. Raise AgentEnded."""
        self.changed = True
        if fields.get("show") == SCREEN:
            if self._shim not in {0, fields["shim"]}:
                raise AgentEnded(None)  # another agent has taken its name
            if self._session not in {"", fields["session"]}:
                self._begin_next()
            missed = int(fields["offset"]) - self._offset if self._session else 0
            self._session, self._offset = str(fields["session"]), int(fields["offset"])
            self._shim = int(fields["shim"])
            self._redraw(int(fields["columns"]), int(fields["rows"]), data, missed)
        elif fields.get("show") == OUTPUT and self._screen is not None:
            self._offset += len(data)
            self._feed(data, max(HISTORY - len(self._above), 0))
        elif fields.get("again"):
            self.code = fields["exit"]
        elif "exit" in fields:
            raise AgentEnded(fields["exit"])
        if not self._scrollback:
            self._above.clear()

    def rows(self, columns: int, height: int) -> tuple[list[str], Cursor]:
        """Return the rows that fit, and the cursor, for Canvas.show."""
        return ([], None) if self._screen is None else render(self._screen, columns, height)

    def scrolled_off(self, columns: int) -> Sequence[str]:
        """Return the rows that have scrolled off since the last call."""
        above, self._above = self._above, []
        return [clip(row, columns) for row in above]

    def _begin_next(self) -> None:
        """Put what the last agent left on its screen above the next agent's."""
        if self._screen is not None:
            self._screen.feed(CANCEL + self._screen.modes_reset())  # also leaves the alternate screen
            rows, _ = render(self._screen, *self.size)
            while rows and not rows[-1]:
                rows.pop()
            self._above += rows
        self._above.append("[relay: the agent has ended; its next run follows]")
        self._screen, self._session, self.code = None, "", None

    def _redraw(self, columns: int, rows: int, drawing: bytes, missed: int) -> None:
        if self._screen is None:
            self._screen = VirtualScreen(columns, rows)
            if self._scrollback:
                self._screen.collect(drawn=True)
        else:
            # Keep the primary screen, which a drawing of the alternate one does not include.
            self._screen.feed(CANCEL + self._screen.modes_reset())
            self._screen.resize(columns, rows)
            self._screen.drain()
        self._miss(missed)
        history = max(drawing.find(b"\x1b[?1049h"), 0)  # of the primary screen, before the alternate one
        self._feed(drawing[:history])
        self._feed(drawing[history:])

    def _feed(self, data: bytes, most: int | None = None) -> None:
        """Draw `data`, and keep at most the last `most` rows that scroll off in a flood."""
        assert self._screen is not None
        if not self._scrollback:
            self._screen.feed(data)
            return
        if most is not None and data.count(b"\n") > most:
            start = len(data.rsplit(b"\n", most)[0])
            self._screen.feed(data[:start], keep=False)
            self._miss(start)
            data = data[start:]
        self._screen.feed(data)
        self._above += [render_row(row.text) for row in self._screen.drain().rows]

    def _miss(self, size: int) -> None:
        if size:
            self._above.append(f"[relay: {count(size, 'byte')} of output skipped]")


class Viewer:
    """Shows the agent called `name`, and its successors, on `canvas` until the user leaves or none follows.

    connect: returns a connection on which the session sends the stream, or None if there is none now; raises
             AgentEnded.
    """

    def __init__(self, name: str, canvas: Canvas, connect: Connect) -> None:
        self._name = name
        self._canvas = canvas
        self._connect = connect
        self._channel: socket.socket | None = None
        self._stream = Unpacker()
        self._picture = Picture()
        self._drawn = (0, 0)  # the size of the user's terminal at the last frame
        self._frame_due = self._try_due = 0.0
        self._hint_until = time.monotonic() + HINT
        self._escaped = False  # Ctrl-] was the last key

    def run(self) -> None:
        """Run until the user leaves. Raise AgentEnded, or RelayError if the session refuses."""
        try:
            while not self._canvas.killed:
                if self._channel is None and time.monotonic() >= self._try_due:
                    self._try_due = time.monotonic() + RETRY
                    self._channel, self._stream = self._reach(), Unpacker()
                self._draw()
                if self._leaves(self._wait()):
                    break
        finally:
            self._paint(hint=False)
            if self._channel is not None:
                self._channel.close()

    def _reach(self) -> socket.socket | None:
        try:
            return self._connect()
        except AgentEnded as end:  # the expected successor did not start
            raise AgentEnded(self._picture.code if end.code is None else end.code) from None

    def _wait(self) -> list[str]:
        """Wait until there is something to do, receiving what arrives; return the keys."""
        now, due, also = time.monotonic(), [], -1
        if self._channel is None:
            due.append(self._try_due)
        elif not self._picture.changed:
            also = self._channel.fileno()  # data that arrives before the frame is drawn can wait
        if self._picture.changed:
            due.append(self._frame_due)
        if self._hint_until:
            due.append(self._hint_until)
        keys = self._canvas.keys(max(min(due) - now, 0.0) if due else None, also)
        if also >= 0:
            started = time.process_time()
            self._receive()
            self._frame_due = max(self._frame_due, time.monotonic() + 2 * (time.process_time() - started))
        return keys

    def _receive(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(PIECE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the session has ended; another may follow
            self._channel.close()
            self._channel = None
        for fields, drawing in self._stream.feed(data):
            if "error" in fields:
                raise RelayError(str(fields["error"]))
            self._picture.take(fields, drawing)

    def _draw(self) -> None:
        """Draw a frame if something has changed and the frame is due."""
        now = time.monotonic()
        if self._hint_until and now >= self._hint_until:
            self._hint_until = 0.0
            self._picture.changed = True
        if (self._picture.changed and now >= self._frame_due) or self._canvas.size != self._drawn:
            started = time.process_time()
            self._paint(hint=True)
            self._frame_due = time.monotonic() + max(FRAME, 2 * (time.process_time() - started))

    def _paint(self, *, hint: bool) -> None:
        """Draw a frame. hint: show how to leave, while the hint lasts or wherever a row is free."""
        self._picture.changed = False
        self._drawn = columns, height = self._canvas.size
        above = self._picture.scrolled_off(columns)
        if above and self._picture.alternate:  # the rows scrolled off the primary screen earlier
            self._canvas.use_alternate(False)
            self._canvas.show((), None, above)
        self._canvas.use_alternate(self._picture.alternate)
        rows, cursor = self._picture.rows(columns, height)
        if hint and (self._hint_until or height > self._picture.size[1]):
            rows = [*rows[: height - 1], *[""] * (height - 1 - len(rows)), self._hint(columns, height)]
            cursor = cursor if cursor is not None and cursor[1] < height - 1 else None
        self._canvas.show(rows, cursor, above)

    def _hint(self, columns: int, height: int) -> str:
        wide, high = self._picture.size
        cut = f" ({wide}x{high}, cut to {columns}x{height})" if wide > columns or high > height else ""
        return f"\x1b[7m{clip(f' {LEAVES}; viewing {self._name}{cut} ', columns)}\x1b[0m"

    def _leaves(self, keys: list[str]) -> bool:
        """Return True if the user leaves; for other keys, show how to leave."""
        for key in keys:
            if key in {"interrupt", "q"} or (self._escaped and key in {"d", "D"}):
                return True
            self._escaped = key == "ctrl-]"
            if key == "suspend":
                self._canvas.suspend()
        if keys:
            self._hint_until = time.monotonic() + HINT
            self._picture.changed = True
        return False
