"""Advisory file locks between processes (flock(2)): held by a descriptor, released when its last holder dies.

On the path to the agent's first byte, so this module imports neither pathlib nor contextlib (10 ms).
"""

from __future__ import annotations

import fcntl
import os
import time

from relay.errors import HomeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    StrPath = str | os.PathLike[str]

_LOCK_EVERY = 0.005  # seconds between two attempts to take a lock that is held


def open_lock(path: StrPath) -> int:
    """Return a descriptor (close-on-exec) of the lock file `path`, created 0600. Raise HomeError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HomeError(
            f"cannot open the lock file {os.fspath(path)}: {error.strerror}. "
            "Make its directory writable, or set RELAY_HOME to a directory you own."
        ) from None


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_lock(descriptor: int, seconds: float | None = None, *, shared: bool = False) -> bool:
    """Take the lock within `seconds` (None: forever), blocking the thread; return True if it was taken."""
    if seconds is None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOCK_EVERY)
    return True


def is_held(path: StrPath) -> bool:
    """Return True if some process holds `path` exclusively, or may hold it: the file cannot be opened.

    Return False for a missing file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # such as EMFILE
        return True
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


class locked:
    """Hold the lock file `path` for a block. Raise HomeError if it is not free within `seconds`.

    None waits forever.
    """

    def __init__(self, path: StrPath, seconds: float | None = None, *, shared: bool = False) -> None:
        self._path = path
        self._seconds = seconds
        self._shared = shared
        self._descriptor = -1

    def __enter__(self) -> None:
        self._descriptor = open_lock(self._path)
        if not wait_lock(self._descriptor, self._seconds, shared=self._shared):
            os.close(self._descriptor)
            raise HomeError(
                f"another process has held {os.fspath(self._path)} for {self._seconds:.0f} s. "
                "Try again; `fuser` on the file shows the process."
            )

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
