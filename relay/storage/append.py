"""Appending a line to a file that several processes write, such as the journal.

Part of the shim: this imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os


def append(fd: int, line: bytes) -> None:
    """Append `line` in a single write, so that lines of several processes do not mix. Raise OSError.

    fd: opened with O_APPEND.
    """
    written = os.write(fd, line)
    if written < len(line):
        _take_back(fd, written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _take_back(fd: int, size: int) -> None:
    """Blank the `size` bytes that were just appended: part of an entry, on a full disk.

    Overwriting needs no space.  Do not truncate the file: another session may have appended an entry since.
    """
    end = os.lseek(fd, 0, os.SEEK_CUR)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_APPEND)  # pwrite(2) would append
    os.pwrite(fd, b" " * (size - 1) + b"\n", end - size)
