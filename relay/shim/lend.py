"""A terminal attached to a session: its descriptors, its output, the keys typed on it.

The user's shell shares the open file description of its terminal with everything it started; O_NONBLOCK on it
would hit them all.  So the terminal is opened again by name where that works (O_NOCTTY: it must not become
our controlling terminal).  Where it does not, the lent descriptor is used as it is, and written to in pieces
on which poll(2) promises not to block.
"""

from __future__ import annotations

import os
import select
import stat
import termios
import time

from relay.shim.pty import get_size
from relay.shim.query import CLEAR, QUERY, SPLIT_PATIENCE, AnswerFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relay.shim.aside import Asides
    from relay.shim.command_keys import CommandKeys
    from relay.shim.loop import Loop

BLOCKING_PIECE = min(select.PIPE_BUF, 4096)
"""Bytes that a descriptor reported writable takes without blocking (pipe(7): PIPE_BUF)."""

PREFIX, NO_PREFIX, ESC = "C-]", "none", b"\x1b"
"""Ctrl-], the first key of a command (as in telnet); no such key; the start of its other forms."""


def control_byte(key: str) -> bytes:
    """Return the byte that a terminal sends for `key`, such as "C-]"."""
    return bytes([ord(key[2:].upper()) & 0x1F])


class Lent:
    """Descriptors of our own for a lent terminal: `source` is read, `sink` written; either may be -1 (none).

    interactive: both are one terminal, which is in raw mode while it is lent.
    saved:       its termios attributes from before, or None.
    blocks:      a write to `sink` may block.
    piece:       bytes of one write.
    """

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


class Keyboard:
    """The keys of one lent terminal: finds the commands of relay's own, and answers to our query.

    prefix: the key that begins a command, such as "C-]"; NO_PREFIX: none does.
    due:    monotonic seconds at which kept keys go to the agent (`flush`); 0: there are none.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.answers = AnswerFilter()
        self.due = 0.0
        self._byte = ESC if prefix == NO_PREFIX else control_byte(prefix)
        self._commands: CommandKeys | None = None  # loaded with the first key that may be one of them

    def feed(self, data: bytes) -> tuple[bytes, str]:
        """Return (the keys that go to the agent now, the command that they gave, or "")."""
        data = self.answers.feed(data)
        if self.answers.unfinished:
            self.due = time.monotonic() + SPLIT_PATIENCE
        if self.prefix == NO_PREFIX:
            if not self.answers.unfinished:
                self.due = 0.0
            return data, ""
        if not self.due and ESC not in data and self._byte not in data:
            return data, ""
        if self._commands is None:
            from relay.shim.command_keys import CommandKeys  # needs `re`: 5 ms, after the agent's start

            self._commands = CommandKeys(self.prefix)
        passed, command = self._commands.feed(data)
        patience = SPLIT_PATIENCE if self.answers.unfinished else self._commands.patience
        self.due = 0.0 if patience is None else time.monotonic() + patience
        return passed, command

    def flush(self) -> bytes:
        """Return the kept keys, which have become nothing else."""
        self.due = 0.0
        kept = self.answers.flush()
        return kept if self._commands is None else self._commands.feed(kept)[0] + self._commands.flush()


class UserTerminal:
    """The lent terminal, if there is one.

    queued:     output that the terminal has not taken yet.
    paused:     its input is left alone.
    line_ended: called between two lines of the output.
    any_key:    called with the next key, which goes nowhere else.
    """

    def __init__(self, loop: Loop, lost: Callable[[str], None]) -> None:
        """`lost` is called when the terminal has gone, with what it was: "terminal" or "pipe"."""
        self.lent: Lent | None = None
        self.queued = bytearray()
        self.paused = False
        self.line_ended: Callable[[], None] | None = None
        self.any_key: Callable[[], None] | None = None
        self.keyboard = Keyboard(PREFIX)
        self._loop = loop
        self._lost = lost
        self._report: bytes | None = None  # the status that the terminal should show
        self._asides: Asides | None = None  # loaded with the first
        self._undo = b""  # takes back an aside
        self._said = b"\n"  # the last piece of the agent's output, or a repaint

    @property
    def watched(self) -> bool:
        """True if the output goes to a terminal, not into a file, a pipe or nowhere."""
        lent = self.lent
        return lent is not None and lent.sink_is_terminal

    @property
    def at_line_start(self) -> bool:
        """True if nothing stands on the line that the cursor is on."""
        return self._said.endswith(b"\n")

    def output(self, data: bytes) -> None:
        """Show output of the agent."""
        if self.line_ended is not None and (end := data.rfind(b"\n") + 1):
            self._output(data[:end])
            self.line_ended()
            data = data[end:]
        self._output(data)

    def _output(self, data: bytes) -> None:
        if data and self.lent is not None and self.lent.sink >= 0:
            self._said = data
            self.show(data)
            if self._asides is not None:
                self._asides.output(data)
                self._show_asides()

    def show(self, data: bytes) -> None:
        lent = self.lent
        if lent is None or lent.sink < 0:
            return
        if lent.blocks:
            self.queued += data  # poll(2) says when it takes a piece
            return
        if not self.queued:
            try:
                data = data[os.write(lent.sink, data) :]
            except OSError:
                pass  # full, or gone: below
        self.queued += data
        self.flush()

    def flush(self) -> None:
        """Write what is queued; to a descriptor that may block, only the one piece that poll(2) promised."""
        lent = self.lent
        if lent is None or lent.sink < 0:
            self.queued.clear()
            return
        while self.queued:
            try:
                taken = os.write(lent.sink, self.queued[: lent.piece])
            except BlockingIOError:
                return
            except OSError as error:
                self.lose("pipe" if isinstance(error, BrokenPipeError) else "terminal")
                return
            del self.queued[:taken]
            if lent.blocks:
                return

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        if not self.watched or (undo and undo == self._undo):  # done already, perhaps for an earlier session
            return
        if undo is not None:
            self._undo = undo
        if self._asides is None:
            from relay.shim.aside import Asides  # needs `re`: 5 ms, after the agent's start

            self._asides = Asides()
            self._asides.output(self._said)
        self._asides.add(data)
        self._show_asides()

    def _show_asides(self) -> None:
        if self._asides is not None and self._asides.waiting:
            self.show(self._asides.due())

    def report(self, report: bytes) -> None:
        self._report = report
        if self.keyboard.answers.answered:
            self.aside(report)
        else:
            self._ask()

    def _ask(self) -> None:
        answers = self.keyboard.answers
        if self.lent is not None and self.lent.interactive and not answers.expected:
            answers.expected = True
            self.aside(QUERY)

    def use_prefix(self, key: str) -> None:
        """Have `key` begin a command from now on: as in Keyboard."""
        if key != self.keyboard.prefix:
            answers, self.keyboard = self.keyboard.answers, Keyboard(key)
            self.keyboard.answers = answers

    def keys(self, data: bytes) -> tuple[bytes, str]:
        """Return (the keys that go to the agent now, the command that they gave, or "")."""
        if self.any_key is not None:
            from relay.shim.command_keys import split_reports

            data, typed = split_reports(data)
            if typed:
                self.any_key()
        asked = not self.keyboard.answers.answered
        keys = self.keyboard.feed(data)
        if asked and self.keyboard.answers.answered and self._report is not None:
            self.aside(self._report)
        return keys

    def lend(self, terminal: Lent, greeting: bytes) -> None:
        """Serve `terminal` from now on; show `greeting` first."""
        self._drop()
        self.lent = terminal
        self.paused = False
        if greeting:
            self._said = greeting
            self.show(greeting)
        if self._report is not None:
            self._ask()

    def withdraw(self) -> None:
        """Take back what was written beside the agent's output, and stop using the terminal."""
        if self._undo:
            self.show(self._undo)
        if self.keyboard.answers.answered and self._report is not None:
            self.show(CLEAR)
        self._drop()

    def lose(self, what: str) -> None:
        """Stop using a terminal that has gone."""
        self._drop()
        self._lost(what)

    def _drop(self) -> None:
        lent, self.lent = self.lent, None
        self.queued.clear()
        self.keyboard = Keyboard(self.keyboard.prefix)
        self.any_key = None
        self._undo = b""
        if self._asides is not None:
            self._asides.clear()
        if lent is not None:
            for fd in {lent.source, lent.sink} - {-1}:
                self._loop.remove(fd)
            lent.close()


def _own(fd: int) -> tuple[int, bool]:
    """Return (our own descriptor for `fd`, True if it has an open file description of its own)."""
    if fd < 0:
        return -1, False
    if os.isatty(fd):
        try:
            name = os.ttyname(fd)
            if name == "/dev/tty":
                return os.dup(fd), False  # by this name it is another one for us: the agent's
            anew = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            pass
        else:
            if os.fstat(anew).st_rdev == os.fstat(fd).st_rdev:
                return anew, True
            os.close(anew)
    return os.dup(fd), False
