"""Keys: how long the user waits for a key's echo, and for the agent's first byte."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks.bench import Bench, scripted, tmuxed
from benchmarks.table import Figure

CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FLOOD = 10_000_000
"""Bytes per second."""

PAUSES = (0.011, 0.017, 0.023, 0.029)
"""Seconds between two keys: without a common divisor, so that keys meet timers at every phase."""

_SETTLED = 1.5


def echo(bench: Bench) -> list[Figure]:
    """The echo of a key, in a program that is otherwise silent"""
    argv = bench.program("echo")
    rivals = {"relay": bench.wrapped(argv), "script": scripted(argv)}
    if shutil.which("tmux"):
        rivals["tmux"] = tmuxed(argv)
    return _figures(_rounds(bench, rivals, 100), "key echo", "≤ 1.2 × script", 1.2, (50, 90))


def echo_flood(bench: Bench) -> list[Figure]:
    """The echo of a key, while the program prints 10 MB/s and all of it is analysed"""
    argv = bench.program("echo", FLOOD)
    rivals = {"relay": bench.wrapped(argv), "script": scripted(argv)}
    return _figures(_rounds(bench, rivals, 100), "key echo at 10 MB/s", "≤ 2 × script", 2, (90, 50))


def first_byte(bench: Bench) -> list[Figure]:
    """From the start of the command to the first byte of the agent"""
    argv = ["echo", "hello"]
    rivals = {
        "relay": bench.wrapped(argv),
        "script": scripted(argv),
        "python -S": [sys.executable, "-S", "-c", "print('hello')"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(5 if bench.quick else 25):
        for name, command in rivals.items():
            with bench.terminal(command) as terminal:
                terminal.until(b"hello", 10)
                seconds[name].append(time.monotonic() - terminal.started)
                terminal.drain(10)
    middle = {name: statistics.median(values) * 1000 for name, values in seconds.items()}
    more = middle["relay"] - middle["script"]
    return [
        Figure(
            "first byte of the agent",
            "≤ script + 12 ms",
            f"{middle['relay']:.1f} ms",
            f"script {middle['script']:.1f} ms, python -S {middle['python -S']:.1f} ms",
            f"{more:+.1f} ms",
            more <= 12,
        )
    ]


def _rounds(bench: Bench, rivals: dict[str, list[str]], keys: int) -> dict[str, list[float]]:
    """Return the seconds of each echo; the rivals take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(1 if bench.quick else 3):
        for name, command in rivals.items():
            seconds[name] += _echoes(bench, command, keys)
    return seconds


def _echoes(bench: Bench, command: Sequence[str], keys: int) -> list[float]:
    seconds = []
    with bench.terminal(command) as terminal:
        terminal.until(b"READY", 10)
        terminal.skip(_SETTLED)
        for number in range(keys):
            key = CAPITALS[number % len(CAPITALS) :][:1]
            began = time.monotonic()
            terminal.write(key)
            terminal.until(key, 10)
            seconds.append(time.monotonic() - began)
            terminal.skip(PAUSES[number % len(PAUSES)])
        terminal.write(b"\x04")
        terminal.drain(10)
    return seconds


def _figures(
    seconds: dict[str, list[float]], what: str, goal: str, limit: float, percents: tuple[int, int]
) -> list[Figure]:
    """Return one figure per percentile; the goal applies to the first."""
    figures = []
    for percent in percents:
        values = {name: _percentile(each, percent) * 1e6 for name, each in seconds.items()}
        ratio = values["relay"] / values["script"]
        judged = percent == percents[0]
        figures.append(
            Figure(
                f"{what}, p{percent}",
                goal if judged else "",
                f"{values['relay']:.0f} µs",
                ", ".join(f"{name} {value:.0f} µs" for name, value in values.items() if name != "relay"),
                f"{ratio:.2f}",
                ratio <= limit if judged else None,
            )
        )
    return figures


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
