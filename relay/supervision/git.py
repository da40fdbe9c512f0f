"""A git repository, accessed through the `git` command, with errors worded for the user."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay.dataclass import dataclass, replace
from relay.errors import WorktreeError

LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)
"""Variables that tie git to one repository (`git rev-parse --local-env-vars`), as in git's own hooks."""

_QUIET = ("-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
"""Options that keep git from leaving processes behind, which would inherit the lock of `Git.run`."""

_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
"""Options that keep git from running the repository's hooks: an agent may have written them."""


_ABOUT = ("--git-common-dir", "--is-inside-work-tree", "--is-bare-repository")


@dataclass(frozen=True, slots=True)
class Checkout:
    """An entry of `git worktree list`.

    path:     as git spells it. branch: "" if HEAD is detached.
    bare:     it is the repository itself, without files.
    locked:   the reason; None if it is not locked.
    prunable: git does not find its files there.
    """

    path: Path
    branch: str = ""
    bare: bool = False
    locked: str | None = None
    prunable: bool = False


@dataclass(frozen=True, slots=True)
class Git:
    """The `git` command in one directory. locks: descriptors that git inherits and keeps open."""

    directory: Path
    env: Mapping[str, str]
    locks: tuple[int, ...] = ()

    def run(self, *arguments: str) -> str:
        """Return what `git ARGUMENTS` prints, without the last newline. Raise WorktreeError if it fails."""
        done = self._run(arguments)
        if done.returncode:
            said = done.stderr.strip() or f"it exited with {done.returncode}"
            raise WorktreeError(f"`git {' '.join(arguments)}` failed in {self.directory}: {said}")
        return done.stdout.removesuffix("\n")

    def succeeds(self, *arguments: str) -> bool:
        return self._run(arguments).returncode == 0

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in self.env.items() if name not in LOCAL}
        try:
            return subprocess.run(
                ["git", *_QUIET, *_NO_HOOKS, *arguments],
                cwd=self.directory,
                env={**env, "LC_ALL": "C.UTF-8", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding=sys.getfilesystemencoding(),  # it prints paths
                errors=sys.getfilesystemencodeerrors(),
                pass_fds=self.locks,
                check=False,
            )
        except FileNotFoundError:
            if not self.directory.is_dir():
                raise WorktreeError(f"there is no directory {self.directory}.") from None
            raise WorktreeError("a worktree needs git, which is not on PATH. Install it.") from None
        except OSError as error:
            raise WorktreeError(f"cannot run git in {self.directory}: {error.strerror}.") from None


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository, seen from a directory in it.

    common: its metadata directory, shared by all worktrees.
    main:   its main worktree; for a bare repository, the repository itself.
    top:    the top of the worktree around the directory; None outside any worktree.
    """

    git: Git
    common: Path
    main: Path
    top: Path | None

    @classmethod
    def at(cls, directory: Path, env: Mapping[str, str]) -> Repository:
        """Return the repository to which `directory` belongs. Raise WorktreeError if there is none."""
        git = Git(directory, env)
        try:
            said = git.run("rev-parse", "--path-format=absolute", *_ABOUT)
        except WorktreeError as error:
            if "not a git repository" in str(error):
                raise WorktreeError(
                    f"{directory} is not in a git repository, which a worktree needs. "
                    "Start in a repository, or create one with `git init`."
                ) from None
            raise
        common, inside, bare = said.rsplit("\n", 2)
        top = Path(git.run("rev-parse", "--show-toplevel")) if inside == "true" else None
        folder = Path(common)
        if folder.name == ".git" and bare == "false":
            return cls(git, folder, folder.parent, top)
        # A bare repository, or one whose metadata is elsewhere, such as a submodule.
        main = folder
        if top is not None and git.run("rev-parse", "--path-format=absolute", "--git-dir") == common:
            main = top
        elif bare == "false" and (tree := git.run("config", "--default", "", "--get", "core.worktree")):
            main = Path(os.path.realpath(folder / tree))  # of a submodule, seen from another worktree of it
        return cls(git, folder, main, top)

    def outermost(self) -> Path:
        """Return the main worktree; of a submodule, that of the repository around it, and so on."""
        found = self.main
        while found.is_dir() and (
            around := replace(self.git, directory=found).run("rev-parse", "--show-superproject-working-tree")
        ):
            found = Path(around)
        return found

    @property
    def name(self) -> str:
        """The name of its folder, without the `.git` of a bare repository."""
        for folder in (self.main, *self.main.parents):
            name = folder.name.removesuffix(".git")
            if name and not name.startswith("."):
                return name
        return "repository"

    def checkouts(self) -> list[Checkout]:
        """Return the worktrees, the main one first."""
        found = []
        for entry in self.git.run("worktree", "list", "--porcelain").split("\n\n"):
            fields = {key: value for key, _, value in (line.partition(" ") for line in entry.split("\n"))}
            path, branch = fields.get("worktree", ""), fields.get("branch", "").removeprefix("refs/heads/")
            if path:
                bare, prunable = "bare" in fields, "prunable" in fields
                found.append(Checkout(Path(path), branch, bare, fields.get("locked"), prunable))
        return found

    def checkout(self, path: Path) -> Checkout | None:
        real = os.path.realpath(path)
        return next((each for each in self.checkouts() if os.path.realpath(each.path) == real), None)

    def drop_half_made(self, path: Path) -> None:
        """Remove what a killed `git worktree add` left at `path`, if git cannot read it.

        Until then, `git worktree list` fails (2.39). Nothing was checked out: git writes the metadata first.
        Call while holding the lock that keeps others from adding worktrees.
        """
        for folder in (self.common / "worktrees").glob("*"):
            try:
                named = (folder / "gitdir").read_text().strip()
                half = not (folder / "commondir").exists() or not (folder / "commondir").stat().st_size
                if not half or os.path.realpath(named) != os.path.realpath(path / ".git"):
                    continue
                self._unlink_pointer(path / ".git", folder)
                for name in ("HEAD", "commondir", "locked", "gitdir"):
                    (folder / name).unlink(missing_ok=True)
                folder.rmdir()
            except OSError:
                continue  # git will report the problem

    def _unlink_pointer(self, file: Path, metadata: Path) -> None:
        """Remove a worktree's `.git` file, if it is empty or names `metadata`. Raise OSError otherwise."""
        with contextlib.suppress(FileNotFoundError):
            named = file.read_text().strip()
            if named and os.path.realpath(named.removeprefix("gitdir: ")) != os.path.realpath(metadata):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file))
            file.unlink()

    def unlock(self, branch: str) -> None:
        """Remove the lock on `branch` that a killed `git worktree add` left, if there is one.

        Until then, nobody can commit to the branch or delete it. Call while holding the lock that keeps
        others from adding worktrees.
        """
        heads = self.common / "refs" / "heads"
        lock = heads / f"{branch}.lock"
        if is_branch(branch) and os.path.realpath(lock.parent).startswith(os.path.realpath(heads)):
            with contextlib.suppress(OSError):  # git will report the problem; a reftable has no such file
                lock.unlink()

    def branches(self) -> list[str]:
        return self.git.run("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()


def is_branch(name: str) -> bool:
    """Return False for a name that no branch can have, and that would be an option or another path."""
    parts = name.split("/")
    return not name.startswith("-") and "\0" not in name and all(p and not p.startswith(".") for p in parts)
