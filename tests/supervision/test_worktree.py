"""Worktrees of agents: creating them, and copies and links in them, with the real git."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.errors import WorktreeError
from relay.supervision.worktree import Worktree, WorktreeSpec
from supervision.repositories import Repo, needs_git
from supervision.worktrees import Rig

pytestmark = needs_git


def test_an_agent_gets_a_worktree_on_its_own_branch(rig: Rig) -> None:
    worktree = rig.prepare()
    assert worktree == Worktree(rig.root / "app-worktrees" / "Alice", "relay/Alice", True)
    assert (worktree.path / "file").read_text() == "one\n"
    assert rig.repo("rev-parse", "relay/Alice") == rig.repo("rev-parse", "main")


def test_an_existing_branch_is_checked_out_as_it_is(rig: Rig) -> None:
    rig.repo("branch", "fix")
    rig.repo.write("file", "two\n")
    worktree = rig.prepare(spec=WorktreeSpec(branch="fix", path="../w/{repo}/{branch}"))
    assert worktree.path == rig.root / "w" / "app" / "fix"
    assert (worktree.path / "file").read_text() == "one\n"


def test_the_base_does_not_become_the_upstream(rig: Rig) -> None:
    rig.repo("branch", "old")
    rig.repo.write("file", "two\n")
    worktree = rig.prepare(spec=WorktreeSpec(base="old"))
    assert (worktree.path / "file").read_text() == "one\n"
    assert rig.repo("for-each-ref", "--format=%(upstream)", "refs/heads/relay/Alice") == ""


def test_the_next_start_keeps_the_agents_work(rig: Rig) -> None:
    spec = WorktreeSpec(setup=("echo x >> ran",))
    worktree = rig.prepare(spec=spec)
    (worktree.path / "file").write_text("mine\n")
    assert rig.prepare(spec=spec) == replace(worktree, created=False)
    assert (worktree.path / "file").read_text() == "mine\n"
    assert (worktree.path / "ran").read_text() == "x\n"  # once
    rig.prepare(spec=replace(spec, setup=("echo y >> ran",)))
    assert (worktree.path / "ran").read_text() == "x\ny\n"  # the setup has changed


def test_an_agent_that_has_switched_branches_stays_on_the_new_one(rig: Rig) -> None:
    worktree = rig.prepare()
    rig.repo("switch", "-q", "-c", "another", at=worktree.path)
    assert rig.prepare() == Worktree(worktree.path, "another", False)


def test_a_branch_that_differs_only_in_case_is_rejected(rig: Rig) -> None:
    rig.repo("branch", "Fix")
    with pytest.raises(WorktreeError, match="a branch Fix"):
        rig.prepare(spec=WorktreeSpec(branch="fix"))


@pytest.mark.parametrize("name", ["with blank", "ünï-コード", "quote'\"$x", "-dash"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    rig = Rig(tmp_path / name)
    worktree = rig.prepare(spec=WorktreeSpec(path="../w {repo}/{agent}", setup=("pwd > here",)))
    assert (worktree.path / "here").read_text().strip() == str(worktree.path)
    assert not rig.prepare(spec=WorktreeSpec(path="../w {repo}/{agent}", setup=("pwd > here",))).created


def test_the_repository_variables_of_a_git_hook_are_ignored(rig: Rig) -> None:
    other = Repo(rig.root / "other")
    variables = {"GIT_DIR": str(other.path / ".git"), "GIT_WORK_TREE": str(other.path)}
    worktree = rig.prepare(spec=WorktreeSpec(setup=("git rev-parse --show-toplevel > top",)), **variables)
    assert (worktree.path / "top").read_text().strip() == str(worktree.path)
    assert rig.repo("branch", "--list", "relay/Alice")


def test_a_bare_repository_works(rig: Rig) -> None:
    bare = rig.root / "shop.git"
    rig.repo("clone", "-q", "--bare", ".", str(bare))
    worktree = rig.prepare(at=bare)
    assert worktree.path == rig.root / "shop-worktrees" / "Alice"
    assert (worktree.path / "file").exists()
    with pytest.raises(WorktreeError, match="bare repository"):
        rig.prepare(at=bare, spec=WorktreeSpec(copy=("file",)))


def test_a_detached_head_works(rig: Rig) -> None:
    rig.repo("checkout", "-q", "--detach")
    assert rig.prepare().branch == "relay/Alice"


def test_a_linked_worktree_and_a_subfolder_work(rig: Rig) -> None:
    rig.repo("worktree", "add", "-q", "../linked")
    rig.repo.write("deep/down/x", "x", at=rig.root / "linked")
    worktree = rig.prepare(at=rig.root / "linked" / "deep")
    assert worktree.path == rig.root / "app-worktrees" / "Alice"  # always next to the main worktree
    assert (worktree.path / "deep").exists()  # from the HEAD where relay was started


def test_submodules_are_reported_and_left_to_the_setup(rig: Rig) -> None:
    part = Repo(rig.root / "part")
    rig.repo("submodule", "add", "-q", str(part.path), "part")
    rig.repo("commit", "-q", "-m", "a submodule")
    worktree = rig.prepare()
    assert any("git submodule update --init" in line for line in rig.lines)
    assert not (worktree.path / "part" / "file").exists()
    spec = WorktreeSpec(setup=("git submodule update --init -q",), cleanup="merged")
    rig.prepare(spec=spec)
    assert (worktree.path / "part" / "file").exists()
    assert rig.clean_up(spec).kept  # git removes none with submodules unless forced
    assert worktree.path.exists()


def test_the_worktree_of_a_submodule_is_outside_the_repository_around_it(rig: Rig) -> None:
    """From the submodule, from one within it, and from another worktree of the submodule."""
    inner, part = Repo(rig.root / "inner"), Repo(rig.root / "part")
    part("submodule", "add", "-q", str(inner.path), "deep/inner")
    part("commit", "-q", "-m", "a submodule")
    rig.repo("submodule", "add", "-q", str(part.path), "part")
    rig.repo("submodule", "update", "-q", "--init", "--recursive")
    bob = rig.prepare("Bob", at=rig.repo.path / "part")
    assert bob.path == rig.root / "part-worktrees" / "Bob"
    assert rig.prepare("Carol", at=bob.path).path == rig.root / "part-worktrees" / "Carol"
    within = rig.prepare("Dan", at=rig.repo.path / "part" / "deep" / "inner")
    assert within.path == rig.root / "inner-worktrees" / "Dan"
    assert rig.repo("status", "--porcelain").splitlines() == ["A  .gitmodules", "A  part"]


def test_a_branch_that_only_a_remote_has_is_continued(rig: Rig) -> None:
    """As `git worktree add` guesses; an explicit base comes first, and two remotes need a choice."""
    rig.repo("branch", "old")
    for name in ("origin", "fork"):
        remote = Repo(rig.root / name)
        remote("switch", "-q", "-c", "fix/it")
        remote.write("file", f"{name}\n")
        rig.repo("remote", "add", name, str(remote.path))
    spec = WorktreeSpec(branch="fix/it")
    rig.repo("fetch", "-q", "origin")
    worktree = rig.prepare(spec=spec)
    assert (worktree.path / "file").read_text() == "origin\n"
    assert (
        rig.repo("for-each-ref", "--format=%(upstream)", "refs/heads/fix/it") == "refs/remotes/origin/fix/it"
    )
    assert any("(branch fix/it, from origin/fix/it)" in line for line in rig.lines)

    def again(spec: WorktreeSpec) -> str:
        rig.repo("worktree", "remove", "--force", str(worktree.path))
        rig.repo("branch", "-q", "-D", "fix/it")
        return (rig.prepare(spec=spec).path / "file").read_text()

    assert again(replace(spec, base="old")) == "one\n"
    rig.repo("fetch", "-q", "fork")
    with pytest.raises(
        WorktreeError, match=r"several remotes have a branch fix/it: fork, origin\. Choose one"
    ):
        again(spec)
    rig.repo("config", "checkout.defaultRemote", "fork")
    assert (rig.prepare(spec=spec).path / "file").read_text() == "fork\n"


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


def non_empty_folder(rig: Rig) -> WorktreeSpec:
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


def files_deleted(rig: Rig) -> WorktreeSpec:
    the_users_worktree(rig)
    (rig.root / "there").rename(rig.root / "gone")
    return WorktreeSpec(path="../there")


def git_file_deleted(rig: Rig) -> WorktreeSpec:
    (rig.prepare().path / ".git").unlink()
    return WorktreeSpec()


def on_another_branch(rig: Rig) -> WorktreeSpec:
    rig.prepare()
    return WorktreeSpec(branch="else")


@pytest.mark.parametrize(
    ("arrange", "message"),
    [
        (no_commit, r"no commits yet.*git commit"),
        (no_repository, r"not in a git repository.*git init"),
        (no_directory, "there is no directory"),
        (no_git, "not on PATH"),
        (checked_out, r"main is checked out in .*app.*another branch"),
        (checked_out_by_another, r"fix is checked out in .*Bob, the worktree of Bob.*git worktree remove"),
        (non_empty_folder, "exists, but is not a worktree"),
        (a_file, "exists, but is not a worktree"),
        (another_repository, "exists, but is not a worktree"),
        (the_users_worktree, r"has the branch theirs checked out, not relay/Alice"),
        (files_deleted, r"files of the worktree .* are gone.*git worktree remove"),
        (git_file_deleted, r"lost its \.git file.*worktree repair"),
        (on_another_branch, r"has the branch relay/Alice checked out, not else"),
        (lambda _: WorktreeSpec(base="nowhere"), r"no commit 'nowhere'.*`base`"),
        (lambda _: WorktreeSpec(base="--all"), r"no commit '--all'"),
        (lambda _: WorktreeSpec(branch="a..b"), r"no branch can be called 'a\.\.b'"),
        (lambda _: WorktreeSpec(branch="-b"), "no branch can be called '-b'"),
        (lambda _: WorktreeSpec(path="."), "main worktree"),
        (lambda _: WorktreeSpec(path=".git/w"), "git's own folder"),
        (lambda _: WorktreeSpec(path=""), "not a path"),
    ],
)
def test_an_impossible_worktree_is_rejected_with_advice(
    rig: Rig, arrange: Callable[[Rig], WorktreeSpec], message: str
) -> None:
    spec = arrange(rig)
    with pytest.raises(WorktreeError, match=f"(?s){message}"):
        rig.prepare(spec=spec)


def test_a_failed_attempt_leaves_nothing_behind(rig: Rig) -> None:
    (rig.root / "app-worktrees").touch()
    with pytest.raises(WorktreeError):
        rig.prepare()
    (rig.root / "app-worktrees").unlink()
    assert rig.prepare("Bob", WorktreeSpec(path="../app-worktrees/Alice")).created


def test_a_deleted_worktree_is_created_again(rig: Rig) -> None:
    spec = WorktreeSpec(setup=("touch ran",))
    worktree = rig.prepare(spec=spec)
    subprocess.run(["rm", "-rf", worktree.path], check=True)
    assert rig.prepare(spec=spec) == worktree
    assert (worktree.path / "ran").exists()


# Copies and links


def test_files_are_copied_and_linked(rig: Rig) -> None:
    (rig.repo.path / ".env").write_text("KEY=1")
    (rig.repo.path / ".env").chmod(0o600)
    (rig.repo.path / "conf/local").mkdir(parents=True)
    (rig.repo.path / "conf/local/a").write_text("a")
    (rig.repo.path / "conf/local/b").symlink_to("a")
    (rig.repo.path / "node_modules").mkdir()
    spec = WorktreeSpec(copy=(".env", "conf/local"), link=("node_modules",))
    worktree = rig.prepare(spec=spec)
    assert (worktree.path / ".env").read_text() == "KEY=1"
    assert (worktree.path / ".env").stat().st_mode & 0o777 == 0o600
    assert (worktree.path / "conf/local/b").readlink() == Path("a")
    assert (worktree.path / "node_modules").readlink() == rig.repo.path / "node_modules"
    (worktree.path / ".env").write_text("KEY=2")
    rig.prepare(spec=replace(spec, setup=("true",)))
    assert (worktree.path / ".env").read_text() == "KEY=2"  # existing files are kept


@pytest.mark.parametrize("key", ["copy", "link"])
@pytest.mark.parametrize(
    ("name", "message"),
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
def test_copies_and_links_never_leave_the_repository(rig: Rig, key: str, name: str, message: str) -> None:
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
    with pytest.raises(WorktreeError, match=message):
        rig.prepare(spec=spec)
    assert not any((rig.root / "elsewhere").iterdir())
