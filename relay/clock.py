"""A clock and timers that a test can replace; the ticks at which an idle process wakes up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

TICK = 5.0
"""Seconds between two ticks of a process. What is done now and then is done at a tick, together: most of what
it costs is that the process wakes up."""

LOOK = 60.0
"""Seconds between two looks at a far moment of the wall clock: timers stand still while a machine sleeps."""

_PHASE = random.uniform(0, TICK)  # processes that were started together wake up one after the other


def until_tick(seconds: float) -> float:
    """Return the seconds from now until this process's tick that is nearest to `seconds` from now.

    Less than TICK is returned as it is.
    """
    if seconds < TICK:
        return seconds
    now = time.monotonic()  # the event loop's time
    return round((now + seconds - _PHASE) / TICK) * TICK + _PHASE - now


class Clock:
    """The monotonic clock, in seconds, and timers on the running loop."""

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `call` after `seconds`, unless the timer is cancelled."""
        return asyncio.get_running_loop().call_later(seconds, call)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)


class WallClock(Clock):
    """The time in seconds since the epoch, for what has to outlive the process, or comes from elsewhere."""

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return time.time()

    def look(self, due: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `call` at `due`, or earlier, after LOOK: look at the time, and call this again."""
        return self.later(min(max(due - self.now(), 0.0), LOOK), call)
