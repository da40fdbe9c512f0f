"""Starts an agent in the background, in a new process, with `relay wrap -d`.

A new process, not a fork of this one: the shim is a copy of it for the agent's whole life, and stays small.
Its command line, which every user of the machine can read, has only names; the rest goes through a pipe.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay.agents.markers import without_markers
from relay.dataclass import asdict, dataclass
from relay.supervision.policy import Supervision

_PREFIX = "relay: "


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """The outcome of a start. code: 0, or the exit code of `relay wrap`. text: its messages, on one line."""

    code: int
    text: str

    @property
    def ok(self) -> bool:
        return self.code == 0


def start(
    name: str,
    team: str,
    command: Sequence[str],
    cwd: Path,
    supervision: Supervision,
    env: Mapping[str, str],
    options: Sequence[str] = (),
) -> StartOutcome:
    """Start the agent, and return once it can receive messages, or has ended.

    env: added to this process's environment. options: further options for `relay wrap`.
    """
    argv = [sys.executable, "-P", "-m", "relay", "wrap", "-d", "-n", name, "-t", team, "--stdin"]
    words = ["--supervision", json.dumps(asdict(supervision)), *options, "--", *command]
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env={**without_markers(os.environ), **env},
            input=json.dumps(words).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        return StartOutcome(1, f"{cwd}: {error.strerror}.")
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    said = [line.removeprefix(_PREFIX) for line in lines if line.strip()]
    return StartOutcome(done.returncode, " ".join(said))
