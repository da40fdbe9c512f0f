"""Advisory file locks between processes (flock(2)): held by a descriptor, gone when its last holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from relay.errors import BrokerError

_POLL = 0.005  # seconds between two tries of a lock that somebody else holds


def open_lock(path: Path) -> int:
    """A descriptor (close-on-exec) of the lock file `path`, created 0600; BrokerError where that fails."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BrokerError(
            f"cannot open the lock file {path}: {error.strerror}. "
            "Make its directory writable, or set RELAY_HOME to a directory of yours."
        ) from None


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Whether the lock could be taken at once."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_lock(descriptor: int, seconds: float, *, shared: bool = False) -> bool:
    """Whether the lock could be taken within `seconds`. Blocks the calling thread."""
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def is_held(path: Path) -> bool:
    """Whether some process holds `path` exclusively. A missing file is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, seconds: float, *, shared: bool = False) -> Iterator[None]:
    """Hold `path`'s lock for a block; BrokerError when it is not free within `seconds`."""
    descriptor = open_lock(path)
    try:
        if not wait_lock(descriptor, seconds, shared=shared):
            raise BrokerError(
                f"another process has held {path} for {seconds:.0f} s. "
                "Wait for it, or see with `relay broker status` what is running."
            )
        yield
    finally:
        os.close(descriptor)
