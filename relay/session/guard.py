"""The guard rail: what a wrapped agent's own processes may ask of a session.

They may send, list, read their messages and use memory.  They may not attach, stop, answer or retry: an
agent must not approve itself.  It is a guard rail, not a boundary: agents under one account can read each
other's files (design, section 11).
"""

from __future__ import annotations

import subprocess
import sys

from relay.errors import NotAllowed
from relay.home import Home
from relay.session.control import Request

ALLOWED = frozenset({"info", "explain", "send", "drain", "roster"})
"""Operations that a descendant of an agent may ask for."""


def check(request: Request, agents: set[int]) -> None:
    """Raise NotAllowed if a process descended from one of `agents` asks for what is not for it."""
    operation = str(request.fields.get("op"))
    if operation not in ALLOWED and ancestors(request.pid) & agents:
        raise NotAllowed(
            f"an agent may not ask for {operation!a}. The person can, from a terminal outside of the session."
        )


def agents(home: Home) -> set[int]:
    """The process ids of the agents of all sessions of `home`, as they noted them in their claims."""
    found = set()
    for path in (home.run / "sessions").glob("*/*.lock"):
        try:
            found.add(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue  # it has just ended, or has not started its agent yet
    return found


def ancestors(pid: int) -> set[int]:
    """`pid` and the processes it descends from."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
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
