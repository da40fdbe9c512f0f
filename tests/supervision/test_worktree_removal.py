"""Removing worktrees: only if no work is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.supervision.worktree import CleanedUp, WorktreeSpec, clean_up
from supervision.repositories import needs_git
from supervision.worktrees import House

pytestmark = needs_git


def test_a_clean_and_merged_worktree_is_removed_with_its_branch(house: House) -> None:
    (house.repo.path / ".env").write_text("KEY=1")
    (house.repo.path / "node_modules").mkdir()
    spec = WorktreeSpec(cleanup="merged", copy=(".env",), link=("node_modules",))
    house.repo.write(".gitignore", ".env\nbuild/\nnode_modules/\n")  # the last pattern does not cover a link
    made = house.prepare(spec=spec)
    (made.path / "build").mkdir()
    (made.path / "build" / "x").touch()
    house.repo.write("file", "two\n", at=made.path)
    house.repo("merge", "-q", "relay/Alice")
    assert house.clean_up(spec) == CleanedUp(made.path)
    assert not made.path.exists()
    assert (house.repo.path / "node_modules").is_dir()
    assert not house.repo("branch", "--list", "relay/Alice")
    assert house.clean_up(spec) == CleanedUp(made.path)  # nothing left to do
    assert house.prepare(spec=spec).created


def test_a_branch_that_relay_has_not_made_is_kept(house: House) -> None:
    house.repo("branch", "fix")
    spec = WorktreeSpec(branch="fix", cleanup="merged")
    made = house.prepare(spec=spec)
    assert house.clean_up(spec) == CleanedUp(made.path, branch="fix")
    assert house.repo("branch", "--list", "fix")


def changed(house: House, path: Path) -> None:
    (path / "file").write_text("mine")


def staged(house: House, path: Path) -> None:
    (path / "new").touch()
    house.repo("add", "new", at=path)


def untracked(house: House, path: Path) -> None:
    (path / "folder").mkdir()
    (path / "folder" / "notes").touch()


def committed(house: House, path: Path) -> None:
    house.repo.write("file", "mine", at=path)


def committed_without_a_branch(house: House, path: Path) -> None:
    house.repo("checkout", "-q", "--detach", at=path)
    committed(house, path)


def copied_and_changed(house: House, path: Path) -> None:
    (path / ".env").write_text("KEY=2")


def link_replaced(house: House, path: Path) -> None:
    (path / "shared").unlink()
    (path / "shared").write_text("mine")


def locked(house: House, path: Path) -> None:
    house.repo("worktree", "lock", "--reason", "mine", str(path))


def bisecting(house: House, path: Path) -> None:
    house.repo("bisect", "start", at=path)


@pytest.mark.parametrize(
    ("work", "said"),
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
def test_work_is_kept_and_named(house: House, work: Callable[[House, Path], None], said: str) -> None:
    house.repo.write(".gitignore", ".env\n")
    (house.repo.path / ".env").write_text("KEY=1")
    (house.repo.path / "shared").touch()
    spec = WorktreeSpec(cleanup="merged", copy=(".env",), link=("shared",))
    made = house.prepare(spec=spec)
    work(house, made.path)
    before = {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()}
    result = house.clean_up(spec)
    assert said in result.kept
    assert result.path == made.path
    assert {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()} == before


def test_a_worktree_in_use_is_kept(house: House) -> None:
    """With its ignored files, which are not work once the agent has ended."""
    house.repo.write(".gitignore", "build/\n")
    made = house.prepare()
    (made.path / "build").mkdir()
    with house.running("Alice", os.getpid()):
        assert house.clean_up() == CleanedUp(made.path, "Alice is running")
    assert (made.path / "build").exists()
    assert house.clean_up() == CleanedUp(made.path)
    assert not made.path.exists()


def test_merged_does_not_mean_merged_into_itself(house: House) -> None:
    made = house.prepare()
    committed(house, made.path)
    result = clean_up(
        WorktreeSpec(cleanup="merged"),
        "Alice",
        team="web",
        home=house.home,
        directory=made.path,  # the directory of an agent's session
        env=house.repo.env,
    )
    assert "not all in HEAD" in result.kept


def test_another_agents_worktree_is_not_removed_nor_any_without_being_asked(house: House) -> None:
    spec = WorktreeSpec(path="../shared", branch="shared", cleanup="merged")
    house.prepare("Bob", spec)
    assert house.clean_up(spec).kept == "it is not this agent's"
    assert house.clean_up(replace(spec, cleanup="never"), "Bob").kept == "cleanup is 'never'"
    assert house.clean_up(spec, "Bob").kept == ""
