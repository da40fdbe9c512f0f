"""A user's terminal for tests: a pseudo-terminal whose output is drawn on a virtual screen."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forkserver import take_terminal
from relay.terminal.screen import VirtualScreen

PATIENCE = 60.0
"""Seconds until a test gives up on a broken program."""

RELAY = shlex.join([sys.executable, "-m", "relay"])
"""The `relay` command, for a shell."""


class Emulator:
    """A program in a new terminal, as its session leader.

    Like a real terminal emulator it draws output and answers queries, but it reads only while a test waits
    for something. output: every byte that the program wrote.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        cwd: Path | None = None,
        columns: int = 100,
        rows: int = 30,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.output = bytearray()
        self.code: int | None = None
        self.drawing = True
        self._over = False
        self.screen = VirtualScreen(columns, rows)
        self._answers = bytearray()
        self.screen.answer_queries(self._answers.extend)
        master, slave = pty.openpty()
        self.resize(columns, rows, master)
        self.name = os.ttyname(slave)
        self.before = termios.tcgetattr(slave)
        self._process = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=cwd or environment["RELAY_HOME"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=take_terminal if prepare is None else lambda: (take_terminal(), prepare()),
        )
        self.pid = self._process.pid
        self.slave = slave
        self.master = master
        os.set_blocking(master, False)

    # Typing.

    def type(self, data: bytes | str) -> None:
        """Type `data` while drawing output: a terminal buffers only about 4 KB of unread input."""
        rest = data.encode() if isinstance(data, str) else data
        while rest:
            self._turn(select.POLLOUT)
            try:
                rest = rest[os.write(self.master, rest) :]
            except BlockingIOError:
                pass

    def resize(self, columns: int, rows: int, master: int | None = None) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.master if master is None else master, termios.TIOCSWINSZ, size)
        self.screen.resize(columns, rows)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self.slave)
        os.close(self.master)
        self.slave = self.master = -1

    # Observing.

    def wait(self, condition: Callable[[], Any], what: str = "") -> None:
        """Draw output until `condition()` holds. Raise AssertionError, with the screen, on timeout."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                shown = "\n".join(self.lines())
                raise AssertionError(
                    f"never came true: {what or condition}\n{shown}\n{bytes(self.output[-2000:])!r}"
                )
            for timeout in (0.01, *[0] * 15):  # it need not look after each piece of a flood
                if not self._turn(select.POLLIN, timeout) or not self.drawing:
                    break

    def see(self, text: str | bytes, after: int = 0) -> int:
        """Wait until `text` appears in the output after byte `after`; return the index of its end."""
        wanted = text.encode() if isinstance(text, str) else text
        self.wait(lambda: self.output.find(wanted, after) >= 0, f"{wanted!r} was written")
        return self.output.index(wanted, after) + len(wanted)

    def lines(self) -> list[str]:
        """Return the rows of the screen, without trailing blank ones."""
        rows = [row.text.rstrip() for row in self.screen.rows()]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.lines())

    def prompted(self, prompt: str = "shell>") -> bool:
        """Return True if the last line ends with `prompt`; during a redraw there may be no line."""
        return any(line.endswith(prompt) for line in self.lines()[-1:])

    def picture(self) -> tuple[list[str], tuple[int, int], bool, bytes]:
        """Return what is visible now: text, cursor, alternate screen; and all of it in colour."""
        self.drain()
        return self.lines(), self.screen.cursor, self.screen.alternate, self.screen.repaint()

    def wait_for(self, text: str) -> None:
        """Wait until `text` is on the screen."""
        self.wait(lambda: self.shows(text), f"{text!r} on the screen")

    def end(self) -> int:
        """Wait for the program to end, read the rest, and return its exit code (negative: a signal)."""
        self.wait(self.ended, "the program ended")
        self.drain()
        assert self.code is not None
        return self.code

    def ended(self) -> bool:
        if self.code is None:
            self.code = self._process.poll()
        return self.code is not None

    def drain(self) -> None:
        """Draw what has been written so far."""
        while self.master >= 0 and self._turn(select.POLLIN, 0):
            pass

    # The terminal's modes.

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    def raw(self) -> bool:
        return not self.modes()[3] & (termios.ICANON | termios.ECHO)

    def restored(self) -> bool:
        """Return True if the modes are the original ones, and no mode set by a program is left."""
        self.drain()
        plain = not self.screen.alternate and not self.screen.bracketed_paste and self.screen.cursor_visible
        return self.modes() == self.before and plain and not any(map(self.screen.mode, MOUSE))

    def close(self) -> None:
        """Close the window and end the program."""
        if self.master >= 0:
            self.hang_up()
        if self.code is None:
            deadline = time.monotonic() + PATIENCE
            while not self.ended():
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                    deadline += PATIENCE
                select.select([], [], [], 0.005)
        self.screen.close()

    def _turn(self, mask: int, timeout: float = 0.05) -> bool:
        """Wait for output, at most `timeout` seconds, and draw it. Return True if there was any."""
        if self.master < 0 or self._over:
            select.select([], [], [], timeout)
            return False
        poll = select.poll()
        poll.register(self.master, mask | select.POLLIN)
        if not poll.poll(timeout * 1000):
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._over = True
            return False
        self.output += data
        if self.drawing:
            self.screen.feed(data)
            answers, self._answers[:] = bytes(self._answers), b""
            if answers:
                os.write(self.master, answers)
        return True


MOUSE = (9, 1000, 1002, 1003, 1004, 1005, 1006, 1015)
"""DEC private modes of mouse and focus reports (xterm ctlseqs)."""
