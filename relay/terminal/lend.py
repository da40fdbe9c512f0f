"""A terminal that its owner has lent to a session: the descriptors to read from and write to.

The user's shell shares the open file description of its terminal with everything it started; O_NONBLOCK on it
would hit them all.  So the terminal is opened anew by name where that works (O_NOCTTY: it must not become our
controlling terminal).  Where it does not, the lent descriptor is used as it is, and written to in pieces on
which poll(2) promises not to block.
"""

from __future__ import annotations

import os
import select
import stat
import termios

from relay.terminal.pty import get_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BLOCKING_PIECE = min(select.PIPE_BUF, 4096)
"""Bytes that a descriptor reported writable takes without blocking (pipe(7): PIPE_BUF)."""


class Lent:
    """Descriptors of our own for a lent terminal: `source` is read, `sink` written; either may be -1 (none).

    interactive: both are one terminal, which is in raw mode while it is lent.
    saved:       its termios attributes from before, or None.
    blocks:      a write to `sink` may block.
    piece:       bytes of one write.
    """

    __slots__ = (
        "blocks",
        "interactive",
        "piece",
        "saved",
        "sink",
        "sink_is_terminal",
        "source",
        "source_is_terminal",
    )

    def __init__(self, source: int, sink: int, *, interactive: bool, saved: list[Any] | None) -> None:
        """Duplicate the descriptors `source` and `sink`, which the caller may close."""
        self.interactive = interactive
        self.saved = saved
        self.source, _ = _own(source)
        self.sink, anew = _own(sink)
        self.blocks = not anew
        # A terminal that was hung up is none for isatty(3), and its end of file is no end of input.
        self.source_is_terminal = self.source >= 0 and (interactive or os.isatty(self.source))
        self.sink_is_terminal = self.sink >= 0 and (interactive or os.isatty(self.sink))
        regular = self.sink >= 0 and stat.S_ISREG(os.fstat(self.sink).st_mode)
        self.piece = 1 << 16 if anew or regular else BLOCKING_PIECE

    def size(self) -> tuple[int, int, int, int] | None:
        """Return (columns, rows, width, height) of the terminal that shows the output; None if none does."""
        for fd in (self.sink, self.source):
            if fd >= 0 and (size := get_size(fd)):
                return size
        return None

    def restore(self) -> None:
        """Restore the attributes of the terminal, for an owner that died."""
        if self.saved is not None and self.source_is_terminal:
            try:
                termios.tcsetattr(self.source, termios.TCSANOW, self.saved)
            except termios.error:
                pass  # it is gone

    def close(self) -> None:
        for fd in {self.source, self.sink} - {-1}:
            os.close(fd)
        self.source = self.sink = -1


def _own(fd: int) -> tuple[int, bool]:
    """Return (a descriptor of our own for `fd`, True if it has an open file description of its own)."""
    if fd < 0:
        return -1, False
    if os.isatty(fd):
        try:
            anew = os.open(os.ttyname(fd), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            pass
        else:
            if os.fstat(anew).st_rdev == os.fstat(fd).st_rdev:
                return anew, True
            os.close(anew)
    return os.dup(fd), False
