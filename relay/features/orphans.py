"""Reaps the processes that the session adopts: the orphans of rules, handlers and other helpers.

The session is a session leader and a subreaper (relay.shim.adoption), so its descendants are never taken for
the agent's.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

REAP_EVERY = 600.0
"""Seconds between two looks. Nobody else waits for a process that had ended before the last one."""


class Orphans:
    """Reaps ended children that nobody else waits for."""

    def __init__(self, look: float = REAP_EVERY) -> None:
        self._look = look

    async def run(self) -> None:
        before: set[int] = set()
        while True:
            await asyncio.sleep(self._look)
            ended = {pid for pid in _children() if _has_ended(pid)}
            for pid in before & ended:
                _reap(pid)
            before = ended - before


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # already reaped


def _children() -> set[int]:
    """Return this process's children; none where the system has no such list."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(map(int, task.read_text().split()))
        except OSError:
            continue  # the thread has ended
    return found


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False
