"""A git worktree for each agent, so that several of one repository do not write over one another's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["never", "merged"]


@dataclass(frozen=True, slots=True)
class WorktreeSpec:
    """The worktree of an agent, as its table in the fleet file says (docs/WORKTREES.md).

    path:    where it is; relative to the top of the repository. `{repo}` and `{agent}` are filled in, as in
             `branch`.
    branch:  the branch that is checked out there; made from `base` if there is none.
    copy:    files and folders, relative to the top, that git does not keep, and that are copied from the
             repository's main worktree. link: those that the worktree shares with it, by symbolic links.
    setup:   commands for /bin/sh, run there in this order until one fails, each within setup_timeout (seconds).
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
