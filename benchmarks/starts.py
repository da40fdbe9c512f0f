"""Starts: of commands, of a session, and how soon the user has their shell back."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.bench import Bench
from benchmarks.footprint import cpu_seconds, pss
from benchmarks.table import Figure
from relay.control.sessions import call, find_claim
from relay.errors import RelayError
from relay.home import Home

_BARE = [sys.executable, "-S", "-c", "pass"]


def commands(bench: Bench) -> list[Figure]:
    """Whole commands: `relay --version`; `ps` with one agent; `send` to an agent that is not running"""
    bench.start("absent", ["cat"])
    bench.relay("stop", "absent")
    goals = {("--version",): 2.5, ("ps",): 5.0, ("send", "absent", "hello"): 8.0}
    taken: dict[tuple[str, ...], list[tuple[float, float]]] = {(): [], **{each: [] for each in goals}}
    with bench.detached("present", ["cat"], "-t", "other"):
        for _ in range(5 if bench.quick else 25):
            for words, each in taken.items():
                each.append(spent(bench, [*bench.command, *words] if words else _BARE))
    middle = {
        words: (statistics.median(wall for wall, _ in each), statistics.median(cpu for _, cpu in each))
        for words, each in taken.items()
    }
    figures = []
    for words, goal in goals.items():
        wall, cpu = (mine / bare for mine, bare in zip(middle[words], middle[()], strict=True))
        figures.append(
            Figure(
                f"`relay {words[0]}`",
                f"≤ {goal:g} × python -S",
                _figures(middle[words]),
                f"python -S {_figures(middle[()])}",
                f"{wall:.2f} (CPU {cpu:.2f})",
                max(wall, cpu) <= goal,
            )
        )
    return figures


def session(bench: Bench) -> list[Figure]:
    """Processor time of a session until it is ready"""
    seconds, bare = [], []
    for number in range(3 if bench.quick else 11):
        bare.append(spent(bench, _BARE)[1])
        name = f"start-{number}"
        begun = subprocess.Popen(
            [*bench.command, "wrap", "-d", "-n", name, "--", "cat"],
            env=bench.env,
            cwd=bench.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not _is_ready(bench, name):
            pass  # each pause would count work that follows
        seconds.append(cpu_seconds(find_claim(Home.from_env(bench.env), name).pid or 0))
        begun.wait()
        bench.relay("stop", name)
    middle, unit = statistics.median(seconds), statistics.median(bare)
    return [
        Figure(
            "processor time of a session until it is ready",
            "≤ 20 × python -S",
            f"{middle * 1000:.0f} ms",
            f"python -S {unit * 1000:.1f} ms",
            f"{middle / unit:.1f}",
            middle <= 20 * unit,
        )
    ]


def tools(bench: Bench) -> list[Figure]:
    """From the start of `relay mcp` until it has answered `initialize`, and its memory then"""
    request = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\n'
    seconds, sizes, bare = [], [], []
    for _ in range(5 if bench.quick else 25):
        bare.append(spent(bench, _BARE)[0])
        started = time.monotonic()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(
            [*bench.command, "mcp"], env=bench.env, cwd=bench.directory, bufsize=0, **pipes
        ) as server:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(request)
            if b'"result"' not in server.stdout.readline():
                raise RuntimeError("relay mcp does not answer")
            seconds.append(time.monotonic() - started)
            sizes.append(pss(server.pid))
            server.stdin.close()
    middle, unit, size = map(statistics.median, (seconds, bare, sizes))
    return [
        Figure(
            "`relay mcp` ready",
            "≤ 150 ms",
            f"{middle * 1000:.1f} ms",
            f"python -S {unit * 1000:.1f} ms",
            f"{middle / unit:.2f}",
            middle <= 0.15,
        ),
        Figure("its memory (PSS)", "≤ 15 MB", f"{size:.1f} MB", ok=size <= 15),
    ]


def back_in_shell(bench: Bench) -> list[Figure]:
    """From the end of a short command until `relay wrap` returns"""
    ended = bench.directory / "ended"
    figures = []
    for what, goal in (("a command without output", 0.1), ("a command with output", None)):
        seconds = []
        for _ in range(3 if bench.quick else 11):
            words = [ended, *([] if goal else ["hello"])]
            with bench.terminal(bench.wrapped(bench.program("ended", *words))) as terminal:
                terminal.drain(10)
                end = os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOWAIT)
                returned = time.monotonic()
            if end is None or end.si_status != 3:
                raise RuntimeError(f"{what}: the exit code is lost")
            seconds.append(returned - float(ended.read_text(encoding="ascii")))
        middle = statistics.median(seconds)
        figures.append(
            Figure(
                f"shell again after {what}",
                "≤ 0.1 s" if goal else "",
                f"{middle * 1000:.0f} ms",
                ok=middle <= goal if goal else None,
            )
        )
    return figures


def _is_ready(bench: Bench, name: str) -> bool:
    try:
        return bool(call(find_claim(Home.from_env(bench.env), name).shim, {"op": "status"})["ready"])
    except RelayError:
        return False


def spent(bench: Bench, command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its seconds by the clock, and those of the processors. It must succeed."""
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env=bench.env,
        cwd=bench.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime


def _figures(taken: tuple[float, float]) -> str:
    return "{:.1f} ms (CPU {:.1f})".format(*(1000 * each for each in taken))
