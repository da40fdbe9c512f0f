"""Whose process is at the other end of a TCP connection on this machine: the user's, an agent's, or unknown.

TCP has no SO_PEERCRED. On Linux, /proc/net/tcp has the inode of the other end's socket (proc_net_tcp(5)), and
/proc/PID/fd the processes that hold it; relay.control.lineage says whose these are.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from enum import StrEnum

from relay.control.caller import agent_of
from relay.control.lineage import ancestors, because, belongs_to_an_agent, complete, unknown
from relay.dataclass import dataclass
from relay.home import Home


class Whose(StrEnum):
    USER = "user"
    AGENT = "agent"
    UNKNOWN = "unknown"  # another user's process, one that has ended, or a system that does not say


@dataclass(frozen=True, slots=True)
class TcpPeer:
    """A process at the other end. pid: 0 if unknown. agent: the agent's name, if it is of the server's home.

    why: what it is an agent's for, and the way out.
    """

    whose: Whose
    pid: int = 0
    agent: str = ""
    why: str = ""


UNKNOWN = TcpPeer(Whose.UNKNOWN)

Address = tuple[str, int]
"""A host (of IPv4) and a port."""

_MAPPED = "0" * 16 + f"{socket.htonl(0xFFFF):08X}"  # ::ffff:0:0/96, of IPv4 addresses in IPv6


def peer_of(home: Home, client: Address, server: Address) -> TcpPeer:
    """Return the process at `client`, the other end of a connection to this server, which is at `server`."""
    if bool(sys.platform != "linux"):
        return UNKNOWN
    inode = _inode(client, server)
    holders, hidden = _holders(inode) if inode else ([], [])
    if _inode(client, server) != inode:
        return UNKNOWN  # it has ended
    found = [_whose(home, pid) for pid in holders or hidden]
    if agents := [each for each in found if each.whose is Whose.AGENT and holders]:
        return agents[0]
    return found[0] if found and all(each.whose is Whose.USER for each in found) else UNKNOWN


def _whose(home: Home, pid: int) -> TcpPeer:
    pids = ancestors(pid)
    if (own := agent_of(home, pids)) is not None:
        return TcpPeer(Whose.AGENT, pid, own.name, because(own.name, own.through))
    if above := next(filter(belongs_to_an_agent, pids), 0):
        return TcpPeer(Whose.AGENT, pid, why=because("an agent of another home", above))
    if not complete(pids) or unknown(home, pids):
        return TcpPeer(Whose.UNKNOWN, pid)
    return TcpPeer(Whose.USER, pid)


def _inode(client: Address, server: Address) -> int:
    """Return the inode of this user's socket that is connected from `client` to `server`, 0 if none is."""
    for table, prefix in (("tcp", ""), ("tcp6", _MAPPED)):
        ends = " ".join(f"{prefix}{_word(host)}:{port:04X}" for host, port in (client, server))
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as rows:
            for row in rows:
                if f" {ends} " in row:
                    _, _, _, _, _, _, _, user, _, inode, *_ = row.split()
                    return int(inode) if int(user) == os.getuid() else 0
    return 0


def _word(host: str) -> str:
    """Return an address as /proc/net has it: a number in the machine's own byte order."""
    (word,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{word:08X}"


def _holders(inode: int) -> tuple[list[int], list[int]]:
    """Return the processes that are seen to hold the socket, and this user's whose descriptors are hidden.

    The part of sshd that forwards ports is one of the latter, as it has had other rights (proc_pid(5)).
    """
    link, seen, holders, hidden = f"socket:[{inode}]", set[str](), list[int](), list[int]()
    while fresh := {name for name in os.listdir("/proc") if name.isdigit()} - seen:  # noqa: PTH208
        seen |= fresh  # a holder may have forked, and ended, since the last look
        for name in fresh:
            holds = _holds(name, link)
            if holds:
                holders.append(int(name))
            elif holds is None and _is_own(name):
                hidden.append(int(name))
    return holders, hidden


def _holds(pid: str, link: str) -> bool | None:
    """Return True if the process has a descriptor of `link`; None if that cannot be seen."""
    folder = f"/proc/{pid}/fd"
    try:
        for fd in os.listdir(folder):  # noqa: PTH208 (much quicker)
            with suppress(FileNotFoundError):
                if os.readlink(f"{folder}/{fd}") == link:  # noqa: PTH115
                    return True
    except PermissionError:
        return None
    except OSError:
        pass  # it has ended
    return False


def _is_own(pid: str) -> bool:
    """Return True if the process may be this user's: one of its user ids is."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
        for line in status:
            if line.startswith(b"Uid:"):
                return str(os.getuid()).encode() in line.split()[1:]
    return False
