"""The waits between attempts that keep failing."""

from __future__ import annotations

import pytest

from relay.backoff import Backoff


def test_a_wait_doubles_up_to_the_last_one() -> None:
    backoff = Backoff(0.5, 6.0)
    assert [backoff.wait(failures) for failures in (1, 2, 3, 4, 5, 5000)] == [0.5, 1, 2, 4, 6, 6]


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 16), (0.5, 20), (1.0, 24)])
def test_jitter_is_a_range_of_factors(chance: float, wait: float) -> None:
    assert Backoff(10.0, 60.0, (0.8, 1.2)).wait(2, chance) == pytest.approx(wait)
