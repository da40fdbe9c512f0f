"""Who asks: the wrapped agent to which a process belongs, by its ancestry or else by its environment.

Ancestry counts first, since an agent can give its children any environment. What an agent started and then
left behind (a daemon) is known by its environment only.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay import names
from relay.control import sessions
from relay.errors import NoSuchSession
from relay.home import Home

STARTING = 3.0
"""Seconds that a session, which starts its agent first, may take until it listens."""

_POLL = 0.01  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Caller:
    """A wrapped agent, and where its session listens.

    `name` and `team` are in lower case where the environment does not spell them.
    """

    name: str
    team: str
    socket: Path

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the agent's session answers (`directory.call`), waiting for one that has just started."""
        deadline = time.monotonic() + STARTING
        while True:
            try:
                return sessions.call(self.socket, request)
            except NoSuchSession:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL)


def caller(home: Home) -> Caller | None:
    """The agent to which this process belongs; None for a person's."""
    own = _from_environment(home)
    known = agents(home)
    found = next((known[pid] for pid in ancestors(os.getpid()) if pid in known), None)
    if found is None or own is None:
        return found or own
    agrees = names.same(own.name, found.name) and names.same(own.team, found.team)
    return Caller(own.name, own.team, found.socket) if agrees else found


def _from_environment(home: Home) -> Caller | None:
    env = os.environ
    if "RELAY_SOCKET" not in env and "RELAY_NAME" not in env:
        return None
    name, team = env.get("RELAY_NAME", ""), env.get("RELAY_TEAM", names.DEFAULT_TEAM)
    return Caller(name, team, Path(env.get("RELAY_SOCKET", sessions.socket_of(home, team, name))))


def agents(home: Home) -> dict[int, Caller]:
    """The agents of all live sessions of `home` by process id, as they noted them in their claims."""
    found = {}
    for path in (home.run / "sessions").glob("*/*.lock"):
        try:
            pid = int(path.read_text(encoding="ascii"))
            live = _held(path)
        except (OSError, ValueError):
            continue  # it has just ended, or is about to start its agent
        if live:  # what a dead session left may hold the id of a process of today
            found[pid] = Caller(path.stem, path.parent.name, path.with_suffix(".sock"))
    return found


def _held(path: Path) -> bool:
    with open(path, "rb") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def ancestors(pid: int) -> list[int]:
    """`pid` and the processes it descends from, the nearest first."""
    found: list[int] = []
    while pid > 1 and pid not in found:
        found.append(pid)
        pid = _parent(pid)
    return found


def _parent(pid: int) -> int:
    if bool(sys.platform == "linux"):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                return int(stat.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return 0
    answer = subprocess.run(
        ["/bin/ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return int(answer.stdout.strip() or 0)
