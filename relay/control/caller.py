"""The caller of a command or request: a wrapped agent, identified by ancestry or environment.

Ancestry comes first, since an agent can give its children any environment. A daemon whose parents have ended
is the shim's child. Only the environment identifies a daemon that outlived the shim, or that runs on a system
where no process can adopt others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from relay import names
from relay.control import sessions
from relay.home import Home


@dataclass(frozen=True, slots=True)
class Caller:
    """A wrapped agent, and the path where its session listens.

    through: the agent's process from which the caller descends; 0: known only from the environment.
    """

    name: str
    team: str
    socket: Path
    through: int = 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """The process ids that identify an agent's descendants; 0: there is no such process now.

    agent:   the agent's own process.
    shim:    adopts the agent's orphaned descendants (relay.shim.adoption).
    session: the session process, whose own descendants are not the agent's.
    """

    agent: int
    shim: int
    session: int

    def through(self, pids: Sequence[int]) -> int:
        """Return the agent's process from which another process descends, 0 if it does not.

        pids: the other process and its ancestors, nearest first.
        """
        before = 0
        for pid in pids:
            if pid == self.agent:
                return pid
            if pid in {self.session, self.shim}:
                return before if pid == self.shim else 0
            before = pid
        return 0


def caller(home: Home) -> Caller | None:
    """Return the agent to which this process belongs, None if it is the user's."""
    if found := agent_of(home, ancestors(os.getpid())):
        return found
    env = os.environ
    name, socket = env.get("RELAY_NAME", ""), env.get("RELAY_SOCKET")
    if not (name or socket):
        return None
    team = env.get("RELAY_TEAM") or names.DEFAULT_TEAM
    return Caller(name, team, Path(socket or sessions.socket_of(home, team, name)))


def agent_of(home: Home, pids: Sequence[int]) -> Caller | None:
    """Return the agent that a process descends from, according to the live claims; None if there is none.

    pids: the process and its ancestors, nearest first.
    """
    nearest = None
    claims = [*sessions.claims(home)]
    apart = _apart(claims)
    for claim in claims:
        lineage = Lineage(claim.agent_pid or 0, claim.terminal_pid or 0, claim.pid or 0)
        through = lineage.through(pids)
        if (
            through
            and through not in apart
            and (nearest is None or pids.index(through) < pids.index(nearest.through))
        ):
            nearest = Caller(claim.name, claim.team, claim.socket, through)
    return nearest


def through(home: Home, own: Lineage, pids: Sequence[int]) -> int:
    """Return `own.through(pids)`, but 0 for the descendants of an agent that the shim has merely adopted.

    Such an agent was started by `own`'s session, which has ended, not by its agent.
    """
    found = own.through(pids)
    adopted = found not in {0, own.agent}
    return 0 if adopted and found in _apart(sessions.claims(home)) else found


def _apart(claims: Iterable[sessions.SessionInfo]) -> set[int]:
    """Return the shims of agents that count as nobody's descendants, whichever shim has adopted them."""
    return {claim.terminal_pid or 0 for claim in claims if claim.apart}


def command_of(pid: int) -> str:
    """Return the name of the program that `pid` runs, "" if unknown."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def ancestors(pid: int) -> list[int]:
    """Return `pid` and its ancestors, nearest first."""
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
