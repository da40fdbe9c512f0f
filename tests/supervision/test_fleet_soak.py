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
    """The soak takes six seconds, and three minutes in `make test-long`."""
    seconds = "180" if LONG else "6"
    run = subprocess.run(
        [sys.executable, SOAK, "--seconds", seconds],
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
