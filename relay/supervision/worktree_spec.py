"""The worktree of an agent, as a fleet file describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["never", "merged"]


@dataclass(frozen=True, slots=True)
class WorktreeSpec:
    """The worktree of an agent, as its table in the fleet file says (docs/WORKTREES.md).

    path:    where it is, relative to the repository's main worktree. `{repo}` and `{agent}` are filled in, as
             in `branch`, and `{branch}`, with "-" for "/".
    branch:  the branch that is checked out there; made from `base` if there is none.
    copy:    files and folders that git does not keep, copied from the worktree in which relay was started.
             link: those that are shared with it, by symbolic links. Both relative to its top.
    setup:   commands for /bin/sh, run there in this order until one fails, each for at most setup_timeout
             seconds.
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
