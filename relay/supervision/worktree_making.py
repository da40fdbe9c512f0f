"""Creating a worktree, with everything the agent needs in it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relay import names
from relay.errors import WorktreeError
from relay.supervision import worktree_files, worktree_setup
from relay.supervision.git import Checkout, Git
from relay.supervision.worktree_claim import Stage, WorktreeClaim
from relay.supervision.worktree_site import Site, same

ENDING = 15.0
"""Seconds to wait for another agent's session that is still acting on its agent's last output."""


def make(site: Site, lasting: bool) -> tuple[WorktreeClaim, bool]:
    """Find or create the worktree and claim it; return the claim, and True if the worktree is new."""
    for each in site.claims.all():
        if each.stage == "adding":  # interrupted, since we hold the lock
            site.repository.drop_half_made(Path(each.path))
    claim, found = _own(site, lasting), site.repository.checkout(site.path)
    if claim is not None and claim.stage == "adding":
        site.repository.unlock(claim.branch)
    if found is not None and same(found.path, site.repository.main):
        raise WorktreeError(f"{site.path} is the main worktree of the repository. Choose another path.")
    if found is not None and claim is not None and claim.stage == "adding":
        found = _recover(site, found, claim.branch)
    if found is not None and found.prunable:
        _forget(site, found, claim)
        found = None
    if found is None:
        return _add(site, claim, lasting), True
    own = claim is not None and claim.owner.same(site.owner) and claim.branch == site.branch
    if found.branch != site.branch:
        has = f"the branch {found.branch} checked out" if found.branch else "no branch checked out"
        if not own:
            raise WorktreeError(
                f"the worktree {site.path} has {has}, not {site.branch}. "
                "Choose another path, or check that branch out there."
            )
        site.progress(f"the worktree {site.path} has {has}, as the agent left it")
    site.progress(f"using the worktree {site.path}")
    if claim is None or not own:
        made = claim is not None and claim.made
        claim = WorktreeClaim(str(site.path), site.branch, site.owner, lasting, "filling", made=made)
    stage: Stage = "ready" if claim.stage == "ready" else "filling"
    return site.claims.note(replace(claim, lasting=lasting, stage=stage)), False


def _own(site: Site, lasting: bool) -> WorktreeClaim | None:
    """Return the claim on the worktree, None if there is none. Raise WorktreeError if it is taken."""
    claim = site.claims.read(site.path)
    if claim is None or claim.owner.same(site.owner):
        return claim
    if not os.path.lexists(site.path):
        return None  # the user has removed it
    other = f"{claim.owner.agent} (team {claim.owner.team})"
    if not claim.owner.has_ended(within=ENDING):
        raise WorktreeError(
            f"the worktree {site.path} is in use by {other}. Give each agent its own branch and path, or "
            f"stop that agent: `relay stop {claim.owner.agent}`."
        )
    if claim.lasting and lasting:
        raise WorktreeError(
            f"the worktree {site.path} belongs to {other}. Give each agent its own branch and path, or "
            f"remove that worktree: `git worktree remove {site.path}`."
        )
    site.progress(f"taking over the worktree {site.path} from {other}, which is not running")
    return claim


def _add(site: Site, claim: WorktreeClaim | None, lasting: bool) -> WorktreeClaim:
    """Create the worktree, and the branch if it is missing."""
    if os.path.lexists(site.path) and not (site.path.is_dir() and not any(site.path.iterdir())):
        raise WorktreeError(
            f"{site.path} exists, but is not a worktree of {site.repository.main}. "
            "Move it away, or choose another path."
        )
    exists, remote = _branch_exists(site), ""
    if exists:
        _check_free(site)
        arguments = [str(site.path), site.branch]
    elif site.spec.base == "HEAD" and (remote := _remote(site)):
        arguments = ["--track", "-b", site.branch, str(site.path), f"{remote}/{site.branch}"]
    else:
        arguments = ["--no-track", "-b", site.branch, str(site.path), site.base()]
    made = not exists or (claim is not None and claim.made and claim.branch == site.branch)
    noted = site.claims.note(WorktreeClaim(str(site.path), site.branch, site.owner, lasting, made=made))
    of = "" if exists else f", from {f'{remote}/{site.branch}' if remote else site.spec.base}"
    site.progress(f"creating the worktree {site.path} (branch {site.branch}{of})")
    try:
        site.git.run("worktree", "add", *arguments)
    except WorktreeError:
        if site.repository.checkout(site.path) is None:
            site.claims.remove(site.path)
        raise
    if (site.path / ".gitmodules").exists():
        site.progress(
            "its submodules are empty: `git submodule update --init --recursive` in `setup` fills them"
        )
    return site.claims.note(replace(noted, stage="filling"))


def _branch_exists(site: Site) -> bool:
    """Return True if the branch exists. Raise WorktreeError for a name that no branch can have."""
    if site.branch.startswith("-") or not site.git.succeeds("check-ref-format", f"refs/heads/{site.branch}"):
        raise WorktreeError(
            f"no branch can be called {site.branch!r} (`git help check-ref-format`). Choose another name."
        )
    branches = site.repository.branches()
    if site.branch in branches:
        return True
    if alike := next((each for each in branches if names.same(each, site.branch)), ""):
        raise WorktreeError(
            f"there is a branch {alike}, which many file systems cannot distinguish from {site.branch}. "
            "Spell it that way, or choose another name."
        )
    return False


def _remote(site: Site) -> str:
    """Return the remote that has the branch, "" if none has, as `git worktree add` guesses it.

    Raise WorktreeError if several have, and checkout.defaultRemote names none of them.
    """
    has = [name for name in site.git.run("remote").splitlines() if _has(site, name)]
    if len(has) > 1:
        chosen = site.git.run("config", "--default", "", "--get", "checkout.defaultRemote")
        if chosen not in has:
            raise WorktreeError(
                f"several remotes have a branch {site.branch}: {', '.join(has)}. Choose one with `git config "
                f"checkout.defaultRemote {has[0]}`, or create the branch: `git branch {site.branch} "
                f"{has[0]}/{site.branch}`."
            )
        return chosen
    return has[0] if has else ""


def _has(site: Site, remote: str) -> bool:
    ref = f"refs/remotes/{remote}/{site.branch}"
    return site.git.succeeds("show-ref", "--verify", "--quiet", ref)


def _check_free(site: Site) -> None:
    """Raise WorktreeError if the branch is checked out in another worktree."""
    for each in site.repository.checkouts():
        if each.branch == site.branch:
            claim = site.claims.read(each.path)
            whose = "" if claim is None else f", the worktree of {claim.owner.agent}"
            advice = f"or `git worktree remove {each.path}`"
            if each.bare or same(each.path, site.repository.main):
                advice = "or check another one out there"
            raise WorktreeError(
                f"the branch {site.branch} is checked out in {each.path}{whose}, and git allows it in only "
                f"one worktree. Choose another branch, {advice}."
            )


def _recover(site: Site, found: Checkout, branch: str) -> Checkout | None:
    """Finish an interrupted `git worktree add`, or undo it and return None. No agent has run there."""
    site.progress(f"continuing the interrupted creation of {site.path}")
    there = Git(site.path, site.git.env, site.git.locks)
    if found.locked is not None:
        site.git.run("worktree", "unlock", str(found.path))
    if (site.path / ".git").is_file() and there.succeeds("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        metadata = Path(there.run("rev-parse", "--absolute-git-dir"))
        if not same(metadata.parent, site.repository.common / "worktrees"):
            raise WorktreeError(f"{site.path} belongs to another repository. Move it away.")
        for lock in metadata.glob("*.lock"):
            lock.unlink(missing_ok=True)  # left by a git that has ended, since we hold the lock
        there.run("checkout", "--force", branch)
        return site.repository.checkout(site.path)
    try:
        (site.path / ".git").unlink(missing_ok=True)
        if site.path.is_dir():
            site.path.rmdir()
    except OSError as error:
        raise WorktreeError(
            f"an interrupted `git worktree add` has left {site.path} ({error.strerror}). Move it away."
        ) from None
    site.git.run("worktree", "remove", str(found.path))
    return None


def _forget(site: Site, found: Checkout, claim: WorktreeClaim | None) -> None:
    """Make git forget a worktree whose files someone has removed."""
    if claim is None:
        raise WorktreeError(
            f"the files of the worktree {found.path} are gone, but git still lists it. Restore them, or make "
            f"git forget it: `git worktree remove {found.path}`."
        )
    if os.path.lexists(site.path):
        raise WorktreeError(
            f"{site.path} has lost its .git file. Restore it with "
            f"`git -C {site.repository.main} worktree repair`."
        )
    site.progress(f"the worktree {found.path} was removed without git; creating it again")
    site.git.run("worktree", "remove", str(found.path))


def fill(site: Site, claim: WorktreeClaim, cancelled: Callable[[], bool]) -> None:
    """Copy, link and set up, unless that is already done."""
    spec = site.spec
    contents = hashlib.sha256(json.dumps([spec.copy, spec.link, spec.setup]).encode()).hexdigest()[:16]
    if claim.stage == "ready" and claim.contents == contents:
        return
    if worktree_setup.end_interrupted(claim.setup_pid, claim.setup_start, site.path):
        site.progress("ended a command of an interrupted setup")
    claim = site.claims.note(replace(claim, contents="", stage="filling", setup_pid=0, setup_start=""))
    if spec.copy or spec.link:
        worktree_files.fill(site.source(), site.path, spec.copy, spec.link, site.progress)

    def started(pid: int, start: str) -> None:
        site.claims.note(replace(claim, setup_pid=pid, setup_start=start))

    if spec.setup:
        worktree_setup.run(
            spec.setup,
            site.path,
            site.env,
            site.log,
            limit=spec.setup_timeout,
            progress=site.progress,
            started=started,
            cancelled=cancelled,
        )
    site.claims.note(replace(claim, contents=contents, stage="ready"))
