"""A clock and timers that a test can replace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


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
