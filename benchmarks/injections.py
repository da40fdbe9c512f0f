"""The cost of one text of a hook: relay's own work, without waiting for the agent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.table import Figure
from relay.injection import layout
from relay.injection.audit_log import AuditLog
from relay.injection.backlog import Backlog
from relay.injection.budget import Budget
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.reply_delivery import Ride
from relay.session.auditing import Audit
from relay.storage.journal import Journal

GOAL = 10.0
"""Milliseconds."""

_FINDING = "src/config.py:42:101: E501 Line too long (113 > 100), after `password = settings.get('key')`\n"
_SIZES = {"a finding of 200 bytes": 200, "10 KB": layout.MAX_HOOK_BYTES}


def cost(bench: Bench) -> list[Figure]:
    """One hook's text: checked, laid out, counted, and written down without secrets; the processor's share"""
    rounds = 50 if bench.quick else 500
    return [_figure(name, sorted(_milliseconds(bench, size, rounds))) for name, size in _SIZES.items()]


def _milliseconds(bench: Bench, size: int, rounds: int) -> Iterator[float]:
    """Yield the time of each round but the first, which loads the search for secrets."""
    audit = Audit(
        Journal(bench.directory / "events.jsonl", "bench", "A"),
        AuditLog(bench.directory / "audit.jsonl", "bench", "A", "bench", full=True),
        Budget(1000, lambda text: None),
        lambda text, *, level="info", source="": None,
    )
    text = (_FINDING * (size // len(_FINDING) + 1))[:size]
    waiting = Backlog(lambda injection: None, audit.ended, time.monotonic)
    ride = Ride(waiting, layout.DIRECTIVE, lambda end: None)
    for number in range(rounds + 1):
        begun = time.perf_counter()
        given = Injection(
            str(number), text, "ruff", "hook", event="PostToolUse", role="system", time=time.time()
        )
        layout.check(given)
        waiting.add(given)
        taken = ride.take(2 * layout.MAX_HOOK_BYTES, extends=False, messages=True)
        ride.render(taken)
        ride.end(given)
        audit.ended(given, Outcome(Result.INJECTED, "", "native", "system", "printed"))
        if number:
            yield (time.perf_counter() - begun) * 1000


def _figure(name: str, milliseconds: list[float]) -> Figure:
    p50, p99 = statistics.median(milliseconds), milliseconds[int(len(milliseconds) * 0.99)]
    return Figure(
        f"relay's own work for one injection, {name}",
        f"≤ {GOAL:.0f} ms",
        f"{p50:.1f} ms (p99 {p99:.1f} ms)",
        ok=p50 <= GOAL,
    )
