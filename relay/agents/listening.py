"""When to read an agent's growing record."""

from __future__ import annotations

import asyncio


class Listening:
    """The time until which the agent's own record is worth reading."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._until = 0.0

    def until(self, time: float) -> None:
        self._until = time
        self._begun.set()

    async def begun(self) -> None:
        await self._begun.wait()

    def over(self, now: float) -> bool:
        """Return True if the time is over; `begun` then waits for the next `until`."""
        if now >= self._until:
            self._begun.clear()
        return now >= self._until
