"""The caller of a command or request: a wrapped agent, known by its ancestry or else by its environment.

Ancestry comes first, since an agent can give its children any environment. Only the environment identifies
a daemon, which has left its ancestors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from relay import names
from relay.control import sessions
from relay.home import Home


@dataclass(frozen=True, slots=True)
class Caller:
    """A wrapped agent, and the path at which its session listens."""

    name: str
    team: str
    socket: Path


def caller(home: Home) -> Caller | None:
    """Return the agent to which this process belongs, None if it is the user's."""
    known = agents(home)
    if found := next((known[pid] for pid in ancestors(os.getpid()) if pid in known), None):
        return found
    env = os.environ
    if "RELAY_SOCKET" not in env and "RELAY_NAME" not in env:
        return None
    name, team = env.get("RELAY_NAME", ""), env.get("RELAY_TEAM", names.DEFAULT_TEAM)
    return Caller(name, team, Path(env.get("RELAY_SOCKET", sessions.socket_of(home, team, name))))


def agents(home: Home) -> dict[int, Caller]:
    """Return the agents of all live sessions of `home` by process id, as their claims name them."""
    return {
        claim.agent_pid: Caller(claim.name, claim.team, claim.socket)
        for claim in sessions.claims(home)
        if claim.agent_pid is not None
    }


def ancestors(pid: int) -> list[int]:
    """Return `pid` and the processes it descends from, the nearest first."""
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
