"""The user's terminal while a recording is played on it: raw, on its alternate screen, then as before.

    with PlayerTerminal(0, 1) as terminal:
        terminal.show(rows, cursor)       only what changed is written
        keys = terminal.keys(0.5)         what is typed within half a second

However the block is left, the terminal gets its modes, its cursor and its screen back.  Signals that would
end the process are noted in `killed` instead, and keys() returns at once.
"""

from __future__ import annotations

import os
import re
import select
import signal
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from relay.shim.pty import get_size, raw

ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
"""The alternate screen, no cursor, and no wrapping at the margin (xterm ctlseqs: 1049, DECTCEM, DECAWM)."""

LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_WAKING = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)

_KEY = re.compile(r"\x1b[\[O][0-9;]*([A-Za-z~])|(\x1b)(?![\[O])|([^\x1b])|\x1b.")
_NAMES = {"C": "right", "D": "left", "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace"}
_NAMES |= {"\b": "backspace", "\x03": "interrupt", "\x1a": "suspend"}

Cursor = tuple[int, int] | None
"""(x, y), zero-based; None: hidden."""


class PlayerTerminal:
    """The terminal that is read from `source` and written to `sink`, for the time of a `with` block.

    killed: the signal that asked this process to end, or 0.
    """

    def __init__(self, source: int, sink: int) -> None:
        self.killed = 0
        self._source = source
        self._sink = sink
        self._saved: list[Any] = []
        self._before: dict[int, Any] = {}
        self._stopping = False  # by SIGTSTP, as a job
        self._wake = (-1, -1)
        self._wakeup_before = -1
        self._shown: list[str] = []
        self._size = (0, 0)

    def __enter__(self) -> PlayerTerminal:
        self._wake = os.pipe()
        for fd in self._wake:
            os.set_blocking(fd, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        for number in (*ENDING, *_WAKING):
            self._before[number] = signal.signal(number, self._on_signal)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for fd in self._wake:
            os.close(fd)

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows) of the terminal now, 80x24 where it does not say."""
        found = get_size(self._sink)
        return (found[0], found[1]) if found else (80, 24)

    def show(self, rows: Sequence[str], cursor: Cursor) -> None:
        """Show `rows`, each safe to write and no wider than the terminal, and blanks below them."""
        if self.size != self._size:
            self._size, self._shown = self.size, []
            self._write(b"\x1b[0m\x1b[2J")
        height = self._size[1]
        wanted = [*rows[:height], *[""] * (height - len(rows))]
        shown = self._shown or [""] * height
        changed = [(y, row) for y, row in enumerate(wanted) if row != shown[y]]
        drawing = "".join(f"\x1b[{y + 1};1H\x1b[K{row}\x1b[0m" for y, row in changed)
        place = "\x1b[?25l" if cursor is None else f"\x1b[{cursor[1] + 1};{cursor[0] + 1}H\x1b[?25h"
        self._write((f"\x1b[?25l{drawing}{place}" if drawing else place).encode("utf-8", "replace"))
        self._shown = wanted

    def keys(self, timeout: float | None) -> list[str]:
        """Return what is typed within `timeout` seconds (None: wait): characters, and names of keys ("left").

        Return early and empty where a signal comes or the terminal changes its size.
        """
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        ready = dict(poll.poll(None if timeout is None else timeout * 1000))
        if self._wake[0] in ready:
            os.read(self._wake[0], 512)
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
        """Return True if there is a key to be read, or a signal has asked this process to end."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        return bool(self.killed or poll.poll(0))

    def suspend(self) -> None:
        """Stop this job as Ctrl-Z does, the terminal given back meanwhile; return when it goes on."""
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
        termios.tcsetattr(self._source, termios.TCSANOW, raw(self._saved))
        self._write(ENTER)

    def _give_back(self) -> None:
        self._write(LEAVE)
        if self._saved:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._source, termios.TCSANOW, self._saved)

    def _on_signal(self, number: int, _: object) -> None:
        if number in ENDING:
            self.killed = number
        elif number == signal.SIGTSTP:
            self._stopping = True
        elif number == signal.SIGCONT:  # after SIGSTOP, which nobody sees coming
            self._size = (0, 0)
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._source, termios.TCSANOW, raw(self._saved))

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._sink, data) :]
            except BlockingIOError:
                select.select([], [self._sink], [], 1.0)
                if self.killed:
                    return
            except OSError:  # hung up
                self.killed = self.killed or signal.SIGHUP
                return


def names(data: bytes) -> list[str]:
    """Return the keys in what a terminal sent: printable characters, and names of those in _NAMES."""
    found = []
    for key in _KEY.finditer(data.decode("utf-8", "replace")):
        text = key[1] or key[2] or key[3] or ""
        found.append(_NAMES.get(text, "") if key[3] is None or not text.isprintable() else text)
    return [name for name in found if name]
