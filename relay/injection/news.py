"""The last event that may allow a delivery, and a way to wait for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class News:
    """The last event; tasks wait for the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._come = asyncio.Event()

    @property
    def age(self) -> float:
        """Seconds since the last event."""
        return self._clock() - self._at

    def notice(self) -> None:
        self._at = self._clock()
        self._come.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the next event, at most `seconds`."""
        self._come.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._come.wait()
