"""Output: how long `cat` of a large file takes, and how long a program's writes block."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence

from benchmarks.bench import Bench, scripted, tmuxed, wait_until
from benchmarks.table import Figure

LINE = b"a line of plain text, as cat prints it from some log or other source file\n"
COLOURED = (
    b"\x1b[2m12:00:00.123\x1b[0m \x1b[1;34mINFO\x1b[0m \x1b[36mmodule.name\x1b[0m: "
    b"a line of a log \x1b[32mok\x1b[0m 42 \x1b[38;5;208mms\x1b[0m\n"
)
SETTLE = 1.0
"""Seconds until a session has loaded everything."""


def cat(bench: Bench) -> list[Figure]:
    """`cat` of 200 MB in an attached session"""
    size = 20_000_000 if bench.quick else 200_000_000
    return [_cat(bench, f"`cat` of {size // 1_000_000} MB, attached", LINE, size, 1.3)]


def coloured(bench: Bench) -> list[Figure]:
    """`cat` of 60 MB of coloured log lines in an attached session, to the end of the command"""
    size = 20_000_000 if bench.quick else 60_000_000
    what = f"`cat` of {size // 1_000_000} MB of coloured log lines, attached"
    return [_cat(bench, what, COLOURED, size, 1.4)]


def _cat(bench: Bench, what: str, line: bytes, size: int, most: float) -> Figure:
    lines = size // len(line)
    path = bench.directory / "file"
    with path.open("wb") as file:
        for _ in range(lines // 1000):
            file.write(line * 1000)
    lines -= lines % 1000
    argv = ["cat", str(path)]
    rivals = {"relay": bench.wrapped(argv), "script": scripted(argv)}
    if shutil.which("tmux"):
        rivals["tmux"] = tmuxed(argv)
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(2 if bench.quick else 5):
        for name, command in rivals.items():
            if name == "tmux" and len(seconds[name]) == 2:
                continue  # slow, and only here for comparison
            with bench.terminal(command) as terminal:
                taken, spent = terminal.drain(60)
            # The terminal turns each newline into two bytes; tmux shows only what it has time for.
            if name != "tmux" and taken < lines * (len(line) + 1):
                raise AssertionError(f"{name} showed {taken} bytes of {lines * (len(line) + 1)}")
            seconds[name].append(spent)
    path.unlink()
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = middle["relay"] / middle["script"]
    rival = ", ".join(f"{name} {value:.2f} s" for name, value in middle.items() if name != "relay")
    goal, taken_ = f"≤ {most:g} × script", f"{middle['relay']:.2f} s"
    return Figure(what, goal, taken_, rival, f"{ratio:.2f}", ratio <= most)


def blocked(bench: Bench) -> list[Figure]:
    """How long the writes of a program take that writes 16 MB"""
    size = 16 * 1024 * 1024
    seconds: dict[str, list[float]] = {"bare": [], "attached": [], "detached": [], "script": []}
    for number in range(2 if bench.quick else 5):
        for name, values in seconds.items():
            report = bench.directory / f"written-{name}-{number}"
            argv = bench.program("writer", report, size, SETTLE)
            if name == "detached":
                bench.start(f"writer-{number}", argv)
                wait_until(report.exists, 60, "a detached program's 16 MB")
            else:
                _attached(bench, name, argv)
            values.append(float(report.read_text(encoding="ascii")))
    bare = statistics.median(seconds.pop("bare"))
    figures = []
    for name in ("attached", "detached"):
        middle = statistics.median(seconds[name])
        other = statistics.median(seconds["script"])
        figures.append(
            Figure(
                f"time to write 16 MB, {name}",
                "≤ 1.5 × bare PTY",
                f"{middle * 1000:.0f} ms",
                f"bare PTY {bare * 1000:.0f} ms, script {other * 1000:.0f} ms",
                f"{middle / bare:.2f}",
                middle / bare <= 1.5,
            )
        )
    return figures


def _attached(bench: Bench, name: str, argv: Sequence[str]) -> None:
    command = {"bare": argv, "attached": bench.wrapped(argv), "script": scripted(argv)}[name]
    with bench.terminal(command) as terminal:
        terminal.drain(60)
