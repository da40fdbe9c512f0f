"""Removing worktrees: only if no work is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.supervision.worktree import AgentWorktree, CleanedUp, WorktreeSpec
from supervision.repositories import needs_git
from supervision.worktrees import Rig

pytestmark = needs_git


def test_a_clean_and_merged_worktree_is_removed_with_its_branch(rig: Rig) -> None:
    (rig.repo.path / ".env").write_text("KEY=1")
    (rig.repo.path / "node_modules").mkdir()
    spec = WorktreeSpec(cleanup="merged", copy=(".env",), link=("node_modules",))
    rig.repo.write(".gitignore", ".env\nbuild/\nnode_modules/\n")  # the last pattern does not cover a link
    worktree = rig.prepare(spec=spec)
    (worktree.path / "build").mkdir()
    (worktree.path / "build" / "x").touch()
    rig.repo.write("file", "two\n", at=worktree.path)
    rig.repo("merge", "-q", "relay/Alice")
    assert rig.clean_up(spec) == CleanedUp(worktree.path)
    assert not worktree.path.exists()
    assert (rig.repo.path / "node_modules").is_dir()
    assert not rig.repo("branch", "--list", "relay/Alice")
    assert rig.clean_up(spec) == CleanedUp(worktree.path)  # nothing left to do
    assert rig.prepare(spec=spec).created


def test_a_branch_that_relay_did_not_create_is_kept(rig: Rig) -> None:
    rig.repo("branch", "fix")
    spec = WorktreeSpec(branch="fix", cleanup="merged")
    worktree = rig.prepare(spec=spec)
    assert rig.clean_up(spec) == CleanedUp(worktree.path, branch="fix")
    assert rig.repo("branch", "--list", "fix")


def changed(rig: Rig, path: Path) -> None:
    (path / "file").write_text("mine")


def staged(rig: Rig, path: Path) -> None:
    (path / "new").touch()
    rig.repo("add", "new", at=path)


def untracked(rig: Rig, path: Path) -> None:
    (path / "folder").mkdir()
    (path / "folder" / "notes").touch()


def committed(rig: Rig, path: Path) -> None:
    rig.repo.write("file", "mine", at=path)


def committed_without_a_branch(rig: Rig, path: Path) -> None:
    rig.repo("checkout", "-q", "--detach", at=path)
    committed(rig, path)


def copied_and_changed(rig: Rig, path: Path) -> None:
    (path / ".env").write_text("KEY=2")


def link_replaced(rig: Rig, path: Path) -> None:
    (path / "shared").unlink()
    (path / "shared").write_text("mine")


def locked(rig: Rig, path: Path) -> None:
    rig.repo("worktree", "lock", "--reason", "mine", str(path))


def bisecting(rig: Rig, path: Path) -> None:
    rig.repo("bisect", "start", at=path)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (changed, "1 file not committed: file"),
        (staged, "1 file not committed: new"),
        (untracked, "1 file not committed: folder/notes"),
        (committed, "commits are not all in HEAD"),
        (committed_without_a_branch, "commits are not all in HEAD"),
        (copied_and_changed, "1 file not committed: .env"),
        (link_replaced, "1 file not committed: shared"),
        (locked, "it is locked: mine"),
        (bisecting, "unfinished"),
    ],
)
def test_a_worktree_with_work_is_kept_for_a_stated_reason(
    rig: Rig, work: Callable[[Rig, Path], None], reason: str
) -> None:
    rig.repo.write(".gitignore", ".env\n")
    (rig.repo.path / ".env").write_text("KEY=1")
    (rig.repo.path / "shared").touch()
    spec = WorktreeSpec(cleanup="merged", copy=(".env",), link=("shared",))
    worktree = rig.prepare(spec=spec)
    work(rig, worktree.path)
    before = {path: path.read_bytes() for path in worktree.path.rglob("*") if path.is_file()}
    result = rig.clean_up(spec)
    assert reason in result.kept
    assert result.path == worktree.path
    assert {path: path.read_bytes() for path in worktree.path.rglob("*") if path.is_file()} == before


def test_a_worktree_in_use_is_kept(rig: Rig) -> None:
    """So are its ignored files, which are not work once the agent has ended."""
    rig.repo.write(".gitignore", "build/\n")
    worktree = rig.prepare()
    (worktree.path / "build").mkdir()
    with rig.running("Alice", os.getpid()):
        assert rig.clean_up() == CleanedUp(worktree.path, "Alice is running")
    assert (worktree.path / "build").exists()
    assert rig.clean_up() == CleanedUp(worktree.path)
    assert not worktree.path.exists()


def test_merged_does_not_mean_merged_into_itself(rig: Rig) -> None:
    worktree = rig.prepare()
    committed(rig, worktree.path)
    worktree_again = AgentWorktree(
        WorktreeSpec(cleanup="merged"),
        "Alice",
        team="web",
        home=rig.home,
        directory=worktree.path,  # the directory of an agent's session
        env=rig.repo.env,
    )
    assert "not all in HEAD" in worktree_again.clean_up().kept


def test_only_the_agents_own_worktree_is_removed_and_only_if_cleanup_is_on(rig: Rig) -> None:
    spec = WorktreeSpec(path="../shared", branch="shared", cleanup="merged")
    rig.prepare("Bob", spec)
    assert rig.clean_up(spec).kept == "it is not this agent's"
    assert rig.clean_up(replace(spec, cleanup="never"), "Bob").kept == "cleanup is 'never'"
    assert rig.clean_up(spec, "Bob").kept == ""
