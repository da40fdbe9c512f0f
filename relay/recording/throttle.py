"""Decides how much of a session's output is recorded: a flood is left out."""

from __future__ import annotations

RATE, BURST = 256 * 1024, 512 * 1024
"""Bytes of output recorded per second in the long run, and at once."""

FLOOD = 1 << 14
"""Bytes at once that count as part of a flood."""

FAST = 1 << 20
"""Bytes left out between two calls of `has_slowed` (one second) while a flood continues."""

CALM = 0.2
"""Seconds without much output after which a flood is over."""


class Throttle:
    """A budget of output, in bytes; `now` is in seconds.

    last:     the time of the last output.
    left_out: bytes left out since recording paused.
    """

    def __init__(self, now: float) -> None:
        self.last = self._filled = now
        self.left_out = 0
        self._flooded = -CALM
        self._budget = float(BURST)
        self._before = 0  # bytes left out until the last `has_slowed`

    def is_calm(self, now: float) -> bool:
        """Return True if there was no output for a moment."""
        return now - self.last >= CALM

    def is_flood(self, now: float) -> bool:
        """Return True while recorded output arrives in large pieces."""
        return now - self._flooded < CALM

    def takes(self, size: int, now: float) -> bool:
        """Return True if `size` bytes of output are recorded; count them as left out otherwise."""
        self._budget = min(self._budget + (now - self._filled) * RATE, BURST)
        self._filled = now
        if self.left_out or size > self._budget:
            self.left_out += size
            return False
        self._budget -= size
        if size >= FLOOD:
            self._flooded = now
        return True

    def has_slowed(self) -> bool:
        """Return True if little was left out since the last call."""
        came, self._before = self.left_out - self._before, self.left_out
        return came < FAST

    def resume(self) -> None:
        """Resume recording: nothing is left out from here on."""
        self.left_out = self._before = 0
