"""Which agents of this home are on the bus themselves: each holds a lock as long as it is.

RUN/couriers/TEAM/NAME.lock
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from relay.bus.locks import is_held, open_lock, wait_lock
from relay.bus.topics import level
from relay.errors import NameInUse
from relay.home import Home, private_directory

_SECONDS = 0.2  # somebody may be looking (`is_present`), which takes the lock for a moment


@contextlib.contextmanager
def claim_name(home: Home, team: str, name: str) -> Iterator[None]:
    """Be `name` of `team` for a block; NameInUse if another process (or task) of this home is."""
    path = _path(home, team, name)
    private_directory(path.parent)
    descriptor = open_lock(path)
    try:
        if not wait_lock(descriptor, _SECONDS):
            raise NameInUse(f"{name!a} is on the bus already, in team {team!a}. Choose another name.")
        yield
    finally:
        os.close(descriptor)


def is_present(home: Home, team: str, name: str) -> bool:
    """Whether `name` publishes for itself."""
    return is_held(_path(home, team, name))


def _path(home: Home, team: str, name: str) -> Path:
    return home.run / "couriers" / level(team) / f"{level(name)}.lock"
