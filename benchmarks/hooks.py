"""The cost of the bridge to an agent: the time of one hook call."""

from __future__ import annotations

import json
import statistics

from benchmarks.bench import Bench, wait_until
from benchmarks.table import Figure

_TIMEOUT = 120


def hook(bench: Bench) -> list[Figure]:
    """The round trip of the command that agents call as their hook, from one of the agent's processes"""
    results = bench.directory / "hook.json"
    rounds = 20 if bench.quick else 200
    program = bench.program("hooked", results, rounds, *bench.command)
    with bench.detached("hooked", program, "--agent", "claude"):
        wait_until(results.exists, _TIMEOUT, "the calls of the hook to end")
    seconds = json.loads(results.read_text(encoding="utf-8"))
    results.unlink()
    ms = {name: statistics.median(values) * 1000 for name, values in seconds.items()}
    ratio = ms["client"] / ms["bare"]
    return [
        Figure(
            "hook round trip",
            "≤ 2 × python -S",
            f"{ms['client']:.1f} ms",
            f"python -S {ms['bare']:.1f} ms; `relay hook` {ms['relay']:.1f} ms",
            f"{ratio:.2f}",
            ratio <= 2,
        )
    ]
