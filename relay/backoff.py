"""The waits between attempts that keep failing."""

from __future__ import annotations

from relay.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits in seconds: `first` after one failure, doubled after each further one, at most `last`.

    jitter: the least and largest random factor of a wait; with it, what failed together is retried apart.
    """

    first: float
    last: float
    jitter: tuple[float, float] = (1.0, 1.0)

    def wait(self, failures: int, chance: float = 0.0) -> float:
        """Return the wait after `failures` failures in a row. chance: a random number from 0 to 1."""
        least, most = self.jitter
        doubled = self.first * 2.0 ** min(failures - 1, 1000)  # 2.0**1024 overflows
        return min(doubled, self.last) * (least + (most - least) * chance)
