"""The guard rail: what a wrapped agent's own processes may ask of a session.

They may send, list, read their messages and use memory.  They may not attach, stop, answer or retry: an
agent must not approve itself.  It is a guard rail, not a boundary: agents under one account can read each
other's files (design, section 11).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Container
from typing import TYPE_CHECKING

from relay.errors import NotAllowed
from relay.home import Home
from relay.journal import Journal

if TYPE_CHECKING:
    from relay.session.control import Request

ALLOWED = frozenset({"info", "explain", "send", "drain", "roster"})
"""Operations that a descendant of an agent may ask for."""


def check(request: Request, agents: Container[int]) -> None:
    """Raise NotAllowed if a process descended from one of `agents` asks for what is not for it."""
    operation = str(request.fields.get("op"))
    if operation not in ALLOWED and any(pid in agents for pid in ancestors(request.pid)):
        raise NotAllowed(
            f"an agent may not ask for {operation!a}. The person can, from a terminal outside of the session."
        )


def person_only(home: Home, operation: str, why: str) -> None:
    """For commands that ask no session: raise NotAllowed(why), and note it, in a process of an agent's."""
    if (name := caller(home)) is not None:
        session = os.environ.get("RELAY_SESSION", "")
        Journal(home.journal, session, name).write("refused", operation=operation, pid=os.getpid())
        raise NotAllowed(why)


def caller(home: Home) -> str | None:
    """The name of the wrapped agent to which this process belongs, by its environment or its ancestry."""
    if "RELAY_SOCKET" in os.environ:
        return os.environ.get("RELAY_NAME", "")
    known = agents(home)
    return next((known[pid] for pid in ancestors(os.getpid()) if pid in known), None)


def agents(home: Home) -> dict[int, str]:
    """The agents of all sessions of `home` by process id, as they noted them in their claims."""
    found = {}
    for path in (home.run / "sessions").glob("*/*.lock"):
        try:
            found[int(path.read_text(encoding="ascii"))] = path.stem
        except (OSError, ValueError):
            continue  # it has just ended, or is about to start its agent
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
