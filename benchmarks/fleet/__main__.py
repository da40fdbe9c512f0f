"""Measure how relay scales: fleets of 10 to 500 simulated agents, 60 real sessions, and a soak.

Prints the tables and writes them into docs/BENCHMARKS.md, which explains the figures. Everything runs in
temporary homes, is bounded in time, and leaves no process behind.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import table
from benchmarks.bench import bench
from benchmarks.fleet import phases, sessions
from benchmarks.fleet.phases import Fleet, Phase
from benchmarks.fleet.sessions import Sessions

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"
SIZES, QUICK_SIZES = (10, 50, 100, 250, 500), (10, 50)
SESSIONS, QUICK_SESSIONS = 60, 5
ROUNDS = 20  # each session talks to this many others
SOAK_SECONDS, QUICK_SOAK_SECONDS = 60, 10

PARTS = ("agents", "sessions", "soak")
ROWS: dict[str, Callable[[Fleet], str]] = {
    "connect storm: all connected": lambda fleet: f"{fleet.connected:.1f} s",
    "presence storm: every agent knows all others": lambda fleet: f"{fleet.presence:.1f} s",
    "idle: processor time per agent": lambda fleet: f"{fleet.idle_cpu / fleet.size:.3%} of a core",
    f"chat at {phases.CHAT_RATE:.0f}/s: p50, p99": lambda fleet: _delays(fleet.chat),
    "all at once: messages per second": lambda fleet: f"{fleet.burst.rate:.0f}",
    "all at once: processor time per message": lambda fleet: f"{fleet.burst.cpu * 1e3:.1f} ms",
    "broadcast from one to all: p50, p99": lambda fleet: _delays(fleet.broadcast),
    "memory per agent (PSS)": lambda fleet: f"{fleet.agent_memory:.1f} MB",
    "memory of the broker (PSS)": lambda fleet: f"{fleet.broker_memory:.0f} MB",
}


def main(argv: list[str] | None = None) -> int:
    options = _parse(argv)
    quick = options.quick
    sizes = options.size or (QUICK_SIZES if quick else SIZES)
    begun = time.monotonic()
    blocks, failures = [], 0
    fleets: list[Fleet] = []
    real: list[Sessions] = []

    def agents() -> str:
        fleets.extend(_fleet(size, quick) for size in sizes)
        return fleet_table(fleets)

    def run_sessions() -> str:
        real.append(_sessions(QUICK_SESSIONS if quick else SESSIONS, quick))
        return sessions_table(real[0])

    parts: dict[str, Callable[[], str]] = {
        "agents": agents,
        "sessions": run_sessions,
        "soak": lambda: _soak(QUICK_SOAK_SECONDS if quick else SOAK_SECONDS),
    }
    for title in options.only or PARTS:
        make = parts[title]
        print(f"{title} ...", file=sys.stderr, flush=True)
        try:
            blocks.append(make())
        except (RuntimeError, TimeoutError, AssertionError) as error:
            failures += 1
            print(f"fleet: {title}: {error}", file=sys.stderr)
        else:
            print(f"\n{blocks[-1]}\n", flush=True)
    if reached := goals_table(fleets, real):
        blocks.insert(0, reached)
        print(f"\n{reached}\n", flush=True)
    print(f"{time.monotonic() - begun:.0f} s in all.", file=sys.stderr)
    target = options.write or (None if quick or options.size or options.only else PAGE)
    if target is not None and not failures:
        text = "\n\n".join([*blocks, f"{table.machine()} Made by `make bench-fleet`."])
        try:
            table.write(target, text, "fleet")
        except (OSError, ValueError) as error:
            print(f"The tables were not written: {error}", file=sys.stderr)
            return 1
        print(f"Written to {target}.")
    return 1 if failures else 0


def fleet_table(fleets: Sequence[Fleet]) -> str:
    """Return a Markdown table with a column for each size."""
    rows = [["simulated agents", *(str(fleet.size) for fleet in fleets)]]
    rows += [[what, *(cell(fleet) for fleet in fleets)] for what, cell in ROWS.items()]
    return _markdown(rows)


def goals_table(fleets: Sequence[Fleet], real: Sequence[Sessions]) -> str:
    """Return a Markdown table of the goals whose sizes were measured; "" if there are none."""
    rows: list[tuple[str, str, str, bool]] = []
    for fleet in fleets:
        if fleet.size == 100:
            rate, cpu = fleet.burst.rate, fleet.burst.cpu * 1e3
            rows += [
                (
                    "100 simulated agents, all at once: messages per second",
                    "≥ 700",
                    f"{rate:.0f}",
                    rate >= 700,
                ),
                ("processor time per message", "≤ 1.9 ms", f"{cpu:.1f} ms", cpu <= 1.9),
            ]
        if fleet.size == 250:
            each, seconds = fleet.announced / fleet.size, fleet.connected
            rows += [
                ("250 simulated agents: announcements per agent", "≤ 5", f"{each:.1f}", each <= 5),
                ("all connected", "≤ 10 s", f"{seconds:.1f} s", seconds <= 10),
            ]
    for found in real:
        if found.size != SESSIONS:
            continue
        cpu, idle = found.to_one_cpu * 1e3, found.all_idle_cpu
        rows += [
            (
                f"{found.size} sessions to one: messages per second",
                "≥ 220",
                f"{found.to_one:.0f}",
                found.to_one >= 220,
            ),
            ("processor time per message", "≤ 6 ms", f"{cpu:.1f} ms", cpu <= 6),
            ("processor time of all processes when idle", "≤ 3% of a core", f"{idle:.1%}", idle <= 0.03),
        ]
    marked = [[what, goal, reached, "yes" if met else "no"] for what, goal, reached, met in rows]
    return _markdown([["what", "goal", "reached", "met"], *marked]) if rows else ""


def sessions_table(found: Sessions) -> str:
    """Return a Markdown table with a row for each figure."""
    return _markdown(
        [
            [f"{found.size} real sessions", ""],
            ["memory of a session (PSS)", f"{found.memory:.1f} MB"],
            ["memory of the broker (PSS)", f"{found.broker_memory:.0f} MB"],
            ["processor time of an idle session", f"{found.idle_cpu:.2%} of a core"],
            [f"{found.count} directives, each to several others: p50", _milliseconds(found.p50)],
            ["p99", _milliseconds(found.p99)],
            [f"{found.to_one_count} directives from all to one: messages per second", f"{found.to_one:.0f}"],
            ["processor time per message, shims and agents included", f"{found.to_one_cpu * 1e3:.1f} ms"],
            ["processor time of all processes when idle", f"{found.all_idle_cpu:.1%} of a core"],
        ]
    )


def _fleet(size: int, quick: bool) -> Fleet:
    print(f"  {size} agents", file=sys.stderr, flush=True)
    with bench(quick) as own:
        return phases.measure(own, size)


def _sessions(size: int, quick: bool) -> Sessions:
    with bench(quick) as own:
        return sessions.measure(own, size, min(ROUNDS, size - 1))


def _soak(seconds: int) -> str:
    """Return the account of tests/messaging/soak.py. Raise RuntimeError if any message is unaccounted for."""
    run = subprocess.run(
        [sys.executable, ROOT / "tests" / "messaging" / "soak.py", "--seconds", str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + 180,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(run.stdout)
    return f"A soak, with everything killed at random:\n\n```\n{run.stdout.strip()}\n```"


def _delays(phase: Phase) -> str:
    return f"{_milliseconds(phase.p50)}, {_milliseconds(phase.p99)}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small fleets, five sessions, a short soak")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--size", type=int, action="append", metavar="N", help="only fleets of N agents")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help=f"where to write (default: {PAGE.name}, of a whole run)"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
