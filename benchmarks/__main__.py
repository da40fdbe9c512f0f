"""Compare relay with other programs, print the table, and write it into docs/BENCHMARKS.md.

Each figure is a median of alternating runs on one machine; docs/BENCHMARKS.md explains them. Everything runs
in a temporary home and leaves no process behind.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import footprint, hooks, injections, keys, messages, output, starts, table
from benchmarks.bench import Bench, bench
from benchmarks.table import Figure

PAGE = Path(__file__).parent.parent / "docs" / "BENCHMARKS.md"


ROWS: dict[str, Callable[[Bench], list[Figure]]] = {
    "cat": output.cat,
    "coloured": output.coloured,
    "echo": keys.echo,
    "echo-flood": keys.echo_flood,
    "first-byte": keys.first_byte,
    "commands": starts.commands,
    "session-start": starts.session,
    "mcp": starts.tools,
    "shell-again": starts.back_in_shell,
    "latency": messages.latency,
    "burst": messages.burst,
    "blocked": output.blocked,
    "back": footprint.back,
    "memory": footprint.memory,
    "idle": footprint.idle_cpu,
    "stream": footprint.stream,
    "hook": hooks.hook,
    "injection": messages.injection,
    "injection-cost": injections.cost,
}


def main(argv: list[str] | None = None) -> int:
    options = _parse(argv)
    if options.list:
        for name, measure in ROWS.items():
            print(f"{name:<14} {(measure.__doc__ or '').strip()}")
        return 0
    names = options.only or list(ROWS)
    target = options.write or (None if options.only or options.quick else PAGE)
    figures, failures = run(names, options.quick)
    machine = table.machine()
    print(f"\n{table.plain(figures)}\n\n{machine}")
    if target is not None and not failures:
        try:
            table.write(target, table.markdown(figures, machine))
        except (OSError, ValueError) as error:
            print(f"The table was not written: {error}", file=sys.stderr)
            return 1
        print(f"Written to {target}.")
    return 1 if failures else 0


def run(names: list[str], quick: bool) -> tuple[list[Figure], int]:
    """Measure the rows `names`. Return their figures, including failed rows, and the number of failures."""
    figures: list[Figure] = []
    failures = 0
    with bench(quick) as own:
        for name in names:
            started = time.monotonic()
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            try:
                figures += ROWS[name](own)
            except Exception as error:  # noqa: BLE001 (shown in the table; the other rows still run)
                failures += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                figures.append(Figure(name, "", "FAILED", ok=False))
            print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return figures, failures


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the rows and end")
    parser.add_argument("--only", action="append", choices=list(ROWS), metavar="ROW", help="only this row")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="where to write (default: docs/BENCHMARKS.md, of a whole run)",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
