"""Adoption of processes whose parents have ended (PR_SET_CHILD_SUBREAPER of prctl(2); Linux only).

A descendant of the agent that outlives its parents becomes the shim's child, not that of init.  So whoever
walks up its ancestors (relay.control.caller) still finds the agent: neither a double fork nor setsid(2) hides
it.  It is waited for, and left alone.  Where there is no such call, as on macOS, it becomes a child of init.
"""

from __future__ import annotations

import os
import sys

from relay.shim import signals as signal

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


def adopt_orphans() -> None:
    """Make this process the next parent of its descendants whose own parents end from now on."""
    if bool(sys.platform == "linux"):
        try:
            # What `ctypes` itself calls; to import that takes 2 ms more, in which an agent could get away.
            from _ctypes import call_function, dlopen, dlsym

            own = dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]
            call_function(dlsym(own, "prctl"), (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        except (ImportError, OSError):
            pass  # its own Python: an orphan is init's, and not known for the agent's


def release_stopped(pid: int, number: int, agent: int) -> None:
    """Do for the adopted child `pid`, which signal `number` stopped, what the kernel does for an orphan.

    agent: the agent's process group, which has us for its shell. We lead the terminal's session.

    No shell could continue an orphaned process group, so the kernel lets no key and no access from the
    background stop it (POSIX.1-2017, 2.4.3, and 11.1.4: a read fails with EIO, which mostly ends a program).
    But as a child of ours it does not count as orphaned.
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
    """Return True if a process of `group` has a parent, not us, in another group of our session."""
    us = os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _lineage(int(entry))) is not None and found[1] == group:
            parent = _lineage(found[0])
            if parent is not None and found[0] != us and parent[1] != group and parent[2] == us:
                return True
    return False


def _lineage(pid: int) -> tuple[int, int, int] | None:
    """Return the parent, the process group and the session of `pid`, None if it has ended.

    A zombie has ended: the kernel does not count it either.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # pid (comm) state ppid pgrp session ...: comm may hold spaces and parentheses
            state, parent, group, session = stat.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    if state in b"ZX":
        return None
    return int(parent), int(group), int(session)
