"""The worktree of an agent, as a fleet file describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["never", "merged"]


@dataclass(frozen=True, slots=True)
class WorktreeSpec:
    """The worktree of an agent, as defined by its table in the fleet file (docs/FLEET.md).

    path:    its location, relative to the repository's main worktree, or to that of the outermost repository
             around a submodule. `{repo}` and `{agent}` are replaced, as in `branch`; so is `{branch}`, with
             "-" for "/".
    branch:  the branch to check out; created if missing: from `base`, or if that is HEAD, from a remote's
             branch of that name, which then is its upstream.
    copy:    files and folders that git does not track, copied from the worktree in which relay was started.
             link: those to share with that worktree by symbolic links. Both are relative to its top.
    setup:   commands for /bin/sh, run in the new worktree in this order until one fails, each for at most
             setup_timeout seconds.
    cleanup: merged: a worktree is removed once it is clean and its branch is merged. Work is never deleted.
    """

    path: str = "../{repo}-worktrees/{agent}"
    branch: str = "relay/{agent}"
    base: str = "HEAD"
    copy: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    setup_timeout: float = 300.0
    cleanup: Cleanup = "never"
