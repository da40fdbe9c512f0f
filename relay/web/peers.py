"""Whose process is at the other end of a TCP connection on this machine: the user's, an agent's, or unknown.

TCP has no SO_PEERCRED. On Linux, /proc/net/tcp has the inode of the other end's socket (proc_net_tcp(5)), and
/proc/PID/fd the processes that hold it; relay.control.lineage says whose these are.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum

from relay.control.caller import agent_of
from relay.control.lineage import ancestors, belongs_to_an_agent, complete, unknown
from relay.dataclass import dataclass
from relay.home import Home


class Whose(StrEnum):
    USER = "user"
    AGENT = "agent"
    UNKNOWN = "unknown"  # another user's process, one that has ended, or a system that does not say


@dataclass(frozen=True, slots=True)
class Peer:
    """pid: one of its processes, 0 if unknown. agent: the name of the agent, if any of its home is known."""

    whose: Whose
    pid: int = 0
    agent: str = ""


UNKNOWN = Peer(Whose.UNKNOWN)

_ESTABLISHED = "01"  # TCP_ESTABLISHED, <net/tcp_states.h>


def _words(family: socket.AddressFamily, address: str) -> str:
    """Return an address as /proc/net has it: words in the machine's own byte order."""
    packed = socket.inet_pton(family, address)
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


_TABLES = (
    ("tcp", _words(socket.AF_INET, "127.0.0.1")),
    ("tcp6", _words(socket.AF_INET6, "::ffff:127.0.0.1")),
)


def peer_of(home: Home, port: int, server_port: int) -> Peer:
    """Return the process that has connected from the local `port` to this server."""
    if bool(sys.platform != "linux"):
        return UNKNOWN
    inode = _inode(port, server_port)
    holders = [*_holders(inode)] if inode else []
    if not holders or _inode(port, server_port) != inode:
        return UNKNOWN  # it has ended, or is another user's
    found = [_whose(home, pid) for pid in holders]
    return next(
        (each for whose in (Whose.AGENT, Whose.UNKNOWN) for each in found if each.whose == whose), found[0]
    )


def _whose(home: Home, pid: int) -> Peer:
    pids = ancestors(pid)
    if (own := agent_of(home, pids)) is not None:
        return Peer(Whose.AGENT, pid, own.name)
    if any(map(belongs_to_an_agent, pids)):
        return Peer(Whose.AGENT, pid)
    if not complete(pids) or unknown(home, pids):
        return Peer(Whose.UNKNOWN, pid)
    return Peer(Whose.USER, pid)


def _inode(port: int, server_port: int) -> int:
    """Return the inode of the socket that is connected from `port` to the server, 0 if there is none."""
    for table, host in _TABLES:
        ends = f" {host}:{port:04X} {host}:{server_port:04X} {_ESTABLISHED} "
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as rows:
            for row in rows:
                if ends in row:
                    return int(row.split()[9])
    return 0


def _holders(inode: int) -> Iterator[int]:
    """Yield the processes that hold the socket, as far as this user may know."""
    link = f"socket:[{inode}]"
    for name in os.listdir("/proc"):  # noqa: PTH208 (much quicker)
        if name.isdigit() and _holds(name, link):
            yield int(name)


def _holds(pid: str, link: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return False  # another user's, or it has ended
    for fd in descriptors:
        with suppress(OSError):
            if os.readlink(f"{folder}/{fd}") == link:  # noqa: PTH115 (much quicker)
                return True
    return False
