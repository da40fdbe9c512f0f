"""Waits for the processes that the session adopts: the orphans of rules, handlers and other helpers.

The session is a session leader and adopts orphans (relay.shim.adoption), so that what it starts, and what
that starts, is never taken for the agent's.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

LOOK = 600.0
"""Seconds between two looks. A process that ended before the last one has nobody who waits for it."""


class Orphans:
    """Reaps ended children of which nobody else takes notice."""

    def __init__(self, look: float = LOOK) -> None:
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
        pass  # someone has just waited for it


def _children() -> set[int]:
    """Return our children; none where the system has no such list."""
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
