"""A clock and timers that a test can replace; the ticks at which an idle process wakes up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

TICK = 5.0
"""Seconds between two ticks of a process. Periodic work is done together, at a tick: most of its cost is
waking up the process."""

WALL_CHECK_EVERY = 60.0
"""Seconds between two checks for a distant wall-clock time: timers stop while a machine sleeps."""

_PHASE = random.uniform(0, TICK)  # spreads out the wake-ups of processes that start together


def until_tick(seconds: float) -> float:
    """Return the seconds until the tick of this process that is nearest to `seconds` from now.

    A value below TICK is returned unchanged.
    """
    if seconds < TICK:
        return seconds
    now = time.monotonic()  # the event loop's time
    return round((now + seconds - _PHASE) / TICK) * TICK + _PHASE - now


class Clock:
    """The monotonic clock, in seconds, and timers on the running loop."""

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `call` after `seconds`, unless the timer is cancelled."""
        return asyncio.get_running_loop().call_later(seconds, call)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WallClock(Clock):
    """The time in seconds since the epoch, for times that outlive the process or come from outside it."""

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return time.time()

    def look(self, due: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `call` at `due`, at most WALL_CHECK_EVERY from now, to check the time and call this again."""
        return self.later(min(max(due - self.now(), 0.0), WALL_CHECK_EVERY), call)
