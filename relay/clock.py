"""The clock of an event loop, as those use it whose time a test moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Clock:
    """The monotonic clock, in seconds, and timers on the running loop."""

    def now(self) -> float:
        """Return the time."""
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Have `call` called after so many seconds, unless the timer is cancelled."""
        return asyncio.get_running_loop().call_later(seconds, call)

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        await asyncio.sleep(seconds)
