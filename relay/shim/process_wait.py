"""The kernel's view of what a program waits for (Linux only).

A process that sleeps in read(2) on its terminal has printed everything it had to print. The kernel knows this
within a microsecond; silence alone would take a quarter of a second. /proc/PID/task/TID/syscall shows the
system call a thread sleeps in, with its arguments (proc_pid_syscall(5)); a process may read its descendants'.
Part of the shim: this imports little.
"""

from __future__ import annotations

import os
import re
import sys
from enum import Enum
from functools import lru_cache

MAX_PROCESSES = 64
"""Maximum number of processes of the foreground group to examine."""

# System call numbers (arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h).
_CALLS = {
    "x86_64": {
        "read": {0, 19},  # read, readv
        "epoll": {232, 281, 441},  # epoll_wait, epoll_pwait, epoll_pwait2
        "poll": {7, 23, 270, 271, 426},  # poll, select, pselect6, ppoll, io_uring_enter
    },
    "aarch64": {"read": {63, 65}, "epoll": {22, 441}, "poll": {72, 73, 426}},
}
_TFD = re.compile(r"^tfd:\s*(\d+)", re.MULTILINE)
_SLEEPING = re.compile(r"^State:\s*S", re.MULTILINE)
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)


class Wait(Enum):
    READ = "read"  # sleeps in a read of its terminal
    POLL = "poll"  # sleeps in poll, select or epoll, possibly for its terminal
    BUSY = "busy"  # computes, or waits for something else
    UNKNOWN = "unknown"  # the system does not report it


class Waiting:
    """The wait of a foreground group.

    nap:   for READ, the thread and its count of voluntary context switches. An equal nap later is the same
           sleep: nothing typed in between has been read.
    alone: for READ, True if the thread is the process's only one; another might still be printing.
    """

    __slots__ = ("alone", "nap", "wait")

    def __init__(self, wait: Wait, nap: tuple[int, int] | None = None, alone: bool = True) -> None:
        self.wait = wait
        self.nap = nap
        self.alone = alone

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Waiting):
            return NotImplemented
        return (self.wait, self.nap, self.alone) == (other.wait, other.nap, other.alone)

    def __hash__(self) -> int:
        return hash((self.wait, self.nap, self.alone))


LONG_QUIET, SCREEN_QUIET = 2.0, 0.5
"""Seconds without output after which a program counts as waiting for input: if the kernel does not report
its wait, and if it polls, as full-screen programs do.

Real agents are silent when idle, and animate at least every 0.6 s in a dialog and every 0.1 s at work.
"""

_NEEDED = {Wait.READ: LONG_QUIET, Wait.POLL: SCREEN_QUIET, Wait.UNKNOWN: LONG_QUIET}

UNKNOWN = Waiting(Wait.UNKNOWN)
BUSY = Waiting(Wait.BUSY)
POLL = Waiting(Wait.POLL)


def may_be_hidden() -> bool:
    """Return True if the system reports what a process waits for, but possibly only to its ancestors."""
    return _calls() is not None


def waits_for_input(looked: Waiting, quiet: float) -> bool:
    """Return True if a program that has printed nothing for `quiet` seconds seems to wait for input."""
    if looked.wait is Wait.READ and looked.alone:
        return True
    return quiet >= _NEEDED.get(looked.wait, float("inf"))


def look(group: int) -> Waiting:
    """Return the wait of a process group, judged by its leader and the leader's descendants in it."""
    calls = _calls()
    if calls is None:
        return UNKNOWN
    try:
        terminal = _terminal(group)
    except (OSError, ValueError, IndexError):
        return UNKNOWN
    best = BUSY
    processes, known = [group], {group}
    while processes:
        pid = processes.pop()
        try:
            threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
            for tid in threads:
                found = _thread(pid, tid, terminal, calls)
                if found.wait is Wait.READ:
                    return Waiting(found.wait, found.nap, len(threads) == 1)
                if found.wait is Wait.POLL:
                    best = found
            for child in _children(pid, threads):
                if child not in known and len(known) < MAX_PROCESSES and os.getpgid(child) == group:
                    known.add(child)
                    processes.append(child)
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended
        except OSError:
            return UNKNOWN  # another user's process, as under sudo
    return best


def _thread(pid: int, tid: int, terminal: int, calls: dict[str, set[int]]) -> Waiting:
    words = _read(f"/proc/{pid}/task/{tid}/syscall").split()
    if len(words) < 2 or not words[0].isdigit():  # "running", or "-1 SP PC" outside a system call
        return BUSY
    number, descriptor = int(words[0]), int(words[1], 16)
    if number in calls["read"] and _is_terminal(pid, descriptor, terminal):
        status = _read(f"/proc/{pid}/task/{tid}/status")
        switches = _SWITCHES.search(status)
        if not _SLEEPING.search(status):
            return BUSY  # stopped during its read, as by Ctrl-Z
        return Waiting(Wait.READ, (tid, int(switches[1]) if switches else 0))
    if number in calls["poll"]:
        return POLL
    if number in calls["epoll"]:
        targets = _TFD.findall(_read(f"/proc/{pid}/fdinfo/{descriptor}"))
        # An epoll may watch another epoll; we don't follow that one.
        if any(_is_terminal(pid, int(target), terminal) or _is_epoll(pid, int(target)) for target in targets):
            return POLL
    return BUSY


@lru_cache(maxsize=1)
def _calls() -> dict[str, set[int]] | None:
    """Return the system call numbers of this machine; None if they are unknown or the kernel hides calls."""
    if sys.platform != "linux" or not os.path.exists("/proc/self/syscall"):
        return None
    return _CALLS.get(os.uname().machine)


def _terminal(pid: int) -> int:
    """Return the device number of the controlling terminal of `pid` (tty_nr of proc_pid_stat(5))."""
    stat = _read(f"/proc/{pid}/stat")
    number = int(stat[stat.rindex(")") + 2 :].split()[4])
    return os.makedev((number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00))


def _is_terminal(pid: int, descriptor: int, terminal: int) -> bool:
    try:
        device = os.stat(f"/proc/{pid}/fd/{descriptor}").st_rdev
    except FileNotFoundError:
        return False
    return device in (terminal, os.makedev(5, 0))  # /dev/tty has its own number


def _is_epoll(pid: int, descriptor: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}") == "anon_inode:[eventpoll]"
    except FileNotFoundError:
        return False


def _children(pid: int, threads: list[int]) -> list[int]:
    """Return the children of every thread of `pid`; none if the kernel lacks CONFIG_PROC_CHILDREN."""
    found: list[int] = []
    for tid in threads:
        try:
            found += map(int, _read(f"/proc/{pid}/task/{tid}/children").split())
        except FileNotFoundError:
            continue
    return found


def _read(path: str) -> str:
    """Return the content of a /proc file. Runs before each text is typed: pathlib is too slow."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(descriptor, 1 << 16)]
        while pieces[-1]:
            pieces.append(os.read(descriptor, 1 << 16))
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode("utf-8", "replace")
