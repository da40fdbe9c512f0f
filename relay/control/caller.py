"""The caller of a command or request: a wrapped agent, identified by ancestry or environment.

Ancestry (relay.control.lineage) comes first, since an agent can give its children any environment. Only the
environment identifies a daemon that outlived the shim, or that runs on a system where no process can adopt
others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from relay import names
from relay.control import sessions
from relay.control.lineage import ancestors, claims_here, nearest, unknown
from relay.dataclass import dataclass
from relay.errors import NotAllowed
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


def caller(home: Home) -> Caller | None:
    """Return the agent to which this process belongs, None if the user's. Raise NotAllowed if unknown."""
    pids = ancestors(os.getpid())
    if found := agent_of(home, pids):
        return found
    env = os.environ
    name, socket = env.get("RELAY_NAME", ""), env.get("RELAY_SOCKET")
    if not (name or socket):
        if why := unknown(home, pids):
            raise NotAllowed(
                f"relay cannot tell whether this process is an agent's: {why}. "
                "Use a terminal outside the agents' sessions."
            )
        return None
    team = env.get("RELAY_TEAM") or names.DEFAULT_TEAM
    return Caller(name, team, Path(socket or sessions.socket_of(home, team, name)))


def agent_of(home: Home, pids: Sequence[int]) -> Caller | None:
    """Return the agent that a process descends from, if any. pids: it and its ancestors, nearest first."""
    found = nearest(claims_here(home), pids)
    if found is None:
        return None
    claim, through = found
    return Caller(claim.name, claim.team, Path(claim.socket), through)
