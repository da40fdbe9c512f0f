"""An idle process does its periodic work at common ticks."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from relay.clock import TICK, until_tick


@given(st.lists(st.floats(TICK, 3600), min_size=2))
def test_periodic_work_is_due_at_common_ticks(periods: list[float]) -> None:
    """Each at the tick nearest to the requested time."""
    before = time.monotonic()
    waits = [until_tick(period) for period in periods]
    late = time.monotonic() - before
    for period, wait in zip(periods, waits, strict=True):
        assert period - TICK / 2 - late <= wait <= period + TICK / 2
        apart = (wait - waits[0] + TICK / 2) % TICK - TICK / 2
        assert abs(apart) <= late + 1e-6


@given(st.floats(0, TICK, exclude_max=True))
def test_work_due_before_the_next_tick_is_not_delayed(seconds: float) -> None:
    assert until_tick(seconds) == seconds
