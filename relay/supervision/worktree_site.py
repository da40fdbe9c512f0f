"""The location of an agent's worktree, and what it is created from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from relay import names
from relay.errors import WorktreeError
from relay.home import Home
from relay.supervision.git import LOCAL, Git, Repository
from relay.supervision.worktree_claim import Claims, WorktreeOwner
from relay.supervision.worktree_spec import WorktreeSpec

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Site:
    """One worktree, whether it exists or not: its path, owner and repository.

    git:      runs in a directory whose HEAD is not the agent's own. env: for git and the setup.
    log:      the file for the setup's output.
    """

    spec: WorktreeSpec
    repository: Repository
    git: Git
    claims: Claims
    owner: WorktreeOwner
    path: Path
    branch: str
    log: Path
    env: Mapping[str, str]
    progress: Progress

    @classmethod
    def of(
        cls,
        spec: WorktreeSpec,
        agent: str,
        team: str,
        home: Home,
        directory: Path,
        env: Mapping[str, str] | None,
        progress: Progress,
    ) -> Site:
        given = os.environ if env is None else env
        own = {name: value for name, value in given.items() if name not in LOCAL}
        repository = Repository.at(directory, own)
        words = {"repo": repository.name, "agent": agent}
        branch = _filled(spec.branch, words)
        path = _path(repository, _filled(spec.path, {**words, "branch": branch.replace("/", "-")}))
        claims, owner = Claims(repository.common), WorktreeOwner.of(home, team, agent)
        claim = claims.read(path)
        if claim is not None and claim.owner.same(owner) and names.same(claim.branch, branch):
            path, branch = Path(claim.path), claim.branch  # as it was first spelled
        git = repository.git
        if repository.top is not None and same(repository.top, path):
            git = replace(git, directory=repository.main)  # whose HEAD is not the agent's own
        log = home.state / "worktrees" / f"{names.key(agent)}@{names.key(team)}.log"
        return cls(spec, repository, git, claims, owner, path, branch, log, own, progress)

    def holding(self, lock: int) -> Site:
        """Return this site with a git that holds `lock` while it runs, even if relay is killed."""
        return replace(self, git=replace(self.git, locks=(lock,)))

    def source(self) -> Path:
        """Return the worktree from which files are copied."""
        top, main = self.repository.top, self.repository.main
        if top is not None and not same(top, self.path):
            return top
        if self.repository.checkouts()[0].bare:
            raise WorktreeError(
                f"{main} is a bare repository: there are no files to copy or link. Remove `copy` and `link`, "
                "or start from one of its worktrees."
            )
        return main

    def base(self) -> str:
        """Return the id of the commit that a new branch starts from."""
        base = self.spec.base
        given = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
        if not self.git.succeeds(*given):
            if not self.git.succeeds("rev-parse", "--verify", "--quiet", "HEAD^{commit}") and base == "HEAD":
                raise WorktreeError(
                    f"{self.repository.main} has no commits yet to start a branch from. Create the first one "
                    "with `git commit`."
                )
            raise WorktreeError(f"there is no commit {base!r} in {self.repository.main}. Correct `base`.")
        return self.git.run(*given)


def same(one: Path, other: Path) -> bool:
    """Return True if both paths lead to the same place."""
    return os.path.realpath(one) == os.path.realpath(other)


def _filled(text: str, words: Mapping[str, str]) -> str:
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


def _path(repository: Repository, given: str) -> Path:
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
