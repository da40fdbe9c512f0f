"""The claim on a name: a lock held for an agent's whole life, so that a dead agent's name is free.

`relay wrap` takes the lock before it starts the agent, and the shim inherits it. An flock(2) lock belongs to
the open file, so it is released when the last process that has the file open ends, however it ends.
"""

from __future__ import annotations

import os

from relay.errors import RelayError
from relay.names import validate
from relay.storage.locks import is_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.home import Home


class Claim:
    """A claimed `name` in `team`. socket, shim: where its session and its shim listen.

    apart: the agent counts as nobody's descendant, although another agent's shim may adopt its shim.
    """

    __slots__ = ("apart", "fd", "lock", "name", "shim", "socket", "team")

    def __init__(self, name: str, team: str, lock: str, fd: int) -> None:
        self.name = name
        self.team = team
        self.lock = lock
        self.socket = socket_of(lock)
        self.shim = lock.removesuffix(".lock") + ".shim"
        self.fd = fd
        self.apart = False

    def note(self, agent: int, session: int = 0, shim: int | None = None) -> None:
        """Write AGENT_PID SESSION_PID NAME TEAM SHIM_PID APART NAMESPACE into the claim.

        session: 0 while there is none. shim: by default this process.
        relay.control.lineage says which processes count as the agent's.
        """
        rest = f"{os.getpid() if shim is None else shim:10} {self.apart:d} {pid_namespace():10}"
        line = f"{agent:10} {session:10} {self.name} {self.team} {rest}\n"
        try:
            # One write of constant length: a reader sees the old line or the new one.
            os.pwrite(self.fd, line.encode(), 0)
        except OSError:
            pass  # a full disk must not stop the agent; its session knows its process id anyway

    def release(self) -> None:
        """Release the name. Called in the shim when it ends."""
        base = self.socket.removesuffix(".sock")
        for path in (self.socket, self.shim, f"{base}.guards", f"{base}.door", self.lock):
            try:
                os.unlink(path)
            except OSError:
                pass  # another process has removed it
        os.close(self.fd)


class Noted:
    """A claim that some process holds, as `Claim.note` described it; the process ids are 0 if unknown.

    namespace: that of the process ids (`pid_namespace`).
    """

    __slots__ = ("agent", "apart", "name", "namespace", "session", "shim", "socket", "team")

    def __init__(self, lock: str) -> None:
        folder, file = os.path.split(lock)
        self.name = file.removesuffix(".lock")
        self.team = os.path.basename(folder)
        self.socket = socket_of(lock)
        self.agent = self.session = self.shim = self.namespace = 0
        self.apart = False
        try:
            with open(lock, encoding="utf-8") as claim:
                words = claim.read().split()
            self.agent = int(words[0])
            self.session, self.name, self.team, self.shim = int(words[1]), words[2], words[3], int(words[4])
            self.apart = words[5:6] == ["1"]
            self.namespace = int(words[6])
        except (FileNotFoundError, ValueError, IndexError):
            pass  # just released, or not yet written


def pid_namespace() -> int:
    """Return the number of this process's PID namespace (pid_namespaces(7)), 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def noted(lock: str) -> Noted | None:
    """Return the claim whose lock file is `lock`, None if nobody holds it."""
    return Noted(lock) if is_held(lock) else None


def claimed_names(home: Home) -> list[str]:
    """Return the sorted names of all running agents, without asking their sessions. Raise HomeError."""
    return sorted({_valid_name(each) for each in all_noted(home)})


def all_noted(home: Home) -> Iterator[Noted]:
    """Yield the held claims, unordered. Raise HomeError for another user's folder, OSError if unreadable."""
    home.check_owner()
    folder = os.path.join(home.run_dir, "sessions")
    for team in _entries(folder):
        for name in _entries(os.path.join(folder, team)):
            if name.endswith(".lock") and (found := noted(os.path.join(folder, team, name))) is not None:
                yield found


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _valid_name(claim: Noted) -> str:
    """Return the name as `Claim.note` wrote it, or the file's if that is no name."""
    try:
        return validate(claim.name)
    except RelayError:
        return os.path.basename(claim.socket).removesuffix(".sock")


def socket_of(lock: str) -> str:
    return lock.removesuffix(".lock") + ".sock"
