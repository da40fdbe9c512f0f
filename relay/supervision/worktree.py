"""A git worktree for each agent, so that agents in one repository do not overwrite each other's files.

    prepare:   claim ─→ git worktree add ─→ copy, link ─→ setup ─→ Worktree
    clean_up:  is there work in it? ─→ git worktree remove

A worktree is prepared once and kept: the next start of its agent finds it as the agent left it. Steps that a
kill interrupted are repeated. Work is never deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from relay import names
from relay.errors import WorktreeError
from relay.home import Home
from relay.storage.locks import open_lock, wait_lock
from relay.supervision import worktree_setup
from relay.supervision.git import LOCAL, Checkout, Git, Repository
from relay.supervision.worktree_claim import Claims, Stage, WorktreeClaim, WorktreeOwner
from relay.supervision.worktree_setup import Progress
from relay.text import count, listed

ENDING = 15.0
"""Seconds to wait for another agent's session that is still acting on its agent's last output."""

PATIENCE = 600.0
"""Seconds to wait while git works for other agents: a checkout may be large."""

_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
"""What git keeps in a worktree's metadata while a merge, a rebase, ... is unfinished."""

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


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree that is ready for its agent.

    branch: what is checked out; "" if the agent has detached its HEAD. created: this call created it.
    """

    path: Path
    branch: str
    created: bool


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """The result of a clean-up. kept: why the worktree was not removed; "" if it was, or there was none.

    branch: the branch that was kept without its worktree; "" if it was removed, too.
    """

    path: Path
    kept: str = ""
    branch: str = ""


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
    site = _Site(spec, agent, team, home, directory, env, progress)
    with site.locked():
        with site.list_locked():
            claim, created = site.make(lasting)
        site.fill(claim, cancelled)
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
    site = _Site(spec, agent, team, home, directory, env, lambda line: None)
    with site.locked(), site.list_locked():
        return site.clean_up()


class _Site:
    """The place of an agent's worktree, whether one exists there or not."""

    def __init__(
        self,
        spec: WorktreeSpec,
        agent: str,
        team: str,
        home: Home,
        directory: Path,
        env: Mapping[str, str] | None,
        progress: Progress,
    ) -> None:
        given = os.environ if env is None else env
        self._spec, self._progress = spec, progress
        self._env = {name: value for name, value in given.items() if name not in LOCAL}
        self.repository = Repository.at(directory, self._env)
        words = {"repo": self.repository.name, "agent": agent}
        self._branch = _filled(spec.branch, words)
        path = _filled(spec.path, {**words, "branch": self._branch.replace("/", "-")})
        self.path = _absolute(self.repository, path)
        self._claims, self._owner = Claims(self.repository.common), WorktreeOwner.of(home, team, agent)
        claim = self._claims.read(self.path)
        if claim is not None and claim.owner.same(self._owner) and names.same(claim.branch, self._branch):
            self.path, self._branch = Path(claim.path), claim.branch  # as it was first spelled
        self._git = self.repository.git
        if self.repository.top is not None and _same(self.repository.top, self.path):
            self._git = replace(
                self._git, directory=self.repository.main
            )  # whose HEAD is not the agent's own
        self._log = home.state / "worktrees" / f"{names.key(agent)}@{names.key(team)}.log"

    def locked(self) -> AbstractContextManager[int]:
        """Keep others from preparing or removing this worktree."""
        what = f"the worktree {self.path} is being prepared, or removed"
        return _locked(self._claims.lock_of(self.path), 0, what)

    @contextmanager
    def list_locked(self) -> Iterator[None]:
        """Keep others from changing git's list of worktrees, while git runs even if relay is killed."""
        free, what = self._git, "another worktree of the repository is being created"
        with _locked(self._claims.lock, PATIENCE, what) as lock:
            self._git = replace(free, locks=(lock,))
            yield
        self._git = free

    def make(self, lasting: bool) -> tuple[WorktreeClaim, bool]:
        """Find or create the worktree and claim it; return the claim, and True if the worktree is new."""
        for each in self._claims.all():
            if each.stage == "adding":  # interrupted, since we hold the lock
                self.repository.drop_half_made(Path(each.path))
        claim, found = self._own(lasting), self.repository.checkout(self.path)
        if claim is not None and claim.stage == "adding":
            self.repository.unlock(claim.branch)
        if found is not None and _same(found.path, self.repository.main):
            raise WorktreeError(f"{self.path} is the main worktree of the repository. Choose another path.")
        if found is not None and claim is not None and claim.stage == "adding":
            found = self._recover(found, claim.branch)
        if found is not None and found.prunable:
            self._forget(found, claim)
            found = None
        if found is None:
            return self._add(claim, lasting), True
        own = claim is not None and claim.owner.same(self._owner) and claim.branch == self._branch
        if found.branch != self._branch:
            has = f"the branch {found.branch} checked out" if found.branch else "no branch checked out"
            if not own:
                raise WorktreeError(
                    f"the worktree {self.path} has {has}, not {self._branch}. "
                    "Choose another path, or check that branch out there."
                )
            self._progress(f"the worktree {self.path} has {has}, as the agent left it")
        self._progress(f"using the worktree {self.path}")
        if claim is None or not own:
            made = claim is not None and claim.made
            claim = WorktreeClaim(str(self.path), self._branch, self._owner, lasting, "filling", made=made)
        stage: Stage = "ready" if claim.stage == "ready" else "filling"
        return self._claims.note(replace(claim, lasting=lasting, stage=stage)), False

    def _own(self, lasting: bool) -> WorktreeClaim | None:
        """Return the claim on the worktree, None if there is none. Raise WorktreeError if it is taken."""
        claim = self._claims.read(self.path)
        if claim is None or claim.owner.same(self._owner):
            return claim
        if not os.path.lexists(self.path):
            return None  # the user has removed it
        other = f"{claim.owner.agent} (team {claim.owner.team})"
        if not claim.owner.has_ended(within=ENDING):
            raise WorktreeError(
                f"the worktree {self.path} is in use by {other}. Give each agent its own branch and path, or "
                f"stop that agent: `relay stop {claim.owner.agent}`."
            )
        if claim.lasting and lasting:
            raise WorktreeError(
                f"the worktree {self.path} belongs to {other}. Give each agent its own branch and path, or "
                f"remove that worktree: `git worktree remove {self.path}`."
            )
        self._progress(f"taking over the worktree {self.path} from {other}, which is not running")
        return claim

    def _add(self, claim: WorktreeClaim | None, lasting: bool) -> WorktreeClaim:
        """Create the worktree, and the branch if it is missing."""
        if os.path.lexists(self.path) and not (self.path.is_dir() and not any(self.path.iterdir())):
            raise WorktreeError(
                f"{self.path} exists, but is not a worktree of {self.repository.main}. "
                "Move it away, or choose another path."
            )
        exists, remote = self._branch_exists(), ""
        if exists:
            self._check_free()
            arguments = [str(self.path), self._branch]
        elif self._spec.base == "HEAD" and (remote := self._remote()):
            arguments = ["--track", "-b", self._branch, str(self.path), f"{remote}/{self._branch}"]
        else:
            arguments = ["--no-track", "-b", self._branch, str(self.path), self._base()]
        made = not exists or (claim is not None and claim.made and claim.branch == self._branch)
        noted = self._claims.note(
            WorktreeClaim(str(self.path), self._branch, self._owner, lasting, made=made)
        )
        of = "" if exists else f", from {f'{remote}/{self._branch}' if remote else self._spec.base}"
        self._progress(f"creating the worktree {self.path} (branch {self._branch}{of})")
        try:
            self._git.run("worktree", "add", *arguments)
        except WorktreeError:
            if self.repository.checkout(self.path) is None:
                self._claims.remove(self.path)
            raise
        if (self.path / ".gitmodules").exists():
            self._progress(
                "its submodules are empty: `git submodule update --init --recursive` in `setup` fills them"
            )
        return self._claims.note(replace(noted, stage="filling"))

    def _branch_exists(self) -> bool:
        """Return True if the branch exists. Raise WorktreeError for a name that no branch can have."""
        if self._branch.startswith("-") or not self._git.succeeds(
            "check-ref-format", f"refs/heads/{self._branch}"
        ):
            raise WorktreeError(
                f"no branch can be called {self._branch!r} (`git help check-ref-format`). Choose another "
                "name."
            )
        branches = self.repository.branches()
        if self._branch in branches:
            return True
        if alike := next((each for each in branches if names.same(each, self._branch)), ""):
            raise WorktreeError(
                f"there is a branch {alike}, which many file systems cannot distinguish from {self._branch}. "
                "Spell it that way, or choose another name."
            )
        return False

    def _remote(self) -> str:
        """Return the remote that has the branch, "" if none has, as `git worktree add` guesses it.

        Raise WorktreeError if several have, and checkout.defaultRemote names none of them.
        """
        has = [
            name
            for name in self._git.run("remote").splitlines()
            if self._git.succeeds("show-ref", "--verify", "--quiet", f"refs/remotes/{name}/{self._branch}")
        ]
        if len(has) > 1:
            chosen = self._git.run("config", "--default", "", "--get", "checkout.defaultRemote")
            if chosen not in has:
                raise WorktreeError(
                    f"several remotes have a branch {self._branch}: {', '.join(has)}. Choose one with `git "
                    f"config checkout.defaultRemote {has[0]}`, or create the branch: `git branch "
                    f"{self._branch} {has[0]}/{self._branch}`."
                )
            return chosen
        return has[0] if has else ""

    def _check_free(self) -> None:
        """Raise WorktreeError if the branch is checked out in another worktree."""
        for each in self.repository.checkouts():
            if each.branch == self._branch:
                claim = self._claims.read(each.path)
                whose = "" if claim is None else f", the worktree of {claim.owner.agent}"
                advice = f"or `git worktree remove {each.path}`"
                if each.bare or _same(each.path, self.repository.main):
                    advice = "or check another one out there"
                raise WorktreeError(
                    f"the branch {self._branch} is checked out in {each.path}{whose}, and git allows it in "
                    f"only one worktree. Choose another branch, {advice}."
                )

    def _recover(self, found: Checkout, branch: str) -> Checkout | None:
        """Finish an interrupted `git worktree add`, or undo it and return None. No agent has run there."""
        self._progress(f"continuing the interrupted creation of {self.path}")
        there = Git(self.path, self._git.env, self._git.locks)
        if found.locked is not None:
            self._git.run("worktree", "unlock", str(found.path))
        if (self.path / ".git").is_file() and there.succeeds(
            "rev-parse", "--verify", "--quiet", "HEAD^{commit}"
        ):
            metadata = Path(there.run("rev-parse", "--absolute-git-dir"))
            if not _same(metadata.parent, self.repository.common / "worktrees"):
                raise WorktreeError(f"{self.path} belongs to another repository. Move it away.")
            for lock in metadata.glob("*.lock"):
                lock.unlink(missing_ok=True)  # left by a git that has ended, since we hold the lock
            there.run("checkout", "--force", branch)
            return self.repository.checkout(self.path)
        try:
            (self.path / ".git").unlink(missing_ok=True)
            if self.path.is_dir():
                self.path.rmdir()
        except OSError as error:
            raise WorktreeError(
                f"an interrupted `git worktree add` has left {self.path} ({error.strerror}). Move it away."
            ) from None
        self._git.run("worktree", "remove", str(found.path))
        return None

    def _forget(self, found: Checkout, claim: WorktreeClaim | None) -> None:
        """Make git forget a worktree whose files someone has removed."""
        if claim is None:
            raise WorktreeError(
                f"the files of the worktree {found.path} are gone, but git still lists it. Restore them, or "
                f"make git forget it: `git worktree remove {found.path}`."
            )
        if os.path.lexists(self.path):
            raise WorktreeError(
                f"{self.path} has lost its .git file. Restore it with "
                f"`git -C {self.repository.main} worktree repair`."
            )
        self._progress(f"the worktree {found.path} was removed without git; creating it again")
        self._git.run("worktree", "remove", str(found.path))

    def fill(self, claim: WorktreeClaim, cancelled: Callable[[], bool]) -> None:
        """Copy, link and set up, unless that is already done."""
        spec = self._spec
        digest = hashlib.sha256(json.dumps([spec.copy, spec.link, spec.setup]).encode()).hexdigest()[:16]
        if claim.stage == "ready" and claim.contents == digest:
            return
        if worktree_setup.end_interrupted(claim.setup_pid, claim.setup_start, self.path):
            self._progress("ended a command of an interrupted setup")
        claim = self._claims.note(replace(claim, contents="", stage="filling", setup_pid=0, setup_start=""))
        if spec.copy or spec.link:
            worktree_setup.fill(self._source(), self.path, spec.copy, spec.link, self._progress)

        def started(pid: int, start: str) -> None:
            self._claims.note(replace(claim, setup_pid=pid, setup_start=start))

        if spec.setup:
            worktree_setup.run(
                spec.setup,
                self.path,
                self._env,
                self._log,
                limit=spec.setup_timeout,
                progress=self._progress,
                started=started,
                cancelled=cancelled,
            )
        self._claims.note(replace(claim, contents=digest, stage="ready"))

    def clean_up(self) -> CleanedUp:
        """Remove the worktree if its agent has ended and no work would be lost."""
        claim, found = self._claims.read(self.path), self.repository.checkout(self.path)
        if found is None:
            return CleanedUp(self.path)
        if self._spec.cleanup == "never":
            return CleanedUp(self.path, "cleanup is 'never'")
        if claim is None or not claim.owner.same(self._owner):
            return CleanedUp(self.path, "it is not this agent's")
        if not claim.owner.has_ended(within=0):
            return CleanedUp(self.path, f"{claim.owner.agent} is running")
        if why := self._work(found):
            return CleanedUp(self.path, why)
        source = self._source() if self._spec.link else self.path
        links = [name for name in self._spec.link if worktree_setup.is_ours(source, self.path, name)]
        for name in links:
            (self.path / name).unlink()
        try:
            self._git.run("worktree", "remove", str(found.path))
        except WorktreeError as error:
            worktree_setup.fill(source, self.path, (), links, self._progress)
            return CleanedUp(self.path, str(error))
        self._claims.remove(self.path)
        gone = (
            claim.made and found.branch == self._branch and self._git.succeeds("branch", "-d", self._branch)
        )
        return CleanedUp(self.path, branch="" if gone else found.branch)

    def _work(self, found: Checkout) -> str:
        """Return what would be lost with the worktree; "" if nothing."""
        if found.prunable:
            return "its files are gone"
        if found.locked is not None:
            return f"it is locked: {found.locked}" if found.locked else "it is locked"
        there = replace(self._git, directory=self.path)
        metadata = Path(there.run("rev-parse", "--absolute-git-dir"))
        if left := [name for name in _UNFINISHED if (metadata / name).exists()]:
            return f"a merge, a rebase or the like is unfinished ({', '.join(left)})"
        source = self._source() if self._spec.copy or self._spec.link else self.path
        lines = there.run("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none")
        files = [
            each[3:]
            for each in lines.split("\0")
            if each
            and not (
                each.startswith("?? ")
                and each[3:] in self._spec.link
                and worktree_setup.is_ours(source, self.path, each[3:])
            )
        ]
        files += worktree_setup.changed(source, self.path, self._spec.copy)
        if files:
            return f"{count(len(files), 'file')} not committed: {listed(sorted(set(files)), 5)}"
        if not self._git.succeeds(
            "merge-base", "--is-ancestor", there.run("rev-parse", "HEAD"), self._base()
        ):
            return f"its commits are not all in {self._spec.base}"
        return ""

    def _source(self) -> Path:
        """Return the worktree from which files are copied."""
        top, main = self.repository.top, self.repository.main
        if top is not None and not _same(top, self.path):
            return top
        if self.repository.checkouts()[0].bare:
            raise WorktreeError(
                f"{main} is a bare repository: there are no files to copy or link. Remove `copy` and `link`, "
                "or start from one of its worktrees."
            )
        return main

    def _base(self) -> str:
        """Return the id of the commit that a new branch starts from."""
        base = self._spec.base
        given = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
        if not self._git.succeeds(*given):
            if base == "HEAD":
                raise WorktreeError(
                    f"{self.repository.main} has no commits yet to start a branch from. Create the first one "
                    "with `git commit`."
                )
            raise WorktreeError(f"there is no commit {base!r} in {self.repository.main}. Correct `base`.")
        return self._git.run(*given)


@contextmanager
def _locked(path: Path, seconds: float, what: str) -> Iterator[int]:
    """Hold a lock for a block; yield its descriptor. Raise WorktreeError if not free within `seconds`."""
    descriptor = open_lock(path)
    try:
        if not wait_lock(descriptor, seconds):
            raise WorktreeError(f"{what} by another process. Try again; `fuser {path}` shows which.")
        yield descriptor
    finally:
        os.close(descriptor)


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _filled(text: str, words: Mapping[str, str]) -> str:
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


def _absolute(repository: Repository, given: str) -> Path:
    """Return the absolute path that `given` means. Raise WorktreeError if no worktree may be there."""
    if not given or "\n" in given:
        raise WorktreeError(f"{given!r} is not a path for a worktree.")
    path = Path(given).expanduser()
    if not path.is_absolute():  # not in the worktree of a repository around a submodule
        path = repository.outermost() / path
    path = Path(os.path.normpath(path))
    if path.is_relative_to(repository.common):
        raise WorktreeError(f"{path} is in git's own folder. Choose another path for the worktree.")
    return path
