"""The agent's terminal, as the features of its session see it and write to it."""

from __future__ import annotations

import time
from collections.abc import Callable

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
"""Seconds of quiet after which an agent is taken to wait for input, where the system does not tell."""


class AgentTerminal:
    """The PTY of one agent, its virtual screen, and the thread that forwards between it and the user.

    Every method returns at once; all belong to the event loop's thread.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        pty: Pty,
        reader: AutoReader,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._forwarder = forwarder
        self._pty = pty
        self._reader = reader
        self._clock = clock
        self._last_output = clock()
        self._offset = 0

    def note_output(self, size: int) -> Place:
        """Note that the agent has written `size` bytes; return where they end."""
        self._last_output = self._clock()
        self._offset += size
        return self.place

    def note_loss(self, size: int) -> None:
        """Note that the agent has written `size` bytes that nothing could keep."""
        self._offset += size

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what is queued already."""
        self._forwarder.write(data)

    def reserve(self) -> None:
        """Keep from the agent what the user types from now on, until `release`."""
        self._forwarder.reserve(True)

    def reserved(self) -> bool:
        """Return True once `reserve` is in force and all that was typed before has been published."""
        return self._forwarder.reserved and not self._forwarder.tee

    def release(self) -> None:
        """Let through what the user types, and has typed meanwhile."""
        self._forwarder.reserve(False)

    def unwritten(self) -> int:
        """Return the number of queued bytes that the agent's terminal has not taken yet."""
        return self._forwarder.unwritten

    def tty(self) -> TtyState:
        """Return the line discipline and the foreground of the agent's terminal."""
        return tty_state(self._pty)

    def output_pending(self) -> bool:
        """Return True if the agent has written something that the screen does not show yet.

        It waits in the kernel (poll(2) the master with a timeout of 0: FIONREAD misses what the kernel is
        still moving) or between the reading and the analysing thread.
        """
        return self._forwarder.output_pending()

    @property
    def screen(self) -> VirtualScreen | None:
        """The virtual screen; None where it cannot be had."""
        return self._reader.screen

    def bracketed_paste(self) -> bool:
        """Return True if the program has switched mode 2004 on (xterm ctlseqs)."""
        return self.screen is not None and self.screen.bracketed_paste

    def alternate(self) -> bool:
        """Return True if the alternate screen is shown (mode 1049 and its elders)."""
        return self.screen is not None and self.screen.alternate

    def unfinished(self) -> str:
        """Return the text of the line that the cursor stands on."""
        return self._reader.unfinished()

    def screen_text(self) -> list[str]:
        """Return the visible rows, from the top; none without a virtual screen."""
        return [] if self.screen is None else [row.text for row in self.screen.rows()]

    def title(self) -> str:
        """Return what the program has set as its terminal's title; "" without a virtual screen."""
        return "" if self.screen is None else self.screen.title

    def repaint(self) -> bytes | None:
        """Return bytes that draw the screen as it is now; None while the agent is in the middle of a sequence."""
        screen = self.screen
        if screen is None:
            return b""
        return screen.repaint() if screen.ground else None

    def last_output(self) -> float:
        """Return when the agent's last byte came, or when it was started (seconds, monotonic)."""
        return self._last_output

    @property
    def place(self) -> Place:
        """The end of the output that has been read."""
        return Place(TERMINAL, self._offset)

    def output_offset(self) -> int:
        """Return the number of bytes that the agent has written so far."""
        return self._offset

    def waits_for_input(self) -> bool:
        """Return True if the agent waits for input, as far as that is known; quiet alone is weak evidence."""
        if self.output_pending():
            return False
        quiet = self._clock() - self._last_output
        looked = process_wait.look(self._pty.foreground())
        match looked.wait:
            case Wait.READ:
                return looked.alone or quiet >= LONG_QUIET
            case Wait.POLL:
                return quiet >= SCREEN_QUIET
            case Wait.UNKNOWN:
                return quiet >= LONG_QUIET
            case _:
                return False

    def reads_input(self) -> bool:
        """Return True if the system says that the foreground program sleeps in a read of the terminal."""
        return process_wait.look(self._pty.foreground()).wait is Wait.READ
