"""The agent's terminal, which features read and write."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from relay.columns import width
from relay.place import TERMINAL, Place
from relay.readers.auto import AutoReader
from relay.readers.controls import leaves_line
from relay.shim.process_wait import Wait, Waiting, waits_for_input
from relay.shim.pty import get_size
from relay.terminal.screen import VirtualScreen
from relay.terminal.shim_link import ShimLink
from relay.terminal.tty_state import TtyState, tty_state

SCROLLBACK_LINES, SCROLLBACK_BYTES = 2000, 1 << 19
"""Maximum output kept for the scrollback of a terminal that attaches."""

HURRY = 1.0
"""Seconds after which output may wait again after the last key or title."""

INPUT_BORDER = " \t│┃|║▏▕>❯›»"
"""Characters that input boxes draw around a text."""

_NO_TEXT = re.compile(  # all control sequences and characters except colours (SGR), tabs and line ends
    rb"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\a\x1b]*(?:\a|\x1b\\)?|\x1b(?!\[)[ -/]*[0-~]?"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]"
)


def _printable(line: bytes) -> bytes:
    return _NO_TEXT.sub(b"", line)


class AgentTerminal:
    """The PTY of one agent and its virtual screen.

    Every method returns at once. Call them only from the event loop's thread.

    restoring: an earlier session has processed the current record, which only brings this one up to date.
    position:  of the current record in the ring. read_from: of the first record read.
    catch_up:  called to read the output that waits in the ring.
    hurried_until: monotonic time in seconds until which output must not wait there.
    """

    def __init__(self, shim: ShimLink, reader: AutoReader) -> None:
        self._shim = shim
        self._pty = shim.pty
        self._reader = reader
        self._last_output = time.monotonic()
        self._offset = 0
        self.restoring = shim.hello.resumed
        self.position = self.read_from = -1
        self.catch_up: Callable[[], None] = lambda: None
        self.hurried_until = 0.0
        self._printed = bytearray()  # the end of the output, while the program printed lines
        self._draws = False  # it no longer prints lines
        self._answer()

    def note_output(self, offset: int, now: float) -> Place:
        """Record output that arrived at `now` (monotonic seconds); return the place where it ends."""
        self._last_output = now
        self._offset = offset
        return self.place

    def remember(self, data: bytes) -> None:
        """Keep the output of a program that prints lines, once read, for the scrollback of `drawn`."""
        if self._reader.kind == "lines":
            self._printed += data[-SCROLLBACK_BYTES:]
            if len(self._printed) > 2 * SCROLLBACK_BYTES:
                del self._printed[:-SCROLLBACK_BYTES]
        elif not self._draws:
            self._draws = True
            self._printed += data[: max(leaves_line(data), 0)]
            rows = self.size[1]  # the screen keeps these
            self._printed = bytearray(b"\n".join(self._printed.split(b"\n")[:-rows]))

    def drawn(self, *, history: bool) -> bytes:
        """Return bytes that draw the current screen, such that the agent's next output continues from it.

        history: first put the last lines into the terminal's own scrollback.
        """
        if self.screen is None:
            return b""
        above = self._scrollback(self.screen) if history else b""
        return above + self.screen.repaint() + self._reader.held

    def _scrollback(self, screen: VirtualScreen) -> bytes:
        """Return the last lines as text and colours only, without queries or modes."""
        printed = bytes(self._printed[-SCROLLBACK_BYTES:]).split(b"\n") if self._printed else []
        if self._reader.kind == "lines":
            return b"\n".join(map(_printable, printed[-SCROLLBACK_LINES - screen.height :]))
        lines = (_printable(line).rstrip(b"\r") for line in printed)
        rows = [*lines, *(row.encode() for row in screen.history)][-SCROLLBACK_LINES:]
        # Before the alternate screen, keep the rows visible: as far as we know, they are what it covers.
        below = 1 if screen.alternate else screen.height
        return b"\r\n".join([*rows, *[b""] * below]) if rows else b""

    def note_attached(self, *, attached: bool, watched: bool) -> None:
        """Record whether a terminal is attached: it answers queries; without one, the virtual screen does."""
        self._shim.state.attached, self._shim.state.watched = attached, watched
        self._answer()

    def note_position(self, position: int) -> None:
        """Record the ring position of the next record to read."""
        self.position = position
        if self.read_from < 0:
            self.read_from = position

    def restored(self) -> None:
        """Record that this session has read all that earlier ones have."""
        self.restoring = False
        self._answer()

    def _answer(self) -> None:
        if self.screen is not None:
            silent = self._shim.state.attached or self.restoring
            self.screen.answer_queries(None if silent else self._shim.reply)

    def write(self, data: bytes) -> None:
        self._shim.write(data)

    def reserve(self) -> None:
        """Hold back the user's keys until `release`; KeysHeldBack reports when this takes effect."""
        self._shim.reserve(True)

    def release(self) -> None:
        """Pass on the user's keys again, including those typed since `reserve`."""
        self._shim.reserve(False)

    def unwritten(self) -> int:
        """Return the number of queued bytes not yet written to the agent's terminal."""
        return self._shim.unwritten

    def tty(self) -> TtyState:
        """Return the line discipline and the foreground process group of the agent's terminal."""
        return tty_state(self._pty)

    def unread_keys(self) -> int:
        """Return the number of bytes in the terminal's input that the program has not read."""
        return self._pty.unread_keys()

    def output_pending(self) -> bool:
        """Return True if the agent has written output that the screen does not show yet.

        Such output is still in the kernel, or on its way from the shim to the event loop.
        """
        self.catch_up()
        return self._shim.output_pending()

    def hurry(self) -> None:
        """Have output read at once for HURRY: somebody waits for it."""
        self.hurried_until = time.monotonic() + HURRY

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows)."""
        if self.screen is not None:
            return self.screen.columns, self.screen.height
        columns, rows, *_ = get_size(self._pty.master) or (80, 24)
        return columns, rows

    @property
    def screen(self) -> VirtualScreen | None:
        """The virtual screen, or None if its library is not available."""
        self.catch_up()
        return self._reader.screen

    def bracketed_paste(self) -> bool:
        """Return True if the program has enabled bracketed paste (mode 2004, xterm ctlseqs)."""
        return self.screen is not None and self.screen.bracketed_paste

    def alternate(self) -> bool:
        """Return True if the alternate screen is shown (modes 47, 1047, 1049)."""
        return self.screen is not None and self.screen.alternate

    def prints_lines(self) -> bool:
        """Return True if the program has only printed lines in the output read so far."""
        return self._reader.kind == "lines" and self.screen is not None and not self.screen.alternate

    def unfinished(self) -> str:
        """Return the text of the cursor's line."""
        return self._reader.unfinished()

    def screen_text(self) -> list[str]:
        """Return the visible rows from the top; [] without a virtual screen."""
        return [] if self.screen is None else [row.text for row in self.screen.rows()]

    def background(self, x: int, y: int) -> int | None:
        """Return the background of a visible cell as 0xRRGGBB; None for the terminal's own."""
        return None if self.screen is None else self.screen.colours(x, y).background

    def cursor(self) -> tuple[int, int] | None:
        """Return the cursor's position (x, y), zero-based; None without a virtual screen."""
        return None if self.screen is None else self.screen.cursor

    def suggests(self) -> bool:
        """Return True if the text from the cursor on, in its row, is drawn faint: it was not typed.

        The cell under the cursor does not count: agents draw a cursor there themselves.
        """
        screen = self.screen
        if screen is None:
            return False
        x, y = screen.cursor
        at, behind = 0, list[int]()
        for character in screen.rows()[y].text.rstrip(INPUT_BORDER):
            if at > x and character != " ":
                behind.append(at)
            at += width(character)
        return bool(behind) and all(screen.faint(column, y) for column in behind)

    def title(self) -> str:
        """Return the title that the program has set; "" without a virtual screen."""
        return "" if self.screen is None else self.screen.title

    def repaint(self) -> bytes | None:
        """Return bytes that draw the current screen; None in the middle of an escape sequence."""
        if self.screen is None:
            return b""
        return self.screen.repaint() if self.screen.ground else None

    def last_output(self) -> float:
        """Return the monotonic time in seconds of the last output, or of the start if there was none."""
        return self._last_output

    @property
    def place(self) -> Place:
        """The end of the output read so far."""
        return Place(TERMINAL, self._offset)

    def output_offset(self) -> int:
        """Return the number of bytes that the agent has written so far, including lost ones."""
        return self._offset

    def waits_for_input(self, *, sure: bool = False) -> bool:
        """Return True if the agent seems to wait for input. sure: trust only the kernel, not silence."""
        # Ask the kernel first: what the program wrote before it slept is then either read or pending.
        looked = self.looks(self._pty.foreground())
        waits = waits_for_input(looked, 0.0 if sure else time.monotonic() - self._last_output)
        return waits and not self.output_pending()

    def looks(self, group: int) -> Waiting:
        """Return what a process group of the terminal waits for."""
        return self._shim.look(group)

    def reads_input(self) -> bool:
        """Return True if the kernel reports that the foreground program sleeps in a read of the terminal."""
        return self.looks(self._pty.foreground()).wait is Wait.READ
