"""The agent's terminal, as features read it and write to it."""

from __future__ import annotations

import math
import time

from relay.place import TERMINAL, Place
from relay.readers.auto import AutoReader
from relay.state import process_wait
from relay.state.process_wait import Wait
from relay.state.readiness import SCREEN_QUIET
from relay.terminal.forward import Forwarder
from relay.terminal.pty import Pty
from relay.terminal.screen import VirtualScreen
from relay.terminal.tty_state import TtyState, tty_state

LONG_QUIET = 2.0
"""Seconds of quiet after which an agent counts as waiting for input if the kernel does not say."""


class AgentTerminal:
    """The PTY of one agent, its virtual screen, and the thread that forwards between it and the user.

    Every method returns at once. Call them on the event loop's thread only.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        pty: Pty,
        reader: AutoReader,
    ) -> None:
        self._forwarder = forwarder
        self._pty = pty
        self._reader = reader
        self._last_output = time.monotonic()
        self._offset = 0

    def note_output(self, size: int) -> Place:
        """Count `size` bytes of output; return the place where they end."""
        self._last_output = time.monotonic()
        self._offset += size
        return self.place

    def note_loss(self, size: int) -> None:
        """Count `size` bytes of output that were lost before relay could read them."""
        self._offset += size

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal."""
        self._forwarder.write(data)

    def reserve(self) -> None:
        """Hold back what the user types from now on, until `release`; KeysHeldBack says that it is done."""
        self._forwarder.reserve(True)

    def release(self) -> None:
        """Pass on what the user types, and what they have typed since `reserve`."""
        self._forwarder.reserve(False)

    def unwritten(self) -> int:
        """Return the number of queued bytes that the agent's terminal has not taken yet."""
        return self._forwarder.unwritten

    def tty(self) -> TtyState:
        """Return the line discipline and the foreground process group of the agent's terminal."""
        return tty_state(self._pty)

    def output_pending(self) -> bool:
        """Return True if the agent has written something that the screen does not show yet.

        Such output is still in the kernel, or on its way from the forward thread to the event loop.
        """
        return self._forwarder.output_pending()

    @property
    def screen(self) -> VirtualScreen | None:
        """The virtual screen; None where its library is not available."""
        return self._reader.screen

    def bracketed_paste(self) -> bool:
        """Return True if the program has enabled bracketed paste (mode 2004, xterm ctlseqs)."""
        return self.screen is not None and self.screen.bracketed_paste

    def alternate(self) -> bool:
        """Return True if the alternate screen is shown (modes 47, 1047, 1049)."""
        return self.screen is not None and self.screen.alternate

    def unfinished(self) -> str:
        """Return the text of the line that the cursor is on."""
        return self._reader.unfinished()

    def screen_text(self) -> list[str]:
        """Return the visible rows from the top; [] without a virtual screen."""
        return [] if self.screen is None else [row.text for row in self.screen.rows()]

    def title(self) -> str:
        """Return the title that the program has set; "" without a virtual screen."""
        return "" if self.screen is None else self.screen.title

    def repaint(self) -> bytes | None:
        """Return bytes that draw the screen as it is now; None in the middle of an escape sequence."""
        if self.screen is None:
            return b""
        return self.screen.repaint() if self.screen.ground else None

    def last_output(self) -> float:
        """Return the time of the last output, or of the start if there was none (seconds, monotonic)."""
        return self._last_output

    @property
    def place(self) -> Place:
        """The end of the output read so far."""
        return Place(TERMINAL, self._offset)

    def output_offset(self) -> int:
        """Return the number of bytes that the agent has written so far, lost ones included."""
        return self._offset

    def waits_for_input(self) -> bool:
        """Return True if the agent seems to wait for input. Quiet alone is weak evidence."""
        if self.output_pending():
            return False
        looked = process_wait.look(self._pty.foreground())
        if looked.wait is Wait.READ and looked.alone:
            return True
        needed = {Wait.READ: LONG_QUIET, Wait.POLL: SCREEN_QUIET, Wait.UNKNOWN: LONG_QUIET}
        return time.monotonic() - self._last_output >= needed.get(looked.wait, math.inf)

    def reads_input(self) -> bool:
        """Return True if the kernel says that the foreground program sleeps in a read of the terminal."""
        return process_wait.look(self._pty.foreground()).wait is Wait.READ
