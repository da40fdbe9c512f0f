"""The process and the user at the other end of a Unix socket. Part of the shim: it imports little."""

from __future__ import annotations

import _socket
import errno
import os
import select
import struct
import sys

from relay.errors import HomeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    StrPath = str | os.PathLike[str]


def peer(fd: int) -> tuple[int, int]:
    """Return the peer's process id, 0 if unknown, and its user id."""
    own = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
    try:
        if bool(sys.platform == "linux"):
            size = struct.calcsize("3i")  # struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)
            pid, uid, _ = struct.unpack("3i", own.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, size))
            return pid, uid
        local_peercred, local_peerpid, sol_local = 1, 2, 0  # <sys/un.h>: struct xucred: version, uid, ...
        credentials = own.getsockopt(sol_local, local_peercred, 8)
        return own.getsockopt(sol_local, local_peerpid), struct.unpack("2I", credentials)[1]
    finally:
        own.detach()  # `fd` stays the caller's


_SO_PEERPIDFD = 77  # <asm-generic/socket.h>; Linux 6.5


def lives(fd: int) -> bool:
    """Return False if the process that `peer` names has ended, so that its id may be another's by now.

    Return True where the system cannot say: on macOS, and before Linux 6.5.
    """
    if bool(sys.platform != "linux"):
        return True
    own = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
    try:
        process = own.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:  # the process has ended: ESRCH or EINVAL, depending on the kernel
        return error.errno == errno.ENOPROTOOPT
    finally:
        own.detach()
    try:
        ended = select.poll()
        ended.register(process, select.POLLIN)  # pidfd_open(2)
        return not ended.poll(0)
    finally:
        os.close(process)


def connect(channel: _socket.socket, path: StrPath) -> None:
    """Connect to the socket at `path`. Raise OSError, and HomeError if another user is listening there."""
    channel.connect(os.fspath(path))
    if peer(channel.fileno())[1] != os.getuid():
        channel.close()
        raise HomeError(
            f"another user is listening at {os.fspath(path)}; nothing was sent. "
            "Set RELAY_HOME to a directory you own."
        )
