"""A git worktree for each agent, so that agents in one repository do not overwrite each other's files.

    AgentWorktree.prepare:   claim ─→ git worktree add ─→ copy, link ─→ setup ─→ Worktree
    AgentWorktree.clean_up:  is there work in it? ─→ git worktree remove

A worktree is prepared once and kept: the next start of its agent finds it as the agent left it. Steps that a
kill interrupted are repeated. Work is never deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

from relay import names
from relay.dataclass import dataclass, replace
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

GIT_LOCK_TIMEOUT = 600.0
"""Seconds to wait while git works for other agents: a checkout may be large."""

_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
"""What git keeps in a worktree's metadata while a merge, a rebase, ... is unfinished."""

Cleanup = Literal["never", "merged"]


@dataclass(frozen=True, slots=True)
class WorktreeSpec:
    """The worktree of an agent, as defined by its table in the fleet file, which docs/FLEET.md describes.

    path:   relative to the repository's main worktree, or to that of the outermost repository around a
            submodule. `{repo}` and `{agent}` are replaced, as in `branch`; so is `{branch}`, its "/" as "-".
    branch: a remote's branch of that name becomes its upstream if `base` is HEAD.
    copy, link: relative to the top of the worktree in which relay was started.
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


class AgentWorktree:
    """The worktree of one agent, whether it exists or not. Its methods raise WorktreeError, with advice."""

    def __init__(
        self,
        spec: WorktreeSpec,
        agent: str,
        *,
        team: str,
        home: Home,
        directory: Path,
        env: Mapping[str, str] | None = None,
        progress: Progress = lambda line: None,
    ) -> None:
        """directory: in the agent's repository. env: for git and the setup (default: os.environ).

        progress: called with each step and each line of the setup's output, in the caller's thread.
        """
        given = os.environ if env is None else env
        self._spec, self._progress = spec, progress
        self._env = {name: value for name, value in given.items() if name not in LOCAL}
        self._repository = Repository.at(directory, self._env)
        words = {"repo": self._repository.name, "agent": agent}
        self._branch = _filled(spec.branch, words)
        path = _filled(spec.path, {**words, "branch": self._branch.replace("/", "-")})
        self._path = _absolute(self._repository, path)
        self._claims, self._owner = Claims(self._repository.common), WorktreeOwner.of(home, team, agent)
        claim = self._claims.read(self._path)
        if claim is not None and claim.owner.same(self._owner) and names.same(claim.branch, self._branch):
            self._path, self._branch = Path(claim.path), claim.branch  # as it was first spelled
        self._git = self._repository.git
        if self._repository.top is not None and _same(self._repository.top, self._path):
            # Its HEAD is not the agent's own.
            self._git = replace(self._git, directory=self._repository.main)
        self._log = home.state / "worktrees" / f"{names.key(agent)}@{names.key(team)}.log"

    def prepare(self, *, lasting: bool = True) -> Worktree:
        """Create the worktree, or find it as the agent left it. Block until git and the setup are done.

        Call before the agent starts; without `lasting`, call while the agent's name is claimed, or another
        agent could take the worktree meanwhile.

        lasting: the agent keeps the worktree after it has ended. False: another agent may then take it over,
                 and this one may take over the worktree of an agent that is not running.

        Raise SetupFailed if a command of the setup failed.
        """
        with self._locked():
            with self._list_locked():
                claim, created = self._make(lasting)
            self._fill(claim)
            found = self._repository.checkout(self._path)
        return Worktree(self._path, "" if found is None else found.branch, created)

    def clean_up(self) -> CleanedUp:
        """Remove the worktree if `spec.cleanup` says so, the agent has ended, and it contains no work.

        Work is anything changed, added or unfinished, and commits that are not in `spec.base`. Ignored files
        are not work, unless they were copied there and have changed.
        """
        with self._locked(), self._list_locked():
            return self._removed()

    def _locked(self) -> AbstractContextManager[int]:
        """Keep others from preparing or removing this worktree."""
        what = f"the worktree {self._path} is being prepared, or removed"
        return _lock(self._claims.lock_of(self._path), 0, what)

    @contextmanager
    def _list_locked(self) -> Iterator[None]:
        """Keep others from changing git's list of worktrees, while git runs even if relay is killed."""
        free, what = self._git, "another worktree of the repository is being created"
        with _lock(self._claims.lock, GIT_LOCK_TIMEOUT, what) as lock:
            self._git = replace(free, locks=(lock,))
            try:
                yield
            finally:
                self._git = free

    def _make(self, lasting: bool) -> tuple[WorktreeClaim, bool]:
        """Find or create the worktree and claim it; return the claim, and True if the worktree is new."""
        for each in self._claims.all():
            if each.stage == "adding":  # interrupted, since we hold the lock
                self._repository.drop_half_made(Path(each.path))
        claim, found = self._own(lasting), self._repository.checkout(self._path)
        if claim is not None and claim.stage == "adding":
            self._repository.unlock(claim.branch)
        if found is not None and _same(found.path, self._repository.main):
            raise WorktreeError(f"{self._path} is the main worktree of the repository. Choose another path.")
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
                    f"the worktree {self._path} has {has}, not {self._branch}. "
                    "Choose another path, or check that branch out there."
                )
            self._progress(f"the worktree {self._path} has {has}, as the agent left it")
        self._progress(f"using the worktree {self._path}")
        if claim is None or not own:
            made = claim is not None and claim.made
            claim = WorktreeClaim(str(self._path), self._branch, self._owner, lasting, "filling", made=made)
        stage: Stage = "ready" if claim.stage == "ready" else "filling"
        return self._claims.note(replace(claim, lasting=lasting, stage=stage)), False

    def _own(self, lasting: bool) -> WorktreeClaim | None:
        """Return the claim on the worktree, None if there is none. Raise WorktreeError if it is taken."""
        claim = self._claims.read(self._path)
        if claim is None or claim.owner.same(self._owner):
            return claim
        if not os.path.lexists(self._path):
            return None  # the user has removed it
        other = f"{claim.owner.agent} (team {claim.owner.team})"
        if not claim.owner.has_ended(within=ENDING):
            raise WorktreeError(
                f"the worktree {self._path} is in use by {other}. Give each agent its own branch and path, "
                f"or stop that agent: `relay stop {claim.owner.agent}`."
            )
        if claim.lasting and lasting:
            raise WorktreeError(
                f"the worktree {self._path} belongs to {other}. Give each agent its own branch and path, or "
                f"remove that worktree: `git worktree remove {self._path}`."
            )
        self._progress(f"taking over the worktree {self._path} from {other}, which is not running")
        return claim

    def _add(self, claim: WorktreeClaim | None, lasting: bool) -> WorktreeClaim:
        """Create the worktree, and the branch if it is missing."""
        if os.path.lexists(self._path) and not (self._path.is_dir() and not any(self._path.iterdir())):
            raise WorktreeError(
                f"{self._path} exists, but is not a worktree of {self._repository.main}. "
                "Move it away, or choose another path."
            )
        exists, remote = self._branch_exists(), ""
        if exists:
            self._check_free()
            arguments = [str(self._path), self._branch]
        elif self._spec.base == "HEAD" and (remote := self._remote()):
            arguments = ["--track", "-b", self._branch, str(self._path), f"{remote}/{self._branch}"]
        else:
            arguments = ["--no-track", "-b", self._branch, str(self._path), self._base()]
        made = not exists or (claim is not None and claim.made and claim.branch == self._branch)
        noted = self._claims.note(
            WorktreeClaim(str(self._path), self._branch, self._owner, lasting, made=made)
        )
        of = "" if exists else f", from {f'{remote}/{self._branch}' if remote else self._spec.base}"
        self._progress(f"creating the worktree {self._path} (branch {self._branch}{of})")
        try:
            self._git.run("worktree", "add", *arguments)
        except WorktreeError:
            if self._repository.checkout(self._path) is None:
                self._claims.remove(self._path)
            raise
        if (self._path / ".gitmodules").exists():
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
        branches = self._repository.branches()
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
        for each in self._repository.checkouts():
            if each.branch == self._branch:
                claim = self._claims.read(each.path)
                whose = "" if claim is None else f", the worktree of {claim.owner.agent}"
                advice = f"or `git worktree remove {each.path}`"
                if each.bare or _same(each.path, self._repository.main):
                    advice = "or check another one out there"
                raise WorktreeError(
                    f"the branch {self._branch} is checked out in {each.path}{whose}, and git allows it in "
                    f"only one worktree. Choose another branch, {advice}."
                )

    def _recover(self, found: Checkout, branch: str) -> Checkout | None:
        """Finish an interrupted `git worktree add`, or undo it and return None. No agent has run there."""
        self._progress(f"continuing the interrupted creation of {self._path}")
        there = Git(self._path, self._git.env, self._git.locks)
        if found.locked is not None:
            self._git.run("worktree", "unlock", str(found.path))
        if (self._path / ".git").is_file() and there.succeeds(
            "rev-parse", "--verify", "--quiet", "HEAD^{commit}"
        ):
            metadata = Path(there.run("rev-parse", "--absolute-git-dir"))
            if not _same(metadata.parent, self._repository.common / "worktrees"):
                raise WorktreeError(f"{self._path} belongs to another repository. Move it away.")
            for lock in metadata.glob("*.lock"):
                lock.unlink(missing_ok=True)  # left by a git that has ended, since we hold the lock
            there.run("checkout", "--force", branch)
            return self._repository.checkout(self._path)
        try:
            (self._path / ".git").unlink(missing_ok=True)
            if self._path.is_dir():
                self._path.rmdir()
        except OSError as error:
            raise WorktreeError(
                f"an interrupted `git worktree add` has left {self._path} ({error.strerror}). Move it away."
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
        if os.path.lexists(self._path):
            raise WorktreeError(
                f"{self._path} has lost its .git file. Restore it with "
                f"`git -C {self._repository.main} worktree repair`."
            )
        self._progress(f"the worktree {found.path} was removed without git; creating it again")
        self._git.run("worktree", "remove", str(found.path))

    def _fill(self, claim: WorktreeClaim) -> None:
        """Copy, link and set up, unless that is already done."""
        spec = self._spec
        digest = hashlib.sha256(json.dumps([spec.copy, spec.link, spec.setup]).encode()).hexdigest()[:16]
        if claim.stage == "ready" and claim.contents == digest:
            return
        if worktree_setup.end_interrupted(claim.setup_pid, claim.setup_start, self._path):
            self._progress("ended a command of an interrupted setup")
        claim = self._claims.note(replace(claim, contents="", stage="filling", setup_pid=0, setup_start=""))
        if spec.copy or spec.link:
            worktree_setup.fill(self._source(), self._path, spec.copy, spec.link, self._progress)

        def started(pid: int, start: str) -> None:
            self._claims.note(replace(claim, setup_pid=pid, setup_start=start))

        if spec.setup:
            worktree_setup.run(
                spec.setup,
                self._path,
                self._env,
                self._log,
                limit=spec.setup_timeout,
                progress=self._progress,
                started=started,
            )
        self._claims.note(replace(claim, contents=digest, stage="ready"))

    def _removed(self) -> CleanedUp:
        claim, found = self._claims.read(self._path), self._repository.checkout(self._path)
        if found is None:
            return CleanedUp(self._path)
        if self._spec.cleanup == "never":
            return CleanedUp(self._path, "cleanup is 'never'")
        if claim is None or not claim.owner.same(self._owner):
            return CleanedUp(self._path, "it is not this agent's")
        if not claim.owner.has_ended(within=0):
            return CleanedUp(self._path, f"{claim.owner.agent} is running")
        if why := self._work(found):
            return CleanedUp(self._path, why)
        source = self._source() if self._spec.link else self._path
        links = [name for name in self._spec.link if worktree_setup.is_ours(source, self._path, name)]
        for name in links:
            (self._path / name).unlink()
        try:
            self._git.run("worktree", "remove", str(found.path))
        except WorktreeError as error:
            worktree_setup.fill(source, self._path, (), links, self._progress)
            return CleanedUp(self._path, str(error))
        self._claims.remove(self._path)
        gone = (
            claim.made and found.branch == self._branch and self._git.succeeds("branch", "-d", self._branch)
        )
        return CleanedUp(self._path, branch="" if gone else found.branch)

    def _work(self, found: Checkout) -> str:
        """Return what would be lost with the worktree; "" if nothing."""
        if found.prunable:
            return "its files are gone"
        if found.locked is not None:
            return f"it is locked: {found.locked}" if found.locked else "it is locked"
        there = replace(self._git, directory=self._path)
        metadata = Path(there.run("rev-parse", "--absolute-git-dir"))
        if left := [name for name in _UNFINISHED if (metadata / name).exists()]:
            return f"a merge, a rebase or the like is unfinished ({', '.join(left)})"
        source = self._source() if self._spec.copy or self._spec.link else self._path
        lines = there.run("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none")
        files = [
            each[3:]
            for each in lines.split("\0")
            if each
            and not (
                each.startswith("?? ")
                and each[3:] in self._spec.link
                and worktree_setup.is_ours(source, self._path, each[3:])
            )
        ]
        files += worktree_setup.changed(source, self._path, self._spec.copy)
        if files:
            return f"{count(len(files), 'file')} not committed: {listed(sorted(set(files)), 5)}"
        if not self._git.succeeds(
            "merge-base", "--is-ancestor", there.run("rev-parse", "HEAD"), self._base()
        ):
            return f"its commits are not all in {self._spec.base}"
        return ""

    def _source(self) -> Path:
        top, main = self._repository.top, self._repository.main
        if top is not None and not _same(top, self._path):
            return top
        if self._repository.checkouts()[0].bare:
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
                    f"{self._repository.main} has no commits yet to start a branch from. Create the first "
                    "one with `git commit`."
                )
            raise WorktreeError(f"there is no commit {base!r} in {self._repository.main}. Correct `base`.")
        return self._git.run(*given)


@contextmanager
def _lock(path: Path, seconds: float, what: str) -> Iterator[int]:
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
