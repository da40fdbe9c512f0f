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
from supervision.worktrees import House

pytestmark = needs_git


def test_an_agent_gets_a_worktree_on_a_branch_of_its_own(house: House) -> None:
    made = house.prepare()
    assert made == Worktree(house.root / "app-worktrees" / "Alice", "relay/Alice", True)
    assert (made.path / "file").read_text() == "one\n"
    assert house.repo("rev-parse", "relay/Alice") == house.repo("rev-parse", "main")


def test_an_existing_branch_is_checked_out_as_it_is(house: House) -> None:
    house.repo("branch", "fix")
    house.repo.write("file", "two\n")
    made = house.prepare(spec=WorktreeSpec(branch="fix", path="../w/{repo}/{branch}"))
    assert made.path == house.root / "w" / "app" / "fix"
    assert (made.path / "file").read_text() == "one\n"


def test_a_base_of_another_place_is_no_upstream(house: House) -> None:
    house.repo("branch", "old")
    house.repo.write("file", "two\n")
    made = house.prepare(spec=WorktreeSpec(base="old"))
    assert (made.path / "file").read_text() == "one\n"
    assert house.repo("for-each-ref", "--format=%(upstream)", "refs/heads/relay/Alice") == ""


def test_the_next_start_finds_what_the_agent_has_left(house: House) -> None:
    spec = WorktreeSpec(setup=("echo x >> ran",))
    made = house.prepare(spec=spec)
    (made.path / "file").write_text("mine\n")
    assert house.prepare(spec=spec) == replace(made, created=False)
    assert (made.path / "file").read_text() == "mine\n"
    assert (made.path / "ran").read_text() == "x\n"  # once
    house.prepare(spec=replace(spec, setup=("echo y >> ran",)))
    assert (made.path / "ran").read_text() == "x\ny\n"  # the setup has changed


def test_an_agent_that_has_changed_its_branch_keeps_it(house: House) -> None:
    made = house.prepare()
    house.repo("switch", "-q", "-c", "another", at=made.path)
    assert house.prepare() == Worktree(made.path, "another", False)


def test_a_branch_that_differs_in_case_only_is_refused(house: House) -> None:
    house.repo("branch", "Fix")
    with pytest.raises(WorktreeError, match="a branch Fix"):
        house.prepare(spec=WorktreeSpec(branch="fix"))


@pytest.mark.parametrize("name", ["with blank", "ünï-コード", "quote'\"$x", "-dash"])
def test_any_name_of_a_folder_will_do(tmp_path: Path, name: str) -> None:
    house = House(tmp_path / name)
    made = house.prepare(spec=WorktreeSpec(path="../w {repo}/{agent}", setup=("pwd > here",)))
    assert (made.path / "here").read_text().strip() == str(made.path)
    assert not house.prepare(spec=WorktreeSpec(path="../w {repo}/{agent}", setup=("pwd > here",))).created


def test_the_repositorys_variables_of_a_git_hook_do_not_count(house: House) -> None:
    other = Repo(house.root / "other")
    variables = {"GIT_DIR": str(other.path / ".git"), "GIT_WORK_TREE": str(other.path)}
    made = house.prepare(spec=WorktreeSpec(setup=("git rev-parse --show-toplevel > top",)), **variables)
    assert (made.path / "top").read_text().strip() == str(made.path)
    assert house.repo("branch", "--list", "relay/Alice")


def test_a_bare_repository_will_do(house: House) -> None:
    bare = house.root / "shop.git"
    house.repo("clone", "-q", "--bare", ".", str(bare))
    made = house.prepare(at=bare)
    assert made.path == house.root / "shop-worktrees" / "Alice"
    assert (made.path / "file").exists()
    with pytest.raises(WorktreeError, match="bare repository"):
        house.prepare(at=bare, spec=WorktreeSpec(copy=("file",)))


def test_a_detached_head_will_do(house: House) -> None:
    house.repo("checkout", "-q", "--detach")
    assert house.prepare().branch == "relay/Alice"


def test_a_linked_worktree_and_a_folder_below_will_do(house: House) -> None:
    house.repo("worktree", "add", "-q", "../linked")
    house.repo.write("deep/down/x", "x", at=house.root / "linked")
    made = house.prepare(at=house.root / "linked" / "deep")
    assert made.path == house.root / "app-worktrees" / "Alice"  # always next to the main worktree
    assert (made.path / "deep").exists()  # from the HEAD where relay was started


def test_submodules_are_named_and_left_to_the_setup(house: House) -> None:
    part = Repo(house.root / "part")
    house.repo("submodule", "add", "-q", str(part.path), "part")
    house.repo("commit", "-q", "-m", "a submodule")
    made = house.prepare()
    assert any("git submodule update --init" in line for line in house.lines)
    assert not (made.path / "part" / "file").exists()
    spec = WorktreeSpec(setup=("git submodule update --init -q",), cleanup="merged")
    house.prepare(spec=spec)
    assert (made.path / "part" / "file").exists()
    assert house.clean_up(spec).kept  # git removes none with submodules unless forced
    assert made.path.exists()
    inside = prepare(  # a submodule is also a repository
        WorktreeSpec(),
        "Bob",
        team="web",
        home=house.home,
        directory=house.repo.path / "part",
        env=house.repo.env,
    )
    assert inside.path == house.repo.path / "part-worktrees" / "Bob"


def no_commit(house: House) -> WorktreeSpec:
    house.repo = Repo(house.root / "empty", commit=False)
    return WorktreeSpec()


def no_repository(house: House) -> WorktreeSpec:
    house.repo.path = house.root
    return WorktreeSpec()


def no_directory(house: House) -> WorktreeSpec:
    house.repo.path = house.root / "missing"
    return WorktreeSpec()


def no_git(house: House) -> WorktreeSpec:
    house.repo.env["PATH"] = str(house.root)
    return WorktreeSpec()


def checked_out(house: House) -> WorktreeSpec:
    return WorktreeSpec(branch="main")


def checked_out_by_another(house: House) -> WorktreeSpec:
    house.prepare("Bob", WorktreeSpec(branch="fix"))
    return WorktreeSpec(branch="fix")


def full_folder(house: House) -> WorktreeSpec:
    (house.root / "there").mkdir()
    (house.root / "there" / "x").touch()
    return WorktreeSpec(path="../there")


def a_file(house: House) -> WorktreeSpec:
    (house.root / "there").touch()
    return WorktreeSpec(path="../there")


def another_repository(house: House) -> WorktreeSpec:
    Repo(house.root / "there")
    return WorktreeSpec(path="../there")


def the_users_worktree(house: House) -> WorktreeSpec:
    house.repo("worktree", "add", "-q", "-b", "theirs", "../there")
    return WorktreeSpec(path="../there")


def files_gone(house: House) -> WorktreeSpec:
    the_users_worktree(house)
    (house.root / "there").rename(house.root / "gone")
    return WorktreeSpec(path="../there")


def git_file_gone(house: House) -> WorktreeSpec:
    (house.prepare().path / ".git").unlink()
    return WorktreeSpec()


def other_branch_now(house: House) -> WorktreeSpec:
    house.prepare()
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
    house: House, wrong: Callable[[House], WorktreeSpec], said: str
) -> None:
    spec = wrong(house)
    with pytest.raises(WorktreeError, match=f"(?s){said}"):
        house.prepare(spec=spec)


def test_a_failure_leaves_nothing_in_the_way(house: House) -> None:
    (house.root / "app-worktrees").touch()
    with pytest.raises(WorktreeError):
        house.prepare()
    (house.root / "app-worktrees").unlink()
    assert house.prepare("Bob", WorktreeSpec(path="../app-worktrees/Alice")).created


def test_a_worktree_that_was_simply_deleted_is_made_anew(house: House) -> None:
    spec = WorktreeSpec(setup=("touch ran",))
    made = house.prepare(spec=spec)
    subprocess.run(["rm", "-rf", made.path], check=True)
    assert house.prepare(spec=spec) == made
    assert (made.path / "ran").exists()


# Copies and links


def test_files_are_copied_and_linked(house: House) -> None:
    (house.repo.path / ".env").write_text("KEY=1")
    (house.repo.path / ".env").chmod(0o600)
    (house.repo.path / "conf/local").mkdir(parents=True)
    (house.repo.path / "conf/local/a").write_text("a")
    (house.repo.path / "conf/local/b").symlink_to("a")
    (house.repo.path / "node_modules").mkdir()
    spec = WorktreeSpec(copy=(".env", "conf/local"), link=("node_modules",))
    made = house.prepare(spec=spec)
    assert (made.path / ".env").read_text() == "KEY=1"
    assert (made.path / ".env").stat().st_mode & 0o777 == 0o600
    assert (made.path / "conf/local/b").readlink() == Path("a")
    assert (made.path / "node_modules").readlink() == house.repo.path / "node_modules"
    (made.path / ".env").write_text("KEY=2")
    house.prepare(spec=replace(spec, setup=("true",)))
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
def test_nothing_leads_out_of_the_repository(house: House, key: str, name: str, said: str) -> None:
    (house.root / "secret").write_text("s")
    (house.root / "elsewhere").mkdir()
    (house.repo.path / "out").symlink_to("../secret")
    (house.repo.path / "folder").symlink_to("..")
    # In the worktree `tracked-link` leads out; in the main one it is a folder by then.
    (house.repo.path / "tracked-link").symlink_to(house.root / "elsewhere")
    house.repo("add", "tracked-link")
    house.repo("commit", "-q", "-m", "a link")
    (house.repo.path / "tracked-link").unlink()
    (house.repo.path / "tracked-link").mkdir()
    (house.repo.path / "tracked-link" / "x").touch()
    spec = WorktreeSpec(path="wt/alice", **{key: (name,)})  # type: ignore[arg-type]
    with pytest.raises(WorktreeError, match=said):
        house.prepare(spec=spec)
    assert not any((house.root / "elsewhere").iterdir())
