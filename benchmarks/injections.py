"""The cost of injecting one hook's text: relay's own work, without waiting for the agent."""

from __future__ import annotations

import asyncio
import statistics
import time
from types import SimpleNamespace
from typing import cast

from benchmarks.bench import Bench
from benchmarks.table import Figure
from relay.eventbus import EventBus
from relay.features.injection_audit import InjectionAudit
from relay.injection import layout
from relay.injection.audit_log import AuditLog
from relay.injection.budget import Budget
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.queue import InjectionQueue
from relay.injection.reply_delivery import ReplyDelivery
from relay.state.view import AgentView
from relay.storage.journal import Journal

GOAL = 10.0
"""Milliseconds."""

_FINDING = "src/config.py:42:101: E501 Line too long (113 > 100), after `password = settings.get('key')`\n"
_SIZES = {"a 200-byte finding": 200, "10 KB": layout.MAX_HOOK_BYTES}


def cost(bench: Bench) -> list[Figure]:
    """One hook's text: checked, laid out, counted, and logged without secrets; relay's share of the time"""
    rounds = 50 if bench.quick else 500
    return [
        _figure(name, sorted(asyncio.run(_milliseconds(bench, size, rounds))))
        for name, size in _SIZES.items()
    ]


async def _milliseconds(bench: Bench, size: int, rounds: int) -> list[float]:
    """Return the time of each round except the first, which loads the search for secrets."""
    bus = EventBus()
    journal = Journal(bench.directory / "events.jsonl", "bench", "A")
    log = AuditLog(bench.directory / "audit.jsonl", "bench", "A", "bench", full=True)
    bus.add(InjectionAudit(bus, journal, log, Budget(1000)))
    text = (_FINDING * (size // len(_FINDING) + 1))[:size]
    queue = InjectionQueue(bus, time.monotonic)
    view = cast(AgentView, SimpleNamespace(given=lambda end: None))
    delivery = ReplyDelivery(queue, view, layout.DIRECTIVE)
    found = []
    for number in range(rounds + 1):
        begun = time.perf_counter()
        queue.submit(
            Injection(str(number), text, "ruff", "hook", event="PostToolUse", role="system", time=time.time())
        )
        (taken,) = await delivery.take(2 * layout.MAX_HOOK_BYTES, extends=False, messages=True)
        delivery.render([taken])
        delivery.end(taken)
        queue.end(taken, Outcome(Result.INJECTED, "", "native", "system", "printed"))
        if number:
            found.append((time.perf_counter() - begun) * 1000)
    return found


def _figure(name: str, milliseconds: list[float]) -> Figure:
    p50, p99 = statistics.median(milliseconds), milliseconds[int(len(milliseconds) * 0.99)]
    return Figure(
        f"relay's own work per injection, {name}",
        f"≤ {GOAL:.0f} ms",
        f"{p50:.1f} ms (p99 {p99:.1f} ms)",
        ok=p50 <= GOAL,
    )
