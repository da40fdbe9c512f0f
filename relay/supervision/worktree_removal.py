"""Removing a worktree without unsaved work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from relay.errors import WorktreeError
from relay.supervision import worktree_files
from relay.supervision.git import Checkout
from relay.supervision.worktree_site import Site
from relay.text import count, listed

_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
"""What git keeps in a worktree's metadata while a merge, a rebase, ... is unfinished."""


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """The result of a clean-up. kept: why the worktree was not removed; "" if it was, or there was none.

    branch: the branch that was kept without its worktree; "" if it was removed, too.
    """

    path: Path
    kept: str = ""
    branch: str = ""


def clean_up(site: Site) -> CleanedUp:
    """Remove the worktree if its agent has ended and no work would be lost."""
    claim, found = site.claims.read(site.path), site.repository.checkout(site.path)
    if found is None:
        return CleanedUp(site.path)
    if site.spec.cleanup == "never":
        return CleanedUp(site.path, "cleanup is 'never'")
    if claim is None or not claim.owner.same(site.owner):
        return CleanedUp(site.path, "it is not this agent's")
    if not claim.owner.has_ended(within=0):
        return CleanedUp(site.path, f"{claim.owner.agent} is running")
    if why := _work(site, found):
        return CleanedUp(site.path, why)
    source = site.source() if site.spec.link else site.path
    links = [name for name in site.spec.link if worktree_files.is_ours(source, site.path, name)]
    for name in links:
        (site.path / name).unlink()
    try:
        site.git.run("worktree", "remove", str(found.path))
    except WorktreeError as error:
        worktree_files.fill(source, site.path, (), links, site.progress)
        return CleanedUp(site.path, str(error))
    site.claims.remove(site.path)
    gone = claim.made and found.branch == site.branch and site.git.succeeds("branch", "-d", site.branch)
    return CleanedUp(site.path, branch="" if gone else found.branch)


def _work(site: Site, found: Checkout) -> str:
    """Return what would be lost with the worktree; "" if nothing."""
    if found.prunable:
        return "its files are gone"
    if found.locked is not None:
        return f"it is locked: {found.locked}" if found.locked else "it is locked"
    there = replace(site.git, directory=site.path)
    metadata = Path(there.run("rev-parse", "--absolute-git-dir"))
    if left := [name for name in _UNFINISHED if (metadata / name).exists()]:
        return f"a merge, a rebase or the like is unfinished ({', '.join(left)})"
    source = site.source() if site.spec.copy or site.spec.link else site.path
    lines = there.run("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none")
    files = [
        each[3:]
        for each in lines.split("\0")
        if each
        and not (
            each.startswith("?? ")
            and each[3:] in site.spec.link
            and worktree_files.is_ours(source, site.path, each[3:])
        )
    ]
    files += worktree_files.changed(source, site.path, site.spec.copy)
    if files:
        return f"{count(len(files), 'file')} not committed: {listed(sorted(set(files)), 5)}"
    if not site.git.succeeds("merge-base", "--is-ancestor", there.run("rev-parse", "HEAD"), site.base()):
        return f"its commits are not all in {site.spec.base}"
    return ""
