"""Kills a process with everything that it has started, including daemons and processes in other sessions."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

MARK = "RELAY_HOOK_RUN"
"""The environment variable that marks the processes of a run, even those that have lost their parent."""

_ROUNDS = 50  # searches for more processes of a tree, each after stopping those found so far
_REAPING = 5.0  # seconds to wait for the killed process to end
_DEAD = frozenset({b"Z", b"X"})  # states of proc(5)


def kill(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill `process`, a session leader, with everything that came from it, and reap it.

    Block until then, at most `_REAPING` seconds. Stop all of the processes first, so that none can fork or
    lose its parent during the search. A process that has left its session, its parent and its environment is
    not found; without /proc, only the process group is killed.
    """
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        found = _tree(process.pid, mark) - stopped
        if not found:
            break
        for pid in found:
            _signal(os.kill, pid, signal.SIGSTOP)
        stopped |= found
    _signal(os.killpg, process.pid, signal.SIGKILL)
    for pid in stopped:
        _signal(os.kill, pid, signal.SIGKILL)
    try:
        process.wait(_REAPING)
    except subprocess.TimeoutExpired:
        pass  # it hangs in the kernel, and ends as soon as the kernel lets it


def _signal(send: Callable[[int, int], None], pid: int, number: signal.Signals) -> None:
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended, or runs as another user (sudo)


def _tree(root: int, mark: str) -> set[int]:
    """Return the living processes that come from `root`; without /proc, only `root`.

    They are its descendants, the members of its session, and those with `mark` in their environment.
    """
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    found = [root]
    marked = f"{MARK}={mark}".encode()
    for pid in (int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            # After the name, which may contain anything: state, parent, group, session (proc(5)).
            state, parent, _, session = stat[stat.rindex(b")") + 2 :].split(maxsplit=4)[:4]
            if state in _DEAD:
                continue
            alive.add(pid)
            children.setdefault(int(parent), []).append(pid)
            if int(session) == root or marked in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except (OSError, ValueError):
            continue  # it has ended, or belongs to another user
    tree: set[int] = set()
    while found:
        pid = found.pop()
        if pid not in tree:
            tree.add(pid)
            found += children.get(pid, ())
    return tree & (alive or {root})
