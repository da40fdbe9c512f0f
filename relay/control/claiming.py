"""Claiming a name for a new agent: one that the user has chosen, or one like its command's."""

from __future__ import annotations

import os
import time

from relay.control.name_claim import Claim, Noted, socket_of
from relay.errors import NameInUse, RelayError
from relay.home import Home, check_socket_path, private_directory
from relay.names import is_valid, validate
from relay.storage.locks import open_lock, try_lock

_LAST_OUTPUT_TIMEOUT = 15.0  # seconds to wait for a session that is still acting on its agent's last output
_CLAIM_EVERY = 0.05  # seconds between two tries to take the name
_ANSWER = 1.0  # seconds for the session that has the name to answer


def claim(home: Home, team: str, name: str) -> Claim:
    """Claim `name`, waiting if its session is ending, or does not answer because it is starting or ending.

    Raise NameInUse if a live session has the name, and InvalidName or HomeError if no session can have it.
    """
    validate(team, "team")
    validate(name)
    deadline = time.monotonic() + _LAST_OUTPUT_TIMEOUT
    while (taken := _try(home, team, name)) is None and time.monotonic() < deadline:
        if not _ending(home.agent_lock(team, name)):
            break
        time.sleep(_CLAIM_EVERY)
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
        name = base if number == 1 else f"{base}-{number}"
        if is_valid(name) and (taken := _try(home, team, name)):
            return taken
    raise NameInUse(f"a thousand sessions are called {base}. Choose a name with -n.")


def _ending(lock: str) -> bool:
    """Return True if the session that holds `lock` may soon release it: it is ending, or does not answer."""
    from pathlib import Path

    from relay.control.sessions import call
    from relay.supervision.states import Phase

    try:
        state = call(Path(socket_of(lock)), {"op": "info"}, _ANSWER)["info"]["state"]
        if state in {Phase.BACKOFF, Phase.WAITING, Phase.HELD}:
            return False  # between two agents
        os.kill(Noted(lock).agent or os.getpid(), 0)
        return False
    except ProcessLookupError:
        return True
    except (RelayError, KeyError):
        return True


def _try(home: Home, team: str, name: str) -> Claim | None:
    """Return the claim on the name, None if another process holds it."""
    lock = home.agent_lock(team, name)
    private_directory(os.path.dirname(lock))
    check_socket_path(socket_of(lock))
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
