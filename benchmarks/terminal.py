"""The terminal in which relay and its rivals run: it reads as fast as it can."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

COLUMNS, ROWS = 120, 40
READ_SIZE = 1 << 16


class Terminal:
    """`argv` in a new terminal. started: when the process was forked, in monotonic seconds."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self.started = time.monotonic()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(directory)
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
                os.execvpe(argv[0], list(argv), dict(env))
            finally:
                os._exit(127)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up, as closing a window does; kill the program if it survives that."""
        os.close(self.master)
        for number, patience in ((signal.SIGHUP, 1.0), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return
                time.sleep(0.01)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def read(self, timeout: float) -> bytes:
        """Return the next output, b"" at the end. Raise TimeoutError after `timeout` seconds of silence."""
        if not select.select([self.master], [], [], timeout)[0]:
            raise TimeoutError(f"the program said nothing for {timeout:g} s")
        try:
            return os.read(self.master, READ_SIZE)
        except OSError:  # EIO on Linux: nobody has the terminal open any longer
            return b""

    def drain(self, timeout: float) -> tuple[int, float]:
        """Read to the end. Return (bytes, seconds since the start). Raise TimeoutError after `timeout`."""
        size = 0
        with _deadline(timeout):
            try:
                while data := os.read(self.master, READ_SIZE):
                    size += len(data)
            except OSError as error:
                if error.errno != errno.EIO:  # Linux: nobody has the terminal open any longer
                    raise
        return size, time.monotonic() - self.started

    def until(self, text: bytes, timeout: float) -> bytes:
        """Return the output up to `text` and whatever came with it. Raise TimeoutError as `read` does."""
        seen = b""
        while text not in seen:
            data = self.read(timeout)
            if not data:
                raise EOFError(f"the program ended without {text!r}; it said {seen[-300:]!r}")
            seen += data
        return seen

    def skip(self, seconds: float) -> None:
        """Read and discard output for `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                if not self.read(left):
                    raise EOFError("the program ended early")

    def write(self, data: bytes) -> None:
        os.write(self.master, data)


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after `seconds`, without an extra system call for each read."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"the program has not ended within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
