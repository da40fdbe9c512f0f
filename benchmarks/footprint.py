"""The cost of an idle session and its shim (memory, CPU time), and how fast a killed session restarts."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bench import PROGRAMS, Bench
from benchmarks.table import Figure
from relay.control.sessions import call, find_claim
from relay.home import Home

SESSIONS, IDLE_SESSIONS = 3, 10
FRAMES = 60
"""A second."""

_SETTLED = 3.0
_IMPORTS = "import asyncio, sqlite3, aiomqtt, relay.session.session, time; print(flush=True); time.sleep(60)"


def memory(bench: Bench) -> list[Figure]:
    """Memory (PSS) of a session and of its shim without the ring, with three of each running"""
    with idle_sessions(bench) as pids:
        sizes = [pss(pid) for pid, _ in pids]
        shims = [pss(pid) for _, pid in pids]
    imports = subprocess.Popen([sys.executable, "-c", _IMPORTS], stdout=subprocess.PIPE)
    with imports:
        assert imports.stdout is not None
        imports.stdout.readline()
        alone = pss(imports.pid)
        imports.kill()
    middle = statistics.median(sizes)
    return [
        Figure(
            "memory of a session (PSS)",
            "≤ 30 MB",
            f"{middle:.1f} MB",
            f"its imports alone {alone:.1f} MB",
            f"{middle / alone:.2f}",
            middle <= 30,
        ),
        Figure(
            "memory of its shim (PSS, without the ring's 8 MB)",
            "≤ 6 MB",
            f"{statistics.median(shims):.1f} MB",
            ok=statistics.median(shims) <= 6,
        ),
    ]


def idle_cpu(bench: Bench) -> list[Figure]:
    """Processor time of a session in which nothing happens, and of its shim"""
    seconds = 5 if bench.quick else 20
    with idle_sessions(bench, IDLE_SESSIONS) as pids:
        share = sum(_shares([pid for pair in pids for pid in pair], seconds))
    what = f"processor time of {IDLE_SESSIONS} idle sessions and their shims, together"
    return [Figure(what, "≤ 0.5 % of a core", f"{share:.2f} %", ok=share <= 0.5)]


def stream(bench: Bench) -> list[Figure]:
    """Processor time of a session whose agent, Codex CLI as recorded, animates its screen"""
    seconds = 5 if bench.quick else 20
    argv = bench.program("animation", PROGRAMS / "codex.cast", FRAMES)
    with bench.detached("animation", argv):
        time.sleep(_SETTLED)
        claim = find_claim(Home.from_env(bench.env), "animation")
        session, shim = _shares([claim.pid or 0, claim.terminal_pid or 0], seconds)
    what = f"processor time of a session while Codex CLI draws {FRAMES} frames a second"
    reached = f"{session:.1f} % (its shim {shim:.1f} %)"
    return [Figure(what, "≤ 2 % of a core", reached, ok=session <= 2)]


def _shares(pids: Sequence[int], seconds: float) -> list[float]:
    """Return how much of a core each process uses during the next `seconds`, in percent."""
    before, started = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    after, passed = [cpu_seconds(pid) for pid in pids], time.monotonic() - started
    return [(end - start) / passed * 100 for start, end in zip(before, after, strict=True)]


def back(bench: Bench) -> list[Figure]:
    """Seconds from kill -9 of a session until its replacement is ready"""
    seconds: list[float] = []
    with bench.detached("back", ["cat"]):
        for _ in range(3 if bench.quick else 9):
            time.sleep(1.0)  # the session idles
            before = find_claim(Home.from_env(bench.env), "back")
            generation = call(before.shim, {"op": "status"})["generation"]
            started = time.monotonic()
            os.kill(before.pid or 0, signal.SIGKILL)
            while True:
                status = call(before.shim, {"op": "status"})
                if status["ready"] and status["generation"] > generation:
                    break
            seconds.append(time.monotonic() - started)
    middle = statistics.median(seconds)
    return [Figure("session ready again after kill -9", "≤ 1 s", f"{middle * 1000:.0f} ms", ok=middle <= 1)]


@contextlib.contextmanager
def idle_sessions(bench: Bench, count: int = SESSIONS) -> Iterator[list[tuple[int, int]]]:
    """Yield the process ids of sessions whose agents wait for input, and of their shims."""
    names = [f"idle-{number}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(bench.detached(name, ["cat"]))
        time.sleep(_SETTLED)
        claims = [find_claim(Home.from_env(bench.env), name) for name in names]
        yield [(claim.pid or 0, claim.terminal_pid or 0) for claim in claims]


def cpu_seconds(pid: int) -> float:
    """Return the seconds of processor time that process `pid` has used: exactly, not in ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def pss(pid: int) -> float:
    """Return the proportional set size of process `pid` without its ring, in MB (proc_pid_smaps(5))."""
    size, counts = 0, True
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if " " in name:  # the first line of a mapping
            counts = "relay-ring" not in line
        elif name == "Pss" and counts:
            size += int(value.split()[0])
    if size:
        return size * 1024 / 1e6
    raise LookupError(f"smaps_rollup of process {pid} has no Pss")
