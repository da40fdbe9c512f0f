"""Worktrees of agents: creating them, and copies and links in them, with the real git."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.errors import WorktreeError
from relay.supervision.worktree import Worktree, WorktreeSpec, prepare
from supervision.repositories import Repo, needs_git
from supervision.worktrees import Rig

pytestmark = needs_git


def test_an_agent_gets_a_worktree_on_a_branch_of_its_own(rig: Rig) -> None:
    made = rig.prepare()
    assert made == Worktree(rig.root / "app-worktrees" / "Alice", "relay/Alice", True)
    assert (made.path / "file").read_text() == "one\n"
    assert rig.repo("rev-parse", "relay/Alice") == rig.repo("rev-parse", "main")


def test_an_existing_branch_is_checked_out_as_it_is(rig: Rig) -> None:
    rig.repo("branch", "fix")
    rig.repo.write("file", "two\n")
    made = rig.prepare(spec=WorktreeSpec(branch="fix", path="../w/{repo}/{branch}"))
    assert made.path == rig.root / "w" / "app" / "fix"
    assert (made.path / "file").read_text() == "one\n"


def test_a_base_of_another_place_is_no_upstream(rig: Rig) -> None:
    rig.repo("branch", "old")
    rig.repo.write("file", "two\n")
    made = rig.prepare(spec=WorktreeSpec(base="old"))
    assert (made.path / "file").read_text() == "one\n"
    assert rig.repo("for-each-ref", "--format=%(upstream)", "refs/heads/relay/Alice") == ""


def test_the_next_start_finds_what_the_agent_has_left(rig: Rig) -> None:
    spec = WorktreeSpec(setup=("echo x >> ran",))
    made = rig.prepare(spec=spec)
    (made.path / "file").write_text("mine\n")
    assert rig.prepare(spec=spec) == replace(made, created=False)
    assert (made.path / "file").read_text() == "mine\n"
    assert (made.path / "ran").read_text() == "x\n"  # once
    rig.prepare(spec=replace(spec, setup=("echo y >> ran",)))
    assert (made.path / "ran").read_text() == "x\ny\n"  # the setup has changed


def test_an_agent_that_has_changed_its_branch_keeps_it(rig: Rig) -> None:
    made = rig.prepare()
    rig.repo("switch", "-q", "-c", "another", at=made.path)
    assert rig.prepare() == Worktree(made.path, "another", False)


def test_a_branch_that_differs_in_case_only_is_refused(rig: Rig) -> None:
    rig.repo("branch", "Fix")
    with pytest.raises(WorktreeError, match="a branch Fix"):
        rig.prepare(spec=WorktreeSpec(branch="fix"))


@pytest.mark.parametrize("name", ["with blank", "ünï-コード", "quote'\"$x", "-dash"])
def test_any_name_of_a_folder_will_do(tmp_path: Path, name: str) -> None:
    rig = Rig(tmp_path / name)
    made = rig.prepare(spec=WorktreeSpec(path="../w {repo}/{agent}", setup=("pwd > here",)))
    assert (made.path / "here").read_text().strip() == str(made.path)
    assert not rig.prepare(spec=WorktreeSpec(path="../w {repo}/{agent}", setup=("pwd > here",))).created


def test_the_repositorys_variables_of_a_git_hook_do_not_count(rig: Rig) -> None:
    other = Repo(rig.root / "other")
    variables = {"GIT_DIR": str(other.path / ".git"), "GIT_WORK_TREE": str(other.path)}
    made = rig.prepare(spec=WorktreeSpec(setup=("git rev-parse --show-toplevel > top",)), **variables)
    assert (made.path / "top").read_text().strip() == str(made.path)
    assert rig.repo("branch", "--list", "relay/Alice")


def test_a_bare_repository_will_do(rig: Rig) -> None:
    bare = rig.root / "shop.git"
    rig.repo("clone", "-q", "--bare", ".", str(bare))
    made = rig.prepare(at=bare)
    assert made.path == rig.root / "shop-worktrees" / "Alice"
    assert (made.path / "file").exists()
    with pytest.raises(WorktreeError, match="bare repository"):
        rig.prepare(at=bare, spec=WorktreeSpec(copy=("file",)))


def test_a_detached_head_will_do(rig: Rig) -> None:
    rig.repo("checkout", "-q", "--detach")
    assert rig.prepare().branch == "relay/Alice"


def test_a_linked_worktree_and_a_folder_below_will_do(rig: Rig) -> None:
    rig.repo("worktree", "add", "-q", "../linked")
    rig.repo.write("deep/down/x", "x", at=rig.root / "linked")
    made = rig.prepare(at=rig.root / "linked" / "deep")
    assert made.path == rig.root / "app-worktrees" / "Alice"  # always next to the main worktree
    assert (made.path / "deep").exists()  # from the HEAD where relay was started


def test_submodules_are_named_and_left_to_the_setup(rig: Rig) -> None:
    part = Repo(rig.root / "part")
    rig.repo("submodule", "add", "-q", str(part.path), "part")
    rig.repo("commit", "-q", "-m", "a submodule")
    made = rig.prepare()
    assert any("git submodule update --init" in line for line in rig.lines)
    assert not (made.path / "part" / "file").exists()
    spec = WorktreeSpec(setup=("git submodule update --init -q",), cleanup="merged")
    rig.prepare(spec=spec)
    assert (made.path / "part" / "file").exists()
    assert rig.clean_up(spec).kept  # git removes none with submodules unless forced
    assert made.path.exists()
    inside = prepare(  # a submodule is also a repository
        WorktreeSpec(),
        "Bob",
        team="web",
        home=rig.home,
        directory=rig.repo.path / "part",
        env=rig.repo.env,
    )
    assert inside.path == rig.repo.path / "part-worktrees" / "Bob"


def no_commit(rig: Rig) -> WorktreeSpec:
    rig.repo = Repo(rig.root / "empty", commit=False)
    return WorktreeSpec()


def no_repository(rig: Rig) -> WorktreeSpec:
    rig.repo.path = rig.root
    return WorktreeSpec()


def no_directory(rig: Rig) -> WorktreeSpec:
    rig.repo.path = rig.root / "missing"
    return WorktreeSpec()


def no_git(rig: Rig) -> WorktreeSpec:
    rig.repo.env["PATH"] = str(rig.root)
    return WorktreeSpec()


def checked_out(rig: Rig) -> WorktreeSpec:
    return WorktreeSpec(branch="main")


def checked_out_by_another(rig: Rig) -> WorktreeSpec:
    rig.prepare("Bob", WorktreeSpec(branch="fix"))
    return WorktreeSpec(branch="fix")


def full_folder(rig: Rig) -> WorktreeSpec:
    (rig.root / "there").mkdir()
    (rig.root / "there" / "x").touch()
    return WorktreeSpec(path="../there")


def a_file(rig: Rig) -> WorktreeSpec:
    (rig.root / "there").touch()
    return WorktreeSpec(path="../there")


def another_repository(rig: Rig) -> WorktreeSpec:
    Repo(rig.root / "there")
    return WorktreeSpec(path="../there")


def the_users_worktree(rig: Rig) -> WorktreeSpec:
    rig.repo("worktree", "add", "-q", "-b", "theirs", "../there")
    return WorktreeSpec(path="../there")


def files_gone(rig: Rig) -> WorktreeSpec:
    the_users_worktree(rig)
    (rig.root / "there").rename(rig.root / "gone")
    return WorktreeSpec(path="../there")


def git_file_gone(rig: Rig) -> WorktreeSpec:
    (rig.prepare().path / ".git").unlink()
    return WorktreeSpec()


def other_branch_now(rig: Rig) -> WorktreeSpec:
    rig.prepare()
    return WorktreeSpec(branch="else")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (no_commit, r"no commits yet.*git commit"),
        (no_repository, r"not in a git repository.*git init"),
        (no_directory, "there is no directory"),
        (no_git, "not on PATH"),
        (checked_out, r"main is checked out in .*app.*another branch"),
        (checked_out_by_another, r"fix is checked out in .*Bob, the worktree of Bob.*git worktree remove"),
        (full_folder, "exists, but is not a worktree"),
        (a_file, "exists, but is not a worktree"),
        (another_repository, "exists, but is not a worktree"),
        (the_users_worktree, r"has the branch theirs checked out, not relay/Alice"),
        (files_gone, r"files of the worktree .* are gone.*git worktree remove"),
        (git_file_gone, r"lost its \.git file.*worktree repair"),
        (other_branch_now, r"has the branch relay/Alice checked out, not else"),
        (lambda _: WorktreeSpec(base="nowhere"), r"no commit 'nowhere'.*`base`"),
        (lambda _: WorktreeSpec(base="--all"), r"no commit '--all'"),
        (lambda _: WorktreeSpec(branch="a..b"), r"no branch can be called 'a\.\.b'"),
        (lambda _: WorktreeSpec(branch="-b"), "no branch can be called '-b'"),
        (lambda _: WorktreeSpec(path="."), "main worktree"),
        (lambda _: WorktreeSpec(path=".git/w"), "git's own folder"),
        (lambda _: WorktreeSpec(path=""), "not a path"),
    ],
)
def test_what_cannot_be_says_why_and_what_to_do(
    rig: Rig, wrong: Callable[[Rig], WorktreeSpec], said: str
) -> None:
    spec = wrong(rig)
    with pytest.raises(WorktreeError, match=f"(?s){said}"):
        rig.prepare(spec=spec)


def test_a_failure_leaves_nothing_in_the_way(rig: Rig) -> None:
    (rig.root / "app-worktrees").touch()
    with pytest.raises(WorktreeError):
        rig.prepare()
    (rig.root / "app-worktrees").unlink()
    assert rig.prepare("Bob", WorktreeSpec(path="../app-worktrees/Alice")).created


def test_a_worktree_that_was_simply_deleted_is_made_anew(rig: Rig) -> None:
    spec = WorktreeSpec(setup=("touch ran",))
    made = rig.prepare(spec=spec)
    subprocess.run(["rm", "-rf", made.path], check=True)
    assert rig.prepare(spec=spec) == made
    assert (made.path / "ran").exists()


# Copies and links


def test_files_are_copied_and_linked(rig: Rig) -> None:
    (rig.repo.path / ".env").write_text("KEY=1")
    (rig.repo.path / ".env").chmod(0o600)
    (rig.repo.path / "conf/local").mkdir(parents=True)
    (rig.repo.path / "conf/local/a").write_text("a")
    (rig.repo.path / "conf/local/b").symlink_to("a")
    (rig.repo.path / "node_modules").mkdir()
    spec = WorktreeSpec(copy=(".env", "conf/local"), link=("node_modules",))
    made = rig.prepare(spec=spec)
    assert (made.path / ".env").read_text() == "KEY=1"
    assert (made.path / ".env").stat().st_mode & 0o777 == 0o600
    assert (made.path / "conf/local/b").readlink() == Path("a")
    assert (made.path / "node_modules").readlink() == rig.repo.path / "node_modules"
    (made.path / ".env").write_text("KEY=2")
    rig.prepare(spec=replace(spec, setup=("true",)))
    assert (made.path / ".env").read_text() == "KEY=2"  # existing files are kept


@pytest.mark.parametrize("key", ["copy", "link"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../secret", r"'\.\.'"),
        ("a/../../secret", r"'\.\.'"),
        ("/etc/passwd", "not relative"),
        ("~/secret", "not relative"),
        ("", "empty"),
        (".", "empty"),
        (".git/config", "git's own"),
        (".GIT/config", "git's own"),
        ("out", "link to outside"),
        ("folder/secret", "link to outside"),
        ("missing", "there is no missing"),
        ("tracked-link/x", "leads outside"),
        ("wt", "contains the worktree itself"),
    ],
)
def test_nothing_leads_out_of_the_repository(rig: Rig, key: str, name: str, said: str) -> None:
    (rig.root / "secret").write_text("s")
    (rig.root / "elsewhere").mkdir()
    (rig.repo.path / "out").symlink_to("../secret")
    (rig.repo.path / "folder").symlink_to("..")
    # In the worktree `tracked-link` leads out; in the main one it is a folder by then.
    (rig.repo.path / "tracked-link").symlink_to(rig.root / "elsewhere")
    rig.repo("add", "tracked-link")
    rig.repo("commit", "-q", "-m", "a link")
    (rig.repo.path / "tracked-link").unlink()
    (rig.repo.path / "tracked-link").mkdir()
    (rig.repo.path / "tracked-link" / "x").touch()
    spec = WorktreeSpec(path="wt/alice", **{key: (name,)})  # type: ignore[arg-type]
    with pytest.raises(WorktreeError, match=said):
        rig.prepare(spec=spec)
    assert not any((rig.root / "elsewhere").iterdir())
