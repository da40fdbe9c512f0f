"""An agent's claim on its worktree, stored in the repository, where every relay home sees it.

    GIT_COMMON_DIR/relay/ID.json    its owner, and how far it has been prepared
    GIT_COMMON_DIR/relay/ID.lock    held while it is prepared or removed
    GIT_COMMON_DIR/relay/lock       held while git changes the list of worktrees

A claim is *live* while its agent's name lock is held: from the agent's start to its end. The claim is a file,
not another lock, because an agent keeps its worktree between two runs.

Whoever may write into the repository, such as an agent, can write any claim. One that relay cannot have
written does not count, and none suffices to delete or kill anything but what belongs to its worktree.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Literal, get_args

from relay import names
from relay.dataclass import asdict, dataclass, fields
from relay.errors import WorktreeError
from relay.home import Home
from relay.storage.files import write_private
from relay.storage.locks import is_held
from relay.supervision.git import is_branch

_END_CHECK_EVERY = 0.05  # seconds between two checks whether an agent has ended

Stage = Literal["adding", "filling", "ready"]


@dataclass(frozen=True, slots=True)
class WorktreeOwner:
    """An agent that may have a worktree. lock: the path of the lock that its shim holds."""

    team: str
    agent: str
    lock: str

    @classmethod
    def of(cls, home: Home, team: str, agent: str) -> WorktreeOwner:
        return cls(team, agent, home.agent_lock(team, agent))

    def has_ended(self, within: float) -> bool:
        """Return True if the agent is not running. If only its session is, wait `within` seconds for it."""
        deadline = time.monotonic() + within
        while is_held(self.lock):
            if time.monotonic() >= deadline or self._has_process():
                return False
            time.sleep(_END_CHECK_EVERY)
        return True

    def _has_process(self) -> bool:
        """Return True if the agent's own process is running; its shim writes the pid to the lock."""
        try:
            with open(self.lock, "rb") as file:
                os.kill(int(file.read(64).split()[0]), 0)
        except (OSError, ValueError, IndexError):
            return False
        return True

    def same(self, other: WorktreeOwner) -> bool:
        """Return True if both are the same agent of the same home."""
        return (
            names.same(self.agent, other.agent)
            and names.same(self.team, other.team)
            and self.lock == other.lock
        )


@dataclass(frozen=True, slots=True)
class WorktreeClaim:
    """A worktree and its owner.

    lasting:   the agent keeps it after it has ended; otherwise the next agent may take it.
    stage:     adding: git may have been interrupted. filling: copies, links or setup may have been.
    contents:  a digest of what was to be copied, linked and run.
    made:      relay created the branch.
    setup_pid, setup_start: the setup's process, and when it started (relay.supervision.worktree_setup).
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
        """The lock for changes to git's list of worktrees."""
        return self._folder / "lock"

    def lock_of(self, path: Path) -> Path:
        return self._file(path, "lock")

    def read(self, path: Path) -> WorktreeClaim | None:
        return _read(self._file(path, "json"))

    def all(self) -> list[WorktreeClaim]:
        return [claim for path in self._folder.glob("*.json") if (claim := _read(path)) is not None]

    def note(self, claim: WorktreeClaim) -> WorktreeClaim:
        """Record `claim`, replacing an earlier one, and return it. Raise WorktreeError if that fails."""
        path = self._file(Path(claim.path), "json")
        try:
            write_private(path, json.dumps(asdict(claim), indent=1) + "\n")
        except OSError as error:
            raise WorktreeError(f"cannot write {path}: {error.strerror}. Free some space.") from None
        return claim

    def remove(self, path: Path) -> None:
        self._file(path, "json").unlink(missing_ok=True)

    def _file(self, path: Path, suffix: str) -> Path:
        return self._folder / f"{_id(str(path))}.{suffix}"


def _id(path: str) -> str:
    # Ignore case: on many file systems, paths that differ only in case are the same.
    return hashlib.sha256(names.key(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]


_FIELDS = {each.name for each in fields(WorktreeClaim)}


def _read(path: Path) -> WorktreeClaim | None:
    try:
        given = json.loads(path.read_bytes())
        known = {name: value for name, value in given.items() if name in _FIELDS}
        claim = WorktreeClaim(**{**known, "owner": WorktreeOwner(**known["owner"])})
        return claim if _valid(claim) and path.stem == _id(claim.path) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # missing or damaged


def _valid(claim: WorktreeClaim) -> bool:
    texts = (claim.path, claim.branch, claim.contents, claim.setup_start, *asdict(claim.owner).values())
    return (
        all(isinstance(each, str) for each in texts)
        and isinstance(claim.setup_pid, int)
        and claim.stage in get_args(Stage)
        and Path(claim.path).is_absolute()
        and is_branch(claim.branch)
    )
