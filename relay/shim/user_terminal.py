"""A terminal attached to a session: its descriptors, its output, the keys typed on it.

The user's shell shares its terminal's open file description with everything it starts; setting O_NONBLOCK
would affect them all.  So we reopen the terminal by name if possible (O_NOCTTY: it must not become our
controlling terminal).  Otherwise we use the descriptor as it is, and write in pieces that poll(2) guarantees
not to block.
"""

from __future__ import annotations

import os
import select
import stat
import termios
import time

from relay.shim.pty import get_size
from relay.shim.query import CLEAR, QUERY, SPLIT_TIMEOUT, AnswerFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relay.shim.aside import Asides
    from relay.shim.command_keys import CommandKeys
    from relay.shim.loop import Loop

BLOCKING_PIECE = min(select.PIPE_BUF, 4096)
"""Bytes that a descriptor takes without blocking when poll(2) reports it writable (pipe(7): PIPE_BUF)."""

PREFIX, NO_PREFIX, ESC = "C-]", "none", b"\x1b"
"""Ctrl-], the first key of a command (as in telnet); no such key; the first byte of its other encodings."""


class AttachedTerminal:
    """Our own descriptors for an attached terminal, to read (`source`) and write (`sink`); -1: none.

    interactive: both are the same terminal, which is in raw mode while attached.
    saved:       its termios attributes from before attaching, or None.
    blocks:      a write to `sink` may block.
    piece:       bytes of one write.
    """

    def __init__(self, source: int, sink: int, *, interactive: bool, saved: list[Any] | None) -> None:
        """Duplicate the descriptors `source` and `sink`, which the caller may close."""
        self.interactive = interactive
        self.saved = saved
        self.source, _ = _own(source)
        self.sink, reopened = _own(sink)
        self.blocks = not reopened
        # isatty(3) is false for a hung-up terminal, whose end of file is not the end of the input.
        self.source_is_terminal = self.source >= 0 and (interactive or os.isatty(self.source))
        self.sink_is_terminal = self.sink >= 0 and (interactive or os.isatty(self.sink))
        regular = self.sink >= 0 and stat.S_ISREG(os.fstat(self.sink).st_mode)
        self.piece = 1 << 16 if reopened or regular else BLOCKING_PIECE

    def size(self) -> tuple[int, int, int, int] | None:
        """Return (columns, rows, width, height) of the terminal that shows the output; None without one."""
        for fd in (self.sink, self.source):
            if fd >= 0 and (size := get_size(fd)):
                return size
        return None

    def ready(self) -> bool:
        """Return True if writing a piece to `sink` cannot block."""
        if not self.blocks:
            return True
        poll = select.poll()
        poll.register(self.sink, select.POLLOUT)
        return bool(poll.poll(0))

    def restore(self) -> None:
        """Restore the terminal's attributes on behalf of an owner that died."""
        if self.saved is not None and self.source_is_terminal:
            try:
                termios.tcsetattr(self.source, termios.TCSANOW, self.saved)
            except termios.error:
                pass  # the terminal is gone

    def close(self) -> None:
        for fd in {self.source, self.sink} - {-1}:
            os.close(fd)
        self.source = self.sink = -1


class Keyboard:
    """The keys of one attached terminal: finds relay's own commands, and answers to our query.

    prefix: the key that starts a command, such as "C-]"; NO_PREFIX: no key does.
    due:    monotonic time in seconds at which kept keys go to the agent (`flush`); 0: none are kept.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.answers = AnswerFilter()
        self.due = 0.0
        self._byte = ESC if prefix == NO_PREFIX else bytes([ord(prefix[2:]) & 0x1F])  # as Ctrl sends it
        self._commands: CommandKeys | None = None  # loaded at the first key that may be one of them

    def feed(self, data: bytes) -> tuple[bytes, str]:
        """Return (the keys for the agent, the command, or "")."""
        data = self.answers.feed(data)
        if self.answers.unfinished:
            self.due = time.monotonic() + SPLIT_TIMEOUT
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
        patience = SPLIT_TIMEOUT if self.answers.unfinished else self._commands.patience
        if not (self._commands.unchanged and self.due):
            self.due = 0.0 if patience is None else time.monotonic() + patience
        return passed, command

    def flush(self) -> bytes:
        """Return the kept keys, which turned out to be neither an answer nor a command."""
        self.due = 0.0
        kept = self.answers.flush()
        return kept if self._commands is None else self._commands.feed(kept)[0] + self._commands.flush()


class UserTerminal:
    """The attached terminal, if there is one.

    queued:     output not yet written to the terminal.
    paused:     its input is not read.
    line_ended: called between two lines of the output.
    any_key:    called for the next key, which is then swallowed.
    """

    def __init__(self, loop: Loop, lost: Callable[[str], None]) -> None:
        """`lost` is called when the terminal is lost, with its kind: "terminal" or "pipe"."""
        self.attached: AttachedTerminal | None = None
        self.queued = bytearray()
        self.paused = False
        self.line_ended: Callable[[], None] | None = None
        self.any_key: Callable[[], None] | None = None
        self.keyboard = Keyboard(PREFIX)
        self._loop = loop
        self._lost = lost
        self._report: bytes | None = None  # the status that the terminal should show
        self._asides: Asides | None = None  # loaded at the first aside
        self._undo = b""  # undoes an aside
        self._said = b"\n"  # the last piece of the agent's output, or a repaint

    @property
    def watched(self) -> bool:
        """True if the output goes to a terminal, not into a file, a pipe or nowhere."""
        attached = self.attached
        return attached is not None and attached.sink_is_terminal

    @property
    def at_line_start(self) -> bool:
        return self._said.endswith(b"\n")

    def output(self, data: bytes) -> None:
        if self.line_ended is not None and (end := data.rfind(b"\n") + 1):
            self._output(data[:end])
            self.line_ended()
            data = data[end:]
        self._output(data)

    def _output(self, data: bytes) -> None:
        if data and self.attached is not None and self.attached.sink >= 0:
            self._said = data
            self.show(data)
            if self._asides is not None:
                self._asides.output(data)
                self._show_asides()

    def show(self, data: bytes) -> None:
        attached = self.attached
        if attached is None or attached.sink < 0:
            return
        if not self.queued and not attached.blocks:
            try:
                data = data[os.write(attached.sink, data) :]
            except OSError:
                pass  # full, or gone: below
        self.queued += data
        self.flush()

    def flush(self) -> None:
        """Write as much of the queue as the terminal takes."""
        attached = self.attached
        if attached is None or attached.sink < 0:
            self.queued.clear()
            return
        while self.queued and attached.ready():
            try:
                taken = os.write(attached.sink, self.queued[: attached.piece])
            except BlockingIOError:
                return
            except OSError as error:
                self.lose("pipe" if isinstance(error, BrokenPipeError) else "terminal")
                return
            del self.queued[:taken]

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        if not self.watched or (undo and undo == self._undo):  # shown already, perhaps by an earlier session
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
        if self.attached is not None and self.attached.interactive and not answers.expected:
            answers.expected = True
            self.aside(QUERY)

    def use_prefix(self, key: str) -> None:
        """Make `key` the prefix of commands, as in Keyboard."""
        if key != self.keyboard.prefix:
            answers, self.keyboard = self.keyboard.answers, Keyboard(key)
            self.keyboard.answers = answers

    def keys(self, data: bytes) -> tuple[bytes, str]:
        """Return (the keys for the agent, the command, or "")."""
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

    def attach(self, terminal: AttachedTerminal, greeting: bytes) -> None:
        """Switch to `terminal`; show `greeting` first."""
        self._drop()
        self.attached = terminal
        self.paused = False
        if greeting:
            self._said = greeting
            self.show(greeting)
        if self._report is not None:
            self._ask()

    def withdraw(self) -> None:
        """Undo what was written in addition to the agent's output, and stop using the terminal."""
        if self._undo:
            self.show(self._undo)
        if self.keyboard.answers.answered and self._report is not None:
            self.show(CLEAR)
        self._drop()

    def lose(self, what: str) -> None:
        """Stop using a terminal that was lost."""
        self._drop()
        self._lost(what)

    def _drop(self) -> None:
        attached, self.attached = self.attached, None
        self.queued.clear()
        self.keyboard = Keyboard(self.keyboard.prefix)
        self.any_key = None
        self._undo = b""
        if self._asides is not None:
            self._asides.clear()
        if attached is not None:
            for fd in {attached.source, attached.sink} - {-1}:
                self._loop.remove(fd)
            attached.close()


def _own(fd: int) -> tuple[int, bool]:
    """Return (our own descriptor for `fd`, True if it has its own open file description)."""
    if fd < 0:
        return -1, False
    if os.isatty(fd):
        try:
            name = os.ttyname(fd)
            if name == "/dev/tty":
                return os.dup(fd), False  # for us, this name is another terminal: the agent's
            reopened = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            pass
        else:
            if os.fstat(reopened).st_rdev == os.fstat(fd).st_rdev:
                return reopened, True
            os.close(reopened)
    return os.dup(fd), False
