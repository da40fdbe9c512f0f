"""read(2) and write(2) on descriptors that never block, without releasing the interpreter's lock.

os.read and os.write release the lock and take it back; while another thread computes, taking it back waits
for a switch interval.  A call that cannot block takes some microseconds, which is less.
"""

from __future__ import annotations

import ctypes
import os

_SIZE = 1 << 16

_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL, unlike CDLL, keeps the lock
_read = _libc.read
_read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_read.restype = ctypes.c_ssize_t
_write = _libc.write
_write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_write.restype = ctypes.c_ssize_t


class DirectReader:
    """Reads into a buffer of its own, for one thread."""

    def __init__(self) -> None:
        buffer = bytearray(_SIZE)
        self._view = memoryview(buffer)
        self._place = (ctypes.c_char * _SIZE).from_buffer(buffer)

    def __call__(self, fd: int, size: int) -> bytes:
        """Return up to `size` bytes, at most 64 KB, as os.read does; `fd` must not block."""
        count = _read(fd, self._place, min(size, _SIZE))
        if count < 0:
            raise _error()
        return bytes(self._view[:count])


def write(fd: int, data: bytes) -> int:
    """Write as os.write does; `fd` must not block."""
    count: int = _write(fd, data, len(data))
    if count < 0:
        raise _error()
    return count


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
