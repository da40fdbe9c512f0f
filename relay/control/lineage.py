"""The agent to which a process belongs, by its ancestors. Part of the shim: this imports little.

A daemon whose parents have ended is the shim's child (relay.shim.adoption). A process is the user's only if
all of its ancestors are known, and no agent is among them.
"""

from __future__ import annotations

import os
import sys

from relay.control.name_claim import all_noted, pid_namespace
from relay.peer import lives, peer
from relay.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relay.control.name_claim import Noted
    from relay.home import Home

NOT_AGENTS = "an agent may not request {!r}. The user can, in a terminal outside the session."

UNKNOWN = "relay cannot tell whether an agent requests {!r}: {}. Use a terminal outside the agents' sessions."

INIT = 1
"""The last of a process's ancestors (`ancestors`)."""

_INITIAL = 0xEFFFFFFC  # the machine's own PID namespace (PROC_PID_INIT_INO, <linux/proc_ns.h>)
_TRIES = 10  # to read all ancestors while some of them end


class Lineage:
    """The process ids that identify an agent's descendants; 0: there is no such process now.

    agent:   the agent's own process.
    shim:    adopts the agent's orphaned descendants (relay.shim.adoption).
    session: the session process, whose own descendants are not the agent's.
    """

    __slots__ = ("agent", "session", "shim")

    def __init__(self, agent: int, shim: int, session: int) -> None:
        self.agent = agent
        self.shim = shim
        self.session = session

    def through(self, pids: Sequence[int]) -> int:
        """Return the agent's process above another, else 0. pids: that and its ancestors, nearest first."""
        before = 0
        for pid in pids:
            if pid == self.agent:
                return pid
            if pid in {self.session, self.shim}:
                return before if pid == self.shim else 0
            before = pid
        return 0


def refusal(home: Home, own: Lineage, fd: int, operation: str) -> str | None:
    """Return why the process connected to the socket `fd` may not request `operation`, None if it may.

    own: that of the target agent, whose claim may be missing because the disk was full.
    """
    pids = connected(fd)
    name, process = "that agent", 0
    if (found := nearest(claims_here(home), pids)) is not None:
        name, process = found[0].name, found[1]
    else:
        process = through(home, own, pids)
    if process:
        return f"{NOT_AGENTS.format(operation)} {because(name, process)}"
    if not complete(pids):
        why = "the requesting process has ended, or it and its ancestors cannot be seen from here"
        return UNKNOWN.format(operation, why)
    return None


def unknown(home: Home, pids: Sequence[int]) -> str:
    """Return why this process may be an agent's without a `nearest`, else "". pids: it and its ancestors."""
    claims = [*all_noted(home)]
    if claims and not complete(pids):
        return "its ancestors cannot be read in /proc"
    own = pid_namespace()
    for claim in claims:
        if claim.namespace not in {0, own} and own != _INITIAL:
            return f"it is in another PID namespace than {claim.name} (pid_namespaces(7))"
    return ""


def because(name: str, process: int) -> str:
    """Return why a caller counts as the agent `name`, and the way out. process: the agent's above it."""
    program = one_line(command_of(process), 30) or "a process"
    return (
        f"This descends from {program} (pid {process}), which belongs to {name}, as does every shell "
        "in a tmux server that an agent started: start that server outside first."
    )


def claims_here(home: Home) -> list[Noted]:
    """Return the claims that are held, with process ids of this PID namespace."""
    here = pid_namespace()
    return [claim for claim in all_noted(home) if claim.namespace in {0, here}]


def nearest(claims: Sequence[Noted], pids: Sequence[int]) -> tuple[Noted, int] | None:
    """Return the claim and the process of the agent above a process. pids: that and its ancestors."""
    best = None
    apart = _apart(claims)
    for claim in claims:
        through = Lineage(claim.agent, claim.shim, claim.session).through(pids)
        if through and through not in apart and (best is None or pids.index(through) < pids.index(best[1])):
            best = claim, through
    return best


def through(home: Home, own: Lineage, pids: Sequence[int]) -> int:
    """Return `own.through(pids)`, but 0 for the descendants of an agent that the shim has merely adopted.

    Such an agent was started by `own`'s session, which has ended, not by its agent.
    """
    found = own.through(pids)
    adopted = found not in {0, own.agent}
    return 0 if adopted and found in _apart(all_noted(home)) else found


def _apart(claims: Iterable[Noted]) -> set[int]:
    """Return the shims of agents that count as nobody's descendants, whichever shim has adopted them."""
    return {claim.shim for claim in claims if claim.apart}


def command_of(pid: int) -> str:
    """Return the name of the program that `pid` runs, "" if unknown."""
    try:
        with open(f"/proc/{pid}/comm", errors="replace", encoding="utf-8") as name:
            return name.read().strip()
    except OSError:
        return ""


def belongs_to_an_agent(pid: int) -> bool:
    """Return True if `pid` was started with the environment of an agent of any home; False if unknown."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return b"\0RELAY_SOCKET=" in b"\0" + environment.read()
    except OSError:
        return False


def connected(fd: int) -> list[int]:
    """Return the process that has connected to the socket `fd`, and its ancestors; none if it has ended."""
    pids = ancestors(peer(fd)[0])
    return pids if lives(fd) else []  # in this order: until now, the id was its own


def ancestors(pid: int) -> list[int]:
    """Return `pid` and its ancestors, nearest first. They end with INIT if these are all (`complete`)."""
    found: list[int] = []
    for _ in range(_TRIES):  # if one ends meanwhile, its child gets another parent
        found = _walk(pid)
        if complete(found) or len(found) < 2:
            break
    return found


def complete(pids: Sequence[int]) -> bool:
    """Return True if these are all ancestors of a process."""
    return bool(pids) and pids[-1] == INIT


def _walk(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = 0 if pid == INIT else _parent(pid)
    return found


def _parent(pid: int) -> int:
    """Return the parent of `pid`, 0 if unknown.

    It is INIT if it is outside of our PID namespace, as for `docker exec`, or if `pid` is another user's, and
    hidden (`hidepid` of proc(5)).
    """
    if bool(sys.platform == "linux"):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                return int(stat.read().rpartition(b")")[2].split()[1]) or INIT
        except (OSError, ValueError, IndexError):
            return INIT if _hidden(pid) else 0
    import subprocess  # 10 ms

    answer = subprocess.run(
        ["/bin/ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return int(answer.stdout.strip() or 0)


def _hidden(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False
