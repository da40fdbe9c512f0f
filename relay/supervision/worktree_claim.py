"""An agent's claim on its worktree, stored in the repository, where every relay home sees it.

    GIT_COMMON_DIR/relay/ID.json    whose it is, and how far it was prepared
    GIT_COMMON_DIR/relay/ID.lock    held while it is prepared or removed
    GIT_COMMON_DIR/relay/lock       held while git changes the list of worktrees

A claim is *live* while the lock of its agent's name is held, from an agent's start to its end.  A file rather
than its own lock, as an agent's worktree stays its own between two of its lives.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from relay import names
from relay.errors import WorktreeError
from relay.home import Home
from relay.storage.files import write_private
from relay.storage.locks import is_held

_LOOK = 0.05  # seconds between two looks whether an agent has ended

Stage = Literal["adding", "filling", "ready"]


@dataclass(frozen=True, slots=True)
class WorktreeOwner:
    """An agent that may have a worktree. lock: the path of the lock that its shim holds."""

    team: str
    agent: str
    lock: str

    @classmethod
    def of(cls, home: Home, team: str, agent: str) -> WorktreeOwner:
        """Return the agent `agent` of `team` in `home`."""
        return cls(team, agent, home.agent_lock(team, agent))

    def has_ended(self, within: float) -> bool:
        """Return True if the agent does not run. Wait `within` seconds for its session, if only that does."""
        deadline = time.monotonic() + within
        while is_held(self.lock):
            if time.monotonic() >= deadline or self._has_process():
                return False
            time.sleep(_LOOK)
        return True

    def _has_process(self) -> bool:
        """Return True if the agent's own process, which its shim names in the lock, runs."""
        try:
            with open(self.lock, "rb") as file:
                os.kill(int(file.read(64).split()[0]), 0)
        except (OSError, ValueError, IndexError):
            return False
        return True

    def same(self, other: WorktreeOwner) -> bool:
        """Return True if both are one agent of one home."""
        return (
            names.same(self.agent, other.agent)
            and names.same(self.team, other.team)
            and self.lock == other.lock
        )


@dataclass(frozen=True, slots=True)
class WorktreeClaim:
    """A worktree, and whose it is.

    lasting:   it remains the agent's when that has ended; otherwise the next agent may take it.
    stage:     adding: git may have been interrupted. filling: copies, links or setup may have been.
    contents:  a digest of what was to be copied, linked and run.
    made:      relay has made the branch.
    setup_pid, setup_start: the process that runs the setup, and when it started (relay.supervision.process).
    """

    path: str
    branch: str
    owner: WorktreeOwner
    lasting: bool = True
    stage: Stage = "adding"
    contents: str = ""
    made: bool = False
    setup_pid: int = 0
    setup_start: str = ""


class Claims:
    """The claims on the worktrees of one repository."""

    def __init__(self, common: Path) -> None:
        self._folder = common / "relay"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise WorktreeError(
                f"cannot write into the repository ({self._folder}: {error.strerror}). "
                "A worktree needs write access there: check the owner."
            ) from None

    @property
    def lock(self) -> Path:
        """The lock for changes of git's list of worktrees."""
        return self._folder / "lock"

    def lock_of(self, path: Path) -> Path:
        """Return the lock of the worktree at `path`."""
        return self._file(path, "lock")

    def read(self, path: Path) -> WorktreeClaim | None:
        """Return the claim on the worktree at `path`, None if there is none."""
        return _read(self._file(path, "json"))

    def all(self) -> list[WorktreeClaim]:
        """Return all claims, in no order."""
        return [claim for path in self._folder.glob("*.json") if (claim := _read(path)) is not None]

    def note(self, claim: WorktreeClaim) -> WorktreeClaim:
        """Record `claim` in place of an earlier one, and return it. Raise WorktreeError if that fails."""
        path = self._file(Path(claim.path), "json")
        try:
            write_private(path, json.dumps(asdict(claim), indent=1) + "\n")
        except OSError as error:
            raise WorktreeError(f"cannot write {path}: {error.strerror}. Free some space.") from None
        return claim

    def remove(self, path: Path) -> None:
        """Forget the claim on the worktree at `path`."""
        self._file(path, "json").unlink(missing_ok=True)

    def _file(self, path: Path, suffix: str) -> Path:
        # Without case: of two paths that differ in nothing else, many file systems make one.
        id = hashlib.sha256(names.key(str(path)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return self._folder / f"{id}.{suffix}"


_FIELDS = {each.name for each in fields(WorktreeClaim)}


def _read(path: Path) -> WorktreeClaim | None:
    try:
        given = json.loads(path.read_bytes())
        known = {name: value for name, value in given.items() if name in _FIELDS}
        return WorktreeClaim(**{**known, "owner": WorktreeOwner(**known["owner"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # it is missing, or damaged
