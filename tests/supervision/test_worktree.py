"""Worktrees of agents: making, sharing out, filling and removing them, with the real git."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from relay.errors import SetupFailed, WorktreeError
from relay.home import Home
from relay.storage.locks import is_held
from relay.supervision import worktree_making
from relay.supervision.worktree import CleanedUp, Worktree, WorktreeSpec, clean_up, prepare
from supervision.repositories import Repo, needs_git
from support import wait_until

pytestmark = needs_git


class House:
    """One repository and one home."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(*(str(root / "home" / name) for name in ("config", "state", "run"))).ensure()
        self.repo = Repo(root / "app")
        self.lines: list[str] = []

    def prepare(
        self,
        agent: str = "Alice",
        spec: WorktreeSpec | None = None,
        *,
        at: Path | None = None,
        lasting: bool = True,
        home: Home | None = None,
        **env: str,
    ) -> Worktree:
        return prepare(
            spec or WorktreeSpec(),
            agent,
            team="web",
            home=home or self.home,
            directory=at or self.repo.path,
            env={**self.repo.env, **env},
            lasting=lasting,
            progress=self.lines.append,
        )

    def clean_up(self, spec: WorktreeSpec | None = None, agent: str = "Alice") -> CleanedUp:
        return clean_up(
            spec or WorktreeSpec(cleanup="merged"),
            agent,
            team="web",
            home=self.home,
            directory=self.repo.path,
            env=self.repo.env,
        )

    @contextmanager
    def running(self, agent: str) -> Iterator[None]:
        """Hold the lock that the shim of `agent` holds while it runs."""
        path = Path(self.home.agent_lock("web", agent))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def script(self, spec: str, agent: str = "Alice") -> subprocess.Popen[str]:
        """Start a process of its own group that prepares a worktree; spec: the arguments of WorktreeSpec."""
        code = (
            "import sys; from pathlib import Path\n"
            "from relay.home import Home\n"
            "from relay.supervision.worktree import WorktreeSpec, prepare\n"
            "home = Home(*sys.argv[1:4])\n"
            f"found = prepare(WorktreeSpec({spec}), {agent!r}, team='web', home=home, "
            "directory=Path(sys.argv[4]), progress=lambda line: print(line, flush=True))\n"
            "print('READY', found.path)\n"
        )
        home = self.home
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                code,
                home.config_dir,
                home.state_dir,
                home.run_dir,
                str(self.repo.path),
            ],
            env={**self.repo.env, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


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
    assert (made.path / "ran").read_text() == "x\ny\n"  # as the setup is another one


def test_an_agent_that_has_changed_its_branch_keeps_it(house: House) -> None:
    made = house.prepare()
    house.repo("switch", "-q", "-c", "another", at=made.path)
    assert house.prepare() == Worktree(made.path, "another", False)
    assert any("another" in line for line in house.lines)


def test_a_worktree_of_a_running_agent_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree_making, "ENDING", 0.0)
    spec = WorktreeSpec(path="../shared", branch="shared")
    house.prepare("Alice", spec, lasting=False)
    with house.running("Alice"), pytest.raises(WorktreeError, match=r"in use by Alice.*relay stop Alice"):
        house.prepare("Bob", spec, lasting=False)
    assert house.prepare("Bob", spec, lasting=False).path == house.root / "shared"
    assert any("taking over" in line and "Alice" in line for line in house.lines)
    with house.running("Bob"), pytest.raises(WorktreeError, match="in use by Bob"):
        house.prepare("Alice", spec)


def test_a_worktree_remains_that_of_an_agent_of_a_fleet(house: House) -> None:
    spec = WorktreeSpec(path="../shared", branch="shared")
    house.prepare("Alice", spec)
    with pytest.raises(WorktreeError, match=r"belongs to Alice.*git worktree remove"):
        house.prepare("Bob", spec)
    other = Home(*(str(house.root / "other" / name) for name in ("config", "state", "run"))).ensure()
    with pytest.raises(WorktreeError, match="belongs to Alice"):  # an Alice of another home is another agent
        house.prepare("Alice", spec, home=other)
    house.repo("worktree", "remove", "../shared")
    assert house.prepare("Bob", spec).created  # as the user has given it up


def test_names_that_differ_in_case_are_one_agent(house: House) -> None:
    made = house.prepare("Alice")
    assert house.prepare("alice") == replace(made, created=False)


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
    assert made.path == house.root / "app-worktrees" / "Alice"  # always beside the main worktree
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
    assert house.clean_up(spec).kept  # git removes none with submodules unless it is forced to
    assert made.path.exists()
    inside = prepare(  # a submodule is a repository, too
        WorktreeSpec(),
        "Bob",
        team="web",
        home=house.home,
        directory=house.repo.path / "part",
        env=house.repo.env,
    )
    assert inside.path == house.repo.path / "part-worktrees" / "Bob"


def nothing(house: House) -> WorktreeSpec:
    return WorktreeSpec()


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
        (no_commit, r"no commit yet.*git commit"),
        (no_repository, r"not in a git repository.*git init"),
        (no_directory, "there is no directory"),
        (no_git, "not on PATH"),
        (checked_out, r"main is checked out in .*app.*another branch"),
        (checked_out_by_another, r"fix is checked out in .*Bob, the worktree of Bob.*git worktree remove"),
        (full_folder, "exists, and is not a worktree"),
        (a_file, "exists, and is not a worktree"),
        (another_repository, "exists, and is not a worktree"),
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
    assert (made.path / ".env").read_text() == "KEY=2"  # what is there is kept


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
        ("out", "leads out"),
        ("folder/secret", "leads out"),
        ("missing", "there is no missing"),
        ("tracked-link/x", "leads out"),
        ("wt", "holds the worktree itself"),
    ],
)
def test_nothing_leads_out_of_the_repository(house: House, key: str, name: str, said: str) -> None:
    (house.root / "secret").write_text("s")
    (house.root / "elsewhere").mkdir()
    (house.repo.path / "out").symlink_to("../secret")
    (house.repo.path / "folder").symlink_to("..")
    # In the worktree `tracked-link` leads out; in the main one it is a folder by now.
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


# Setup


def test_the_output_of_the_setup_is_kept_and_told(house: House) -> None:
    house.prepare(spec=WorktreeSpec(setup=("echo one; echo two >&2", "printf three")))
    log = house.home.state / "worktrees" / "alice@web.log"
    assert log.read_text() == "$ echo one; echo two >&2\none\ntwo\n$ printf three\nthree"
    assert log.stat().st_mode & 0o777 == 0o600
    assert house.lines[-5:] == ["$ echo one; echo two >&2", "one", "two", "$ printf three", "three"]


def test_a_failing_command_is_named_with_its_last_lines(house: House) -> None:
    spec = WorktreeSpec(setup=("echo early", "seq 100; printf '\\033[31mno\\n'; exit 3", "touch never"))
    with pytest.raises(SetupFailed, match=r"exited with 3.*alice@web\.log") as caught:
        house.prepare(spec=spec)
    error = caught.value
    assert (error.command, error.code) == (spec.setup[1], 3)
    assert error.lines == (*map(str, range(82, 101)), "␛[31mno")
    assert error.log.read_text().startswith("$ echo early\nearly\n$ seq 100")
    made = house.root / "app-worktrees" / "Alice"
    assert not (made / "never").exists()
    assert house.prepare(spec=replace(spec, setup=("touch again",))).path == made
    assert (made / "again").exists()
    assert "exit 3" in (error.log.with_name("alice@web.log.1")).read_text()


def test_a_command_ended_by_a_signal_says_so(house: House) -> None:
    with pytest.raises(SetupFailed) as caught:
        house.prepare(spec=WorktreeSpec(setup=("kill -9 $$",)))
    assert caught.value.code == 128 + 9


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_what_takes_too_long_is_killed_with_all_its_processes(house: House, trap: str) -> None:
    command = f"{trap}echo $$ > pid; (sleep 1000; true) & sleep 1000; true"
    with pytest.raises(SetupFailed, match=r"longer than 0\.3 s \(setup_timeout\)") as caught:
        house.prepare(spec=WorktreeSpec(setup=(command,), setup_timeout=0.3))
    assert caught.value.code is None
    pid = int((house.root / "app-worktrees" / "Alice" / "pid").read_text())
    wait_until(lambda: group_is_gone(pid))


def test_a_setup_can_be_cancelled(house: House) -> None:
    asked = threading.Event()
    with pytest.raises(WorktreeError, match="cancelled"):
        prepare(
            WorktreeSpec(setup=("echo $$ > pid; echo begun; sleep 1000; true",)),
            "Alice",
            team="web",
            home=house.home,
            directory=house.repo.path,
            env=house.repo.env,
            progress=lambda line: asked.set() if line == "begun" else None,
            cancelled=asked.is_set,
        )
    pid = int((house.root / "app-worktrees" / "Alice" / "pid").read_text())
    wait_until(lambda: group_is_gone(pid))


# Several at once, and kills


def test_eight_agents_of_one_repository_at_once(house: House) -> None:
    for number in range(200):
        (house.repo.path / f"f{number}").write_text("x" * 1000)
    house.repo("add", ".")
    house.repo("commit", "-q", "-m", "many")
    names = [f"agent-{number}" for number in range(8)]
    running = [house.script("setup=('touch ran',)", name) for name in names]
    for name, each in zip(names, running, strict=True):
        said, _ = each.communicate(timeout=100)
        path = house.root / "app-worktrees" / name
        assert each.returncode == 0, said
        assert f"READY {path}" in said
        assert (path / "ran").exists()
        assert house.repo("status", "--porcelain", at=path) == "?? ran"


def test_one_worktree_is_prepared_by_one_process_at_a_time(house: House) -> None:
    os.mkfifo(house.root / "gate")
    first = house.script(f"setup=('echo begun; cat {house.root}/gate',)")
    assert first.stdout is not None
    while "begun\n" not in first.stdout.readline().replace("$ echo ", ""):
        pass
    with pytest.raises(WorktreeError, match="being prepared, or removed by another process"):
        house.prepare()
    (house.root / "gate").write_text("go\n")
    assert "READY" in first.communicate(timeout=60)[0]
    assert not house.prepare(spec=WorktreeSpec(setup=(f"echo begun; cat {house.root}/gate",))).created


def test_a_kill_in_the_setup_ends_that_and_the_next_one_does_it_again(house: House) -> None:
    first = house.script("setup=('echo $$ > pid; echo begun; sleep 1000; true',)")
    assert first.stdout is not None
    while first.stdout.readline() != "begun\n":
        pass
    first.kill()
    first.communicate(timeout=60)
    made = house.prepare(spec=WorktreeSpec(setup=("touch ran",)))
    assert (made.path / "ran").exists()
    assert "ended a command of an interrupted setup" in house.lines
    wait_until(lambda: group_is_gone(int((made.path / "pid").read_text())))


def test_a_killed_relays_git_is_waited_for(house: House) -> None:
    hook = house.repo.path / ".git" / "hooks" / "post-checkout"
    os.mkfifo(house.root / "gate")
    hook.write_text(f"#!/bin/sh\ntouch {house.root}/hooked\ncat {house.root}/gate > {house.root}/passed\n")
    hook.chmod(0o755)
    first = house.script("")
    wait_until((house.root / "hooked").exists)
    first.kill()
    first.communicate(timeout=60)
    assert is_held(house.repo.path / ".git" / "relay" / "lock")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(house.prepare)
        hook.unlink()  # the next checkout calls it, too
        (house.root / "gate").write_text("go\n")
        assert second.result(60).path.exists()
    assert (house.root / "passed").read_text() == "go\n"
    assert house.repo("status", "--porcelain", at=house.root / "app-worktrees" / "Alice") == ""


def test_metadata_that_git_cannot_read_after_a_kill_stop_nobody(house: House) -> None:
    path = house.prepare().path
    metadata = house.repo.path / ".git" / "worktrees" / "Alice"
    for name in ("index", "ORIG_HEAD", "logs/HEAD"):
        (metadata / name).unlink(missing_ok=True)
    for folder in ("logs", "refs"):
        if (metadata / folder).exists():
            (metadata / folder).rmdir()
    (metadata / "commondir").write_text("")
    (metadata / "locked").write_text("initializing")
    (path / "file").unlink()
    claim = next((house.repo.path / ".git" / "relay").glob("*.json"))
    claim.write_text(claim.read_text().replace('"ready"', '"adding"'))
    with pytest.raises(AssertionError, match="commondir"):
        house.repo("worktree", "list")
    assert house.prepare("Bob").created
    assert house.prepare("Alice").created


def test_a_kill_in_the_middle_of_a_checkout_is_made_good(house: House) -> None:
    # A filter that blocks at one file stops git in the middle, with its index locked.
    os.mkfifo(house.root / "gate")
    block = house.root / "block"
    block.write_text(f"#!/bin/sh\ntouch {house.root}/blocked\ncat {house.root}/gate >/dev/null\nexec cat\n")
    block.chmod(0o755)
    house.repo.write("a", "a\n")
    house.repo.write("m", "m\n")
    house.repo.write("z", "z\n")
    house.repo.write(".gitattributes", "m filter=block\n")
    house.repo("config", "filter.block.smudge", str(block))
    first = house.script("")
    wait_until((house.root / "blocked").exists)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    house.repo("config", "--unset", "filter.block.smudge")
    path = house.root / "app-worktrees" / "Alice"
    assert not (path / "z").exists()
    made = house.prepare()
    assert any("interrupted" in line for line in house.lines)
    assert made.path == path
    assert [(path / name).read_text() for name in "amz"] == ["a\n", "m\n", "z\n"]
    assert house.repo("status", "--porcelain", at=path) == ""
    assert "locked" not in house.repo("worktree", "list", "--porcelain")


@pytest.mark.slow
def test_after_a_kill_at_any_moment_it_is_prepared(house: House) -> None:
    for number in range(300):
        (house.repo.path / f"f{number}").write_text("x" * 100)
    house.repo("add", ".")
    house.repo("commit", "-q", "-m", "many")
    path = house.root / "app-worktrees" / "Alice"
    metadata = house.repo.path / ".git"
    moments: list[Callable[[], object]] = [
        lambda: (metadata / "refs/heads/relay/Alice").exists(),
        lambda: (metadata / "worktrees/Alice").exists(),
        lambda: (path / ".git").exists(),
        lambda: (metadata / "worktrees/Alice/index.lock").exists(),
        lambda: (path / "f100").exists(),
        lambda: (metadata / "worktrees/Alice/index").exists(),
    ]
    for moment in moments:
        first = house.script("setup=('touch ran',)")
        wait_until(lambda: moment() or first.poll() is not None)  # noqa: B023 (called at once)
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.communicate(timeout=60)
        made = house.prepare(spec=WorktreeSpec(setup=("touch ran",)))
        assert house.repo("status", "--porcelain", at=made.path) == "?? ran"
        assert made.branch == "relay/Alice"
        (path / "ran").unlink()
        cleaned = house.clean_up()
        # A git that is killed may leave a lock behind, over which the branch is kept.
        assert (cleaned.path, cleaned.kept) == (path, "")
        assert "Alice" not in house.repo("worktree", "list", "--porcelain")


# Removing them


def test_a_clean_and_merged_worktree_is_removed_with_its_branch(house: House) -> None:
    (house.repo.path / ".env").write_text("KEY=1")
    (house.repo.path / "node_modules").mkdir()
    spec = WorktreeSpec(cleanup="merged", copy=(".env",), link=("node_modules",))
    house.repo.write(".gitignore", ".env\nbuild/\nnode_modules/\n")  # a link is not what the last one means
    made = house.prepare(spec=spec)
    (made.path / "build").mkdir()
    (made.path / "build" / "x").touch()
    house.repo.write("file", "two\n", at=made.path)
    house.repo("merge", "-q", "relay/Alice")
    assert house.clean_up(spec) == CleanedUp(made.path)
    assert not made.path.exists()
    assert (house.repo.path / "node_modules").is_dir()
    assert not house.repo("branch", "--list", "relay/Alice")
    assert house.clean_up(spec) == CleanedUp(made.path)  # nothing is left to do
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


def test_merged_does_not_mean_merged_into_itself(house: House) -> None:
    made = house.prepare()
    committed(house, made.path)
    result = clean_up(
        WorktreeSpec(cleanup="merged"),
        "Alice",
        team="web",
        home=house.home,
        directory=made.path,  # where an agent's session is
        env=house.repo.env,
    )
    assert "not all in HEAD" in result.kept


def test_another_agents_worktree_is_not_removed_nor_any_without_being_asked(house: House) -> None:
    spec = WorktreeSpec(path="../shared", branch="shared", cleanup="merged")
    house.prepare("Bob", spec)
    assert house.clean_up(spec).kept == "it is not this agent's"
    assert house.clean_up(replace(spec, cleanup="never"), "Bob").kept == "cleanup is 'never'"
    assert house.clean_up(spec, "Bob").kept == ""


def test_a_claim_that_is_no_claim_any_more_counts_as_none(house: House) -> None:
    made = house.prepare()
    for text in ("", "{", "[]", "{}", json.dumps({"path": 1, "owner": 2})):
        for path in (house.repo.path / ".git" / "relay").glob("*.json"):
            path.write_text(text)
        assert house.prepare() == replace(made, created=False)
