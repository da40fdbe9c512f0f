"""The user's terminal while relay draws on it: in raw mode, and restored afterwards.

    with Canvas(0, 1) as canvas:
        canvas.show(rows, cursor)         writes only what changed
        keys = canvas.keys(0.5)           what the user types within half a second

However the block exits, it restores the terminal's modes, cursor and screen.  Signals that would end the
process set `killed` instead, and keys() returns at once.
"""

from __future__ import annotations

import os
import re
import select
import signal
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from relay.shim.pty import get_size, raw

ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
"""The alternate screen, no cursor, and no wrapping at the margin (xterm ctlseqs: 1049, DECTCEM, DECAWM)."""

LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_WAKING = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)

_PIECE = 4096
"""Bytes that a terminal takes without blocking when poll(2) reports it writable."""

_UNKNOWN = "\0"
"""Stands for a row whose content on the terminal is unknown."""

_KEY = re.compile(r"\x1b[\[O][0-9;]*([A-Za-z~])|(\x1b)(?![\[O])|([^\x1b])|\x1b.")
_NAMES = {"C": "right", "D": "left", "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace"}
_NAMES |= {"\b": "backspace", "\x03": "interrupt", "\x1a": "suspend", "\x1d": "ctrl-]"}

Cursor = tuple[int, int] | None
"""(x, y), zero-based; None: hidden."""


class Canvas:
    """The terminal read from `source` and written to `sink`, for the duration of a `with` block.

    alternate: draw on its alternate screen, leaving no trace; else on the primary one, below its content.
    killed:    the signal that asked this process to end, or 0.
    """

    def __init__(self, source: int, sink: int, *, alternate: bool = True) -> None:
        self.killed = 0
        self._source = source
        self._sink = sink
        self._saved: list[Any] = []
        self._signals = _Signals(self._on_signal)
        self._stopping = False  # by SIGTSTP, as a job
        self._shown: list[str] = []
        self._size = (0, 0)
        self._alternate = alternate
        self._below = 0 if alternate else 1  # the last row of our drawing on the primary screen; 0: none
        self._rescue: Rescue | None = None

    def __enter__(self) -> Canvas:
        self._signals.handle()
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        self._signals.restore()
        if self._rescue is not None:
            self._rescue.close()

    def survive(self, rescue: Rescue) -> None:
        """Let `rescue` restore the terminal if this process is killed. Call this before the block."""
        self._rescue = rescue

    @property
    def size(self) -> tuple[int, int]:
        """The terminal's current (columns, rows), or 80x24 if unknown."""
        found = get_size(self._sink)
        return (found[0], found[1]) if found else (80, 24)

    def use_alternate(self, alternate: bool) -> None:
        """Draw on the alternate screen from now on, or on the primary one."""
        if alternate != self._alternate:
            if alternate:
                self._below = self._free_row()
            self._alternate = alternate
            self._note()
            self._write(b"\x1b[?1049h" if alternate else b"\x1b[?1049l")
            self._size = (0, 0)

    def show(self, rows: Sequence[str], cursor: Cursor, above: Sequence[str] = ()) -> None:
        """Show `rows`, each safe to write and no wider than the terminal, and blank rows below them.

        above: rows that have scrolled off since the last call, for the primary screen's scrollback.
        """
        drawing = []
        if self.size != self._size:
            self._size, self._shown = self.size, []
            drawing.append("\x1b[0m\x1b[2J" if self._alternate else "\x1b[0m\x1b[H\x1b[J")
        height = self._size[1]
        for start in range(0, 0 if self._alternate else len(above), height):
            piece = above[start : start + height]
            drawing += [f"\x1b[{y + 1};1H\x1b[K{row}\x1b[0m" for y, row in enumerate(piece)]
            drawing.append(f"\x1b[{height};1H" + "\n" * len(piece))
            self._shown = [_UNKNOWN] * height
        wanted = [*rows[:height], *[""] * (height - len(rows))]
        shown = self._shown or [""] * height
        changed = [(y, row) for y, row in enumerate(wanted) if row != shown[y]]
        drawing += [f"\x1b[{y + 1};1H\x1b[K{row}\x1b[0m" for y, row in changed]
        place = "\x1b[?25l" if cursor is None else f"\x1b[{cursor[1] + 1};{cursor[0] + 1}H\x1b[?25h"
        text = f"\x1b[?25l{''.join(drawing)}{place}" if drawing else place
        self._write(text.encode("utf-8", "replace"))
        self._shown = wanted

    def keys(self, timeout: float | None, also: int = -1) -> list[str]:
        """Return what is typed within `timeout` seconds (None: wait): characters, and names of keys ("left").

        Return early and empty on a signal, when the terminal is resized, or when `also` becomes readable.
        """
        poll = select.poll()
        for fd in {self._source, self._signals.read, also} - {-1}:
            poll.register(fd, select.POLLIN)
        ready = dict(poll.poll(None if timeout is None else timeout * 1000))
        if self._signals.read in ready:
            os.read(self._signals.read, 512)
        if self._stopping:
            self._stopping = False
            return ["suspend"]
        if self._source not in ready:
            return []
        try:
            data = os.read(self._source, 4096)
        except OSError:
            data = b""
        if not data:
            self.killed = self.killed or signal.SIGHUP
        return names(data)

    def typed(self) -> bool:
        """Return True if there is a key to read, or a signal has asked this process to end."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        return bool(self.killed or poll.poll(0))

    def suspend(self) -> None:
        """Give the terminal back and stop this job as Ctrl-Z does; return when the job continues."""
        self._give_back()
        jobs = (signal.SIGTSTP, signal.SIGCONT)
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in jobs}
        os.killpg(0, signal.SIGTSTP)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        self._take()

    def _take(self) -> None:
        self._shown, self._size = [], (0, 0)
        self._saved = list(termios.tcgetattr(self._source))
        self._note()
        termios.tcsetattr(self._source, termios.TCSANOW, raw(self._saved))
        if self._below:
            # Scroll the primary screen's content, without blank rows, into its scrollback.
            self._write(b"\n" * self.size[1] + b"\x1b[?25l\x1b[?7l\x1b[0m")
            self._below = 1
        if self._alternate:
            self._write(ENTER)

    def _give_back(self) -> None:
        if not self._alternate:
            self._below = self._free_row()
        self._write(leave(self._alternate, self._below))
        if self._saved:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._source, termios.TCSANOW, self._saved)
        if self._rescue is not None:
            self._rescue.note(Rescue.IDLE)

    def _note(self) -> None:
        if self._rescue is not None:
            self._rescue.note(Rescue.ALTERNATE if self._alternate else Rescue.PRIMARY)

    def _free_row(self) -> int:
        """Return the number (from 1) of the last row that we have drawn on the primary screen."""
        return max((y + 1 for y, row in enumerate(self._shown) if row), default=1)

    def _on_signal(self, number: int, _: object) -> None:
        if number in ENDING:
            self.killed = number
        elif number == signal.SIGTSTP:
            self._stopping = True
        elif number == signal.SIGCONT:  # after SIGSTOP, which cannot be caught
            self._size = (0, 0)
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._source, termios.TCSANOW, raw(self._saved))

    def _write(self, data: bytes) -> None:
        while data:
            try:
                if select.select([], [self._sink], [], 0.2)[1]:
                    data = data[os.write(self._sink, data[:_PIECE]) :]
            except BlockingIOError:
                pass  # the terminal takes no more after all
            except OSError:  # hung up
                self.killed = self.killed or signal.SIGHUP
                return
            if self.killed and not select.select([], [self._sink], [], 0)[1]:
                return


class _Signals:
    """The signals that a canvas handles, and a descriptor, `read`, that becomes readable at each."""

    def __init__(self, handler: Callable[[int, object], None]) -> None:
        self.read = self._write = self._wakeup_before = -1
        self._handler = handler
        self._before: dict[int, Any] = {}

    def handle(self) -> None:
        self.read, self._write = os.pipe()
        for fd in (self.read, self._write):
            os.set_blocking(fd, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*ENDING, *_WAKING):
            self._before[number] = signal.signal(number, self._handler)

    def restore(self) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.read)
        os.close(self._write)


class Rescue:
    """A process that restores a terminal if the process that draws on it is killed (SIGKILL)."""

    IDLE, PRIMARY, ALTERNATE = b"i", b"p", b"a"

    def __init__(self, source: int, sink: int) -> None:
        saved = list(termios.tcgetattr(source))
        read, self._write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._write)
                self._watch(read, source, sink, saved)
            finally:
                os._exit(0)
        os.close(read)

    def note(self, state: bytes) -> None:
        """Tell the rescue process which screen this process draws on now."""
        with suppress(OSError):  # the rescue process was killed
            os.write(self._write, state)

    def close(self) -> None:
        """End the process; the terminal has been restored."""
        os.close(self._write)
        os.waitpid(self._pid, 0)

    @classmethod
    def _watch(cls, read: int, source: int, sink: int, saved: list[Any]) -> None:
        for number in (*ENDING, signal.SIGTSTP, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        state = cls.IDLE
        while data := os.read(read, 64):
            state = data[-1:]
        # A shell may have noticed first and set its own modes.
        if state != cls.IDLE and termios.tcgetattr(source) == raw(saved):
            termios.tcsetattr(source, termios.TCSANOW, saved)
            if select.select([], [sink], [], 1.0)[1]:
                _, rows, *_ = get_size(sink) or (80, 24)
                os.write(sink, leave(state == cls.ALTERNATE, rows))


def leave(alternate: bool, below: int) -> bytes:
    """Return the sequence that restores the terminal. below: as in Canvas."""
    undo = LEAVE if alternate else LEAVE.removesuffix(b"\x1b[?1049l")
    return undo + (b"\x1b[%d;1H\r\n" % below if below else b"")


def names(data: bytes) -> list[str]:
    """Return the keys in a terminal's input: printable characters, and names from _NAMES."""
    found = []
    for key in _KEY.finditer(data.decode("utf-8", "replace")):
        text = key[1] or key[2] or key[3] or ""
        found.append(_NAMES.get(text, "") if key[3] is None or not text.isprintable() else text)
    return [name for name in found if name]
