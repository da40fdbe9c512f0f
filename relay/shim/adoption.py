"""Adoption of processes whose parents have ended (PR_SET_CHILD_SUBREAPER of prctl(2); Linux only).

A descendant of the agent that outlives its parents becomes a child of the shim instead of init, so walking
up its ancestors (relay.control.lineage) still finds the agent, even after a double fork or setsid(2).  The
shim reaps such orphans and otherwise leaves them alone.  Without this call, as on macOS, init adopts them.
"""

from __future__ import annotations

import os
import sys

from relay.shim import signals as signal

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


def adopt_orphans() -> None:
    """Make this process a subreaper: from now on, it adopts descendants whose parents exit."""
    if bool(sys.platform == "linux"):
        try:
            # These are what `ctypes` calls; importing it takes 2 ms more, in which an agent could escape.
            from _ctypes import call_function, dlopen, dlsym

            own = dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]
            call_function(dlsym(own, "prctl"), (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        except (ImportError, OSError):
            pass  # an unusual Python: init adopts orphans, and they are not recognized as the agent's


def release_stopped(pid: int, number: int, agent: int) -> None:
    """Treat the adopted child `pid`, stopped by signal `number`, as the kernel treats an orphan.

    agent: the agent's process group; we act as its shell. We are the terminal's session leader.

    No shell could continue an orphaned process group, so the kernel lets neither a key nor terminal access
    from the background stop it (POSIX.1-2017, 2.4.3, and 11.1.4: a read fails with EIO, which ends most
    programs). But as our child, `pid` does not count as orphaned.
    """
    try:
        group = os.getpgid(pid)
        if number == signal.SIGSTOP or group == agent or _has_shell(group):
            return
        if number != signal.SIGTSTP:
            os.killpg(group, signal.SIGHUP)
        os.killpg(group, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        pass


def _has_shell(group: int) -> bool:
    """Return True if a process of `group` has a parent, other than us, in another group of our session."""
    us = os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _lineage(int(entry))) is not None and found[1] == group:
            parent = _lineage(found[0])
            if parent is not None and found[0] != us and parent[1] != group and parent[2] == us:
                return True
    return False


def _lineage(pid: int) -> tuple[int, int, int] | None:
    """Return the parent, process group and session of `pid`; None if it has ended, even as a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # pid (comm) state ppid pgrp session ...: comm may contain spaces and parentheses
            state, parent, group, session = stat.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    if state in b"ZX":
        return None
    return int(parent), int(group), int(session)
