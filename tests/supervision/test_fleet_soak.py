"""A fleet recovers from crashes, kills, stops and restarts at random."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import LONG

SOAK = Path(__file__).parent / "fleet_soak.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fleet_recovers_from_random_faults() -> None:
    """Four agents have them for two seconds; in `make test-long`, eight for three minutes."""
    seconds, agents = ("180", "8") if LONG else ("2", "4")
    run = subprocess.run(
        [sys.executable, SOAK, "--seconds", seconds, "--agents", agents],
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
