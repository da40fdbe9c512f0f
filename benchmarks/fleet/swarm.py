"""A fleet of simulated agents in a few worker processes, and the commands to drive it."""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
WORKERS = 4
FILES_PER_AGENT = 10
"""File descriptors that one agent needs at most: its connection, the ledger and its log, locks."""


class Swarm:
    """`size` agents in the home of `env`; use it as `with Swarm(...) as swarm`."""

    def __init__(self, env: dict[str, str], size: int) -> None:
        self.size = size
        workers = min(WORKERS, size)
        bounds = [size * number // workers for number in range(workers + 1)]
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fleet.worker", *map(str, (first, end, size))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=env,
                cwd=ROOT,
                text=True,
            )
            for first, end in itertools.pairwise(bounds)
        ]

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def ready(self, seconds: float) -> None:
        """Wait until every agent exists."""
        self._answers(time.monotonic() + seconds, "start")

    def ask(self, *command: object, seconds: float) -> list[Any]:
        """Send every worker a command and return their answers. Raise TimeoutError if one is late."""
        deadline = time.monotonic() + seconds
        text = " ".join(map(str, command))
        for worker in self._workers:
            _tell(worker, text)
        return self._answers(deadline, text)

    def ask_first(self, *command: object, seconds: float) -> Any:
        """Send the first worker a command and return its answer."""
        text = " ".join(map(str, command))
        _tell(self._workers[0], text)
        return _answer(self._workers[0], time.monotonic() + seconds, text)

    def close(self) -> None:
        """End the workers: close their input, and kill those that remain."""
        for worker in self._workers:
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.close()
        deadline = time.monotonic() + 15
        for worker in self._workers:
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self, deadline: float, text: str) -> list[Any]:
        return [_answer(worker, deadline, text) for worker in self._workers]


def _tell(worker: subprocess.Popen[str], text: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{text}\n")
    worker.stdin.flush()


def _answer(worker: subprocess.Popen[str], deadline: float, text: str) -> Any:
    assert worker.stdout is not None
    if not select.select([worker.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        raise TimeoutError(f"the fleet did not do {text!r} in time")
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker of the fleet ended at {text!r} with {worker.wait()}")
    return json.loads(line)
