"""The ledger's clock: seconds since the epoch that never jump while the machine runs.

Deadlines in the ledger are compared with it, so that a wall clock that is set an hour forward expires
nothing, and one that is set back delays nothing.  It is the time since the machine was started (which goes on
while it sleeps), plus an offset that the ledger keeps: all processes of a home read the same clock.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

LATEST_EVERY = 3600.0
"""Seconds between two notes of the time; not at each opening, which would fail on a full disk."""

# Linux counts what it slept through (clock_gettime(2)); macOS does so under the other name.
_SINCE_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4)


def open_clock(db: sqlite3.Connection) -> float:
    """The offset to add to `since_boot`, kept in `db`, within the caller's transaction."""
    boot, offset, latest = db.execute("SELECT boot, offset, latest FROM meta").fetchone()
    here = boot_id()
    if boot != here:  # the machine was started anew; a clock that has lost its time must not take us back
        offset = max(time.time(), latest) - since_boot()
        # `latest` may be old: what was due by then, or soon after, is.
        db.execute("UPDATE outbox SET due = min(due, ?) WHERE due IS NOT NULL", (since_boot() + offset,))
    now = since_boot() + offset
    if boot != here or now - latest > LATEST_EVERY:
        db.execute("UPDATE meta SET boot = ?, offset = ?, latest = ?", (here, offset, now))
    return float(offset)


def since_boot() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(_SINCE_BOOT)


def boot_id() -> str:
    """Which start of the machine this is."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: to the hour, so that the wall clock's small corrections change nothing
        return str(round((time.time() - since_boot()) / 3600))
