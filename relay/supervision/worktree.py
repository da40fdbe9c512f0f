"""A git worktree for each agent, so that agents in one repository do not overwrite each other's files.

    prepare:   claim ─→ git worktree add ─→ copy, link ─→ setup ─→ Worktree
    clean_up:  is there work in it? ─→ git worktree remove

A worktree is prepared once and kept: the next start of its agent finds it as the agent left it. Steps that a
kill interrupted are repeated. Work is never deleted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from relay.errors import WorktreeError
from relay.home import Home
from relay.storage.locks import open_lock, wait_lock
from relay.supervision import worktree_making as making
from relay.supervision import worktree_removal as removal
from relay.supervision.worktree_removal import CleanedUp
from relay.supervision.worktree_site import Progress, Site
from relay.supervision.worktree_spec import Cleanup, WorktreeSpec

__all__ = ["CleanedUp", "Cleanup", "Worktree", "WorktreeSpec", "clean_up", "prepare"]

GIT_LOCK_TIMEOUT = 600.0
"""Seconds to wait while git works for other agents: a checkout may be large."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree that is ready for its agent.

    branch: what is checked out; "" if the agent has detached its HEAD. created: this call created it.
    """

    path: Path
    branch: str
    created: bool


def prepare(
    spec: WorktreeSpec,
    agent: str,
    *,
    team: str,
    home: Home,
    directory: Path,
    env: Mapping[str, str] | None = None,
    lasting: bool = True,
    progress: Progress = lambda line: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Worktree:
    """Prepare the worktree of `agent`, in the repository to which `directory` belongs, and return it.

    Block until git and the setup are done. Call before the agent starts; without `lasting`, call while the
    agent's name is claimed, or another agent could take the worktree meanwhile.

    env:       for git and the setup (default: os.environ).
    lasting:   the agent keeps the worktree after it has ended. False: another agent may then take it over,
               and this one may take over the worktree of an agent that is not running.
    progress:  called with each step and each line of the setup's output, in the caller's thread.
    cancelled: polled while the setup runs.

    Raise SetupFailed if a command of the setup failed, and WorktreeError, with advice, for anything else.
    """
    site = Site.of(spec, agent, team, home, directory, env, progress)
    with _locked(
        site.claims.lock_of(site.path), 0, f"the worktree {site.path} is being prepared, or removed"
    ):
        with _locked(
            site.claims.lock, GIT_LOCK_TIMEOUT, "another worktree of the repository is being created"
        ) as lock:
            claim, created = making.make(site.holding(lock), lasting)
        making.fill(site, claim, cancelled)
        found = site.repository.checkout(site.path)
    return Worktree(site.path, "" if found is None else found.branch, created)


def clean_up(
    spec: WorktreeSpec,
    agent: str,
    *,
    team: str,
    home: Home,
    directory: Path,
    env: Mapping[str, str] | None = None,
) -> CleanedUp:
    """Remove the worktree of `agent` if `spec.cleanup` says so, the agent has ended, and it contains no work.

    Work is anything changed, added or unfinished, and commits that are not in `spec.base`. Ignored files are
    not work, unless they were copied there and have changed. Raise WorktreeError if git fails.
    """
    site = Site.of(spec, agent, team, home, directory, env, lambda line: None)
    with (
        _locked(site.claims.lock_of(site.path), 0, f"the worktree {site.path} is being prepared, or removed"),
        _locked(
            site.claims.lock, GIT_LOCK_TIMEOUT, "another worktree of the repository is being created"
        ) as lock,
    ):
        return removal.clean_up(site.holding(lock))


@contextlib.contextmanager
def _locked(path: Path, seconds: float, what: str) -> Iterator[int]:
    """Hold a lock for a block; yield its descriptor. Raise WorktreeError if not free within `seconds`."""
    descriptor = open_lock(path)
    try:
        if not wait_lock(descriptor, seconds):
            raise WorktreeError(f"{what} by another process. Try again; `fuser {path}` shows which.")
        yield descriptor
    finally:
        os.close(descriptor)
