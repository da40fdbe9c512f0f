"""The claim on a name: a lock held for an agent's whole life, so that a dead agent's name is free.

`relay wrap` takes the lock before it starts the agent, and the shim inherits it. An flock(2) lock belongs to
the open file, so it is released when the last process that has the file open ends, however it ends.
"""

from __future__ import annotations

import os
import time

from relay.errors import NameInUse, RelayError
from relay.home import Home, check_socket_path, private_directory
from relay.names import validate
from relay.storage.locks import is_held, open_lock, try_lock

_PATIENCE = 15.0  # seconds to wait for a session that is still acting on its agent's last output
_LOOK = 0.05  # seconds between two tries to take the name
_ANSWER = 1.0  # seconds for the session that has the name to answer


class Claim:
    """A claimed `name` in `team`. socket, shim: where its session and its shim listen.

    apart: the agent counts as nobody's descendant, although another agent's shim may adopt its shim.
    """

    __slots__ = ("apart", "fd", "lock", "name", "shim", "socket", "team")

    def __init__(self, name: str, team: str, lock: str, fd: int) -> None:
        self.name = name
        self.team = team
        self.lock = lock
        self.socket = _socket(lock)
        self.shim = lock.removesuffix(".lock") + ".shim"
        self.fd = fd
        self.apart = False

    def note(self, agent: int, session: int = 0) -> None:
        """Write AGENT_PID SESSION_PID NAME TEAM SHIM_PID APART into the claim; the caller is the shim.

        session: 0 while there is none. relay.control.caller says which processes count as the agent's.
        """
        line = f"{agent:10} {session:10} {self.name} {self.team} {os.getpid():10} {self.apart:d}\n"
        try:
            # One write of constant length: a reader sees the old line or the new one.
            os.pwrite(self.fd, line.encode(), 0)
        except OSError:
            pass  # a full disk must not stop the agent; its session knows its process id anyway

    def release(self) -> None:
        """Release the name. Called in the shim when it ends."""
        for path in (self.socket, self.shim, self.socket.removesuffix(".sock") + ".guards", self.lock):
            try:
                os.unlink(path)
            except OSError:
                pass  # another process has removed it
        os.close(self.fd)


def claim(home: Home, team: str, name: str) -> Claim:
    """Claim `name`, waiting if its session is ending, or does not answer because it is starting or ending.

    Raise NameInUse if a live session has the name, and InvalidName or HomeError if no session can have it.
    """
    validate(team, "team")
    validate(name)
    deadline = time.monotonic() + _PATIENCE
    while (taken := _try(home, team, name)) is None and time.monotonic() < deadline:
        if not _ending(home.agent_lock(team, name)):
            break
        time.sleep(_LOOK)
    if taken is None:
        raise NameInUse(
            f"a session called {name} is running in team {team}. "
            f"Choose another name with -n, or attach to it with `relay attach {name}`."
        )
    return taken


def claim_free(home: Home, team: str, command: str) -> Claim:
    """Claim a name derived from the command's: `claude`, else `claude-2`, `claude-3`, ... Raise NameInUse."""
    validate(team, "team")
    base = os.path.basename(command).split(".")[0]
    base = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in base).strip("-_")[:50]
    base = base or "agent"
    for number in range(1, 1000):
        name = validate(base if number == 1 else f"{base}-{number}")
        if taken := _try(home, team, name):
            return taken
    raise NameInUse(f"a thousand sessions are called {base}. Choose a name with -n.")


def claimed_names(home: Home) -> list[str]:
    """Return the sorted names of all running agents, without asking their sessions. Raise HomeError."""
    home.check_owner()
    found = set()
    folder = os.path.join(home.run_dir, "sessions")
    for team in _entries(folder):
        for name in _entries(os.path.join(folder, team)):
            path = os.path.join(folder, team, name)
            if name.endswith(".lock") and is_held(path):
                found.add(_noted_name(path) or name.removesuffix(".lock"))
    return sorted(found)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _noted_name(lock: str) -> str:
    """Return the name as `Claim.note` wrote it, "" if it has not."""
    try:
        with open(lock, encoding="utf-8") as claim:
            return validate(claim.read().split()[2])
    except (OSError, ValueError, IndexError, RelayError):
        return ""


def _socket(lock: str) -> str:
    return lock.removesuffix(".lock") + ".sock"


def _ending(lock: str) -> bool:
    """Return True if the session that holds `lock` may soon release it: it is ending, or does not answer."""
    from pathlib import Path

    from relay.control.sessions import call
    from relay.state.states import EXITED

    try:
        return bool(call(Path(_socket(lock)), {"op": "info"}, _ANSWER)["info"]["state"] == EXITED)
    except (RelayError, KeyError):
        return True


def _try(home: Home, team: str, name: str) -> Claim | None:
    """Return the claim on the name, None if another process holds it."""
    lock = home.agent_lock(team, name)
    private_directory(os.path.dirname(lock))
    check_socket_path(_socket(lock))
    while True:
        fd = open_lock(lock)
        if not try_lock(fd):
            os.close(fd)
            return None
        # `sessions._sweep` unlinks the lock file: then the path leads to another file, or none.
        try:
            if os.stat(lock).st_ino == os.fstat(fd).st_ino:
                os.ftruncate(fd, 0)  # clear a dead session's process ids
                return Claim(name, team, lock, fd)
        except FileNotFoundError:
            pass
        os.close(fd)
