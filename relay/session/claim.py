"""The claim on a name: a lock held for a session's whole life, so that a dead session's name is free.

The lock is taken before the agent is started and inherited by the session process; flock(2) belongs to the
open file, so that it ends with the last process that holds it, however that one ends.
"""

from __future__ import annotations

import fcntl
import os

from relay.errors import NameInUse
from relay.home import Home, check_socket_path, private_directory
from relay.names import key, validate


class Claim:
    """A claimed `name` in `team`; `socket` is the path of the control socket that goes with it."""

    __slots__ = ("fd", "lock", "name", "socket", "team")

    def __init__(self, name: str, team: str, lock: str, fd: int) -> None:
        self.name = name
        self.team = team
        self.lock = lock
        self.socket = lock.removesuffix(".lock") + ".sock"
        self.fd = fd

    def note(self, pid: int) -> None:
        """Write the process id whose descendants are the agent's into the claim, for the guard rail."""
        try:
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, str(pid).encode(), 0)
        except OSError:
            pass  # a full disk stops no agent; its own session knows it all the same

    def release(self) -> None:
        """Give the name back (from the process that ends the session)."""
        for path in (self.socket, self.lock):
            try:
                os.unlink(path)
            except OSError:
                pass  # swept by another already
        os.close(self.fd)


def claim(home: Home, team: str, name: str) -> Claim:
    """Claim `name`; NameInUse if a live session has it, InvalidName or HomeError if it cannot be one."""
    validate(team, "team")
    validate(name)
    taken = _try(home, team, name)
    if taken is None:
        raise NameInUse(
            f"a session called {name} is running in team {team}. "
            f"Choose another name with -n, or see it with `relay attach {name}`."
        )
    return taken


def claim_free(home: Home, team: str, command: str) -> Claim:
    """Claim a name made from the command's: `claude`, else `claude-2`, `claude-3`, ..."""
    validate(team, "team")
    base = os.path.basename(command).split(".")[0]
    base = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in base).strip("-_")[:50]
    base = base or "agent"
    for number in range(1, 1000):
        name = validate(base if number == 1 else f"{base}-{number}")
        if taken := _try(home, team, name):
            return taken
    raise NameInUse(f"a thousand sessions are called {base}. Choose a name with -n.")


def _try(home: Home, team: str, name: str) -> Claim | None:
    folder = os.path.join(home.run_dir, "sessions", key(team))
    private_directory(folder)
    lock = os.path.join(folder, key(name) + ".lock")
    check_socket_path(lock.removesuffix(".lock") + ".sock")
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        # Whoever sweeps up after a dead session unlinks the file that it has locked: then try the new one.
        try:
            if os.stat(lock).st_ino == os.fstat(fd).st_ino:
                return Claim(name, team, lock, fd)
        except FileNotFoundError:
            pass
        os.close(fd)
