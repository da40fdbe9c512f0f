"""The cost of an idle session: memory and processor time."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.table import Figure

SESSIONS = 3
_SETTLED = 3.0
_IMPORTS = "import asyncio, sqlite3, aiomqtt, relay.session.session, time; print(flush=True); time.sleep(60)"


def memory(bench: Bench) -> list[Figure]:
    """Memory (PSS) of a session's process, with three of them running"""
    with idle_sessions(bench) as pids:
        sizes = [pss(pid) for pid in pids]
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
        )
    ]


def idle_cpu(bench: Bench) -> list[Figure]:
    """Processor time of a session in which nothing happens"""
    seconds = 5 if bench.quick else 20
    with idle_sessions(bench) as pids:
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        shares = [(cpu_seconds(pid) - start) / seconds for pid, start in zip(pids, before, strict=True)]
    share = statistics.mean(shares) * 100
    return [
        Figure("processor time of an idle session", "≤ 0.2 % of a core", f"{share:.2f} %", ok=share <= 0.2)
    ]


@contextlib.contextmanager
def idle_sessions(bench: Bench) -> Iterator[list[int]]:
    """Yield the process ids of sessions whose agents wait for input."""
    names = [f"idle-{number}" for number in range(SESSIONS)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(bench.detached(name, ["cat"]))
        time.sleep(_SETTLED)
        yield [bench.session(name) for name in names]


def cpu_seconds(pid: int) -> float:
    """Return the seconds of processor time that process `pid` has used (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss(pid: int) -> float:
    """Return the proportional set size of process `pid` in megabytes (proc_pid_smaps_rollup(5))."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024 / 1e6
    raise LookupError(f"smaps_rollup of process {pid} has no Pss")
