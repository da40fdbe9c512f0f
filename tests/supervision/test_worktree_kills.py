"""Worktrees that several processes create at once, and processes killed while they create one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from relay.storage.locks import is_held
from relay.supervision.worktree import CleanedUp, WorktreeSpec
from supervision.repositories import needs_git
from supervision.worktrees import Rig, group_is_gone
from support import LONG, wait_until

pytestmark = needs_git


def test_several_agents_can_create_worktrees_at_once(rig: Rig) -> None:
    for number in range(200):
        (rig.repo.path / f"f{number}").write_text("x" * 1000)
    rig.repo("add", ".")
    rig.repo("commit", "-q", "-m", "many")
    names = [f"agent-{number}" for number in range(8 if LONG else 4)]
    running = [rig.script("setup=('touch ran',)", name) for name in names]
    for name, each in zip(names, running, strict=True):
        output, _ = each.communicate(timeout=100)
        path = rig.root / "app-worktrees" / name
        assert each.returncode == 0, output
        assert f"READY {path}" in output
        assert (path / "ran").exists()
        assert rig.repo("status", "--porcelain", at=path) == "?? ran"


def test_the_setup_of_a_killed_process_is_ended_and_repeated(rig: Rig) -> None:
    first = rig.script("setup=('echo $$ > pid; echo started; sleep 1000; true',)")
    assert first.stdout is not None
    while first.stdout.readline() != "started\n":
        pass
    first.kill()
    first.communicate(timeout=60)
    worktree = rig.prepare(spec=WorktreeSpec(setup=("touch ran",)))
    assert (worktree.path / "ran").exists()
    assert "ended a command of an interrupted setup" in rig.lines
    wait_until(lambda: group_is_gone(int((worktree.path / "pid").read_text())))


def test_the_git_of_a_killed_process_is_waited_for(rig: Rig) -> None:
    os.mkfifo(rig.root / "gate")
    block = f"touch {rig.root}/blocked; cat {rig.root}/gate > {rig.root}/passed; cat"
    rig.repo.write(".gitattributes", "file filter=block\n")
    rig.repo("config", "filter.block.smudge", f"sh -c '{block}'")
    first = rig.script("")
    wait_until((rig.root / "blocked").exists)
    first.kill()
    first.communicate(timeout=60)
    assert is_held(rig.repo.path / ".git" / "relay" / "lock")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(rig.prepare)
        rig.repo("config", "--unset", "filter.block.smudge")
        (rig.root / "gate").write_text("go\n")
        assert second.result(60).path.exists()
    assert (rig.root / "passed").read_text() == "go\n"
    assert rig.repo("status", "--porcelain", at=rig.root / "app-worktrees" / "Alice") == ""


def test_metadata_damaged_by_a_kill_blocks_no_agent(rig: Rig) -> None:
    path = rig.prepare().path
    metadata = rig.repo.path / ".git" / "worktrees" / "Alice"
    for name in ("index", "ORIG_HEAD", "logs/HEAD"):
        (metadata / name).unlink(missing_ok=True)
    for folder in ("logs", "refs"):
        if (metadata / folder).exists():
            (metadata / folder).rmdir()
    (metadata / "commondir").write_text("")
    (metadata / "locked").write_text("initializing")
    (path / "file").unlink()
    claim = next((rig.repo.path / ".git" / "relay").glob("*.json"))
    claim.write_text(claim.read_text().replace('"ready"', '"adding"'))
    with pytest.raises(AssertionError, match="commondir"):
        rig.repo("worktree", "list")
    assert rig.prepare("Bob").created
    assert rig.prepare("Alice").created


def test_a_checkout_interrupted_by_a_kill_is_completed(rig: Rig) -> None:
    # A filter that blocks at one file stops git in the middle, with its index locked.
    os.mkfifo(rig.root / "gate")
    block = rig.root / "block"
    block.write_text(f"#!/bin/sh\ntouch {rig.root}/blocked\ncat {rig.root}/gate >/dev/null\nexec cat\n")
    block.chmod(0o755)
    rig.repo.write("a", "a\n")
    rig.repo.write("m", "m\n")
    rig.repo.write("z", "z\n")
    rig.repo.write(".gitattributes", "m filter=block\n")
    rig.repo("config", "filter.block.smudge", str(block))
    first = rig.script("")
    wait_until((rig.root / "blocked").exists)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    rig.repo("config", "--unset", "filter.block.smudge")
    path = rig.root / "app-worktrees" / "Alice"
    assert not (path / "z").exists()
    worktree = rig.prepare()
    assert any("interrupted" in line for line in rig.lines)
    assert worktree.path == path
    assert [(path / name).read_text() for name in "amz"] == ["a\n", "m\n", "z\n"]
    assert rig.repo("status", "--porcelain", at=path) == ""
    assert "locked" not in rig.repo("worktree", "list", "--porcelain")


@pytest.mark.parametrize("created", [False, True])
def test_a_kill_while_git_has_the_branch_locked_leaves_no_lock(rig: Rig, created: bool) -> None:
    """As git leaves it when it is killed while it creates the branch, or resets to it."""
    claims = rig.repo.path / ".git" / "relay"
    path = rig.prepare().path
    (claim,) = claims.glob("*.json")
    text = claim.read_text().replace('"ready"', '"adding"')
    if not created:
        rig.repo("worktree", "remove", str(path))
        rig.repo("branch", "-D", "relay/Alice")
        (rig.repo.path / ".git/refs/heads/relay").mkdir(exist_ok=True)
    claim.write_text(text)
    (rig.repo.path / ".git/refs/heads/relay/Alice.lock").touch()
    worktree = rig.prepare()
    rig.repo("commit", "-q", "--allow-empty", "-m", "work", at=worktree.path)
    rig.repo("reset", "-q", "--hard", "main", at=worktree.path)
    assert rig.clean_up() == CleanedUp(worktree.path)


@pytest.mark.slow
def test_a_worktree_can_be_prepared_after_a_kill_at_any_moment(rig: Rig) -> None:
    for number in range(300):
        (rig.repo.path / f"f{number}").write_text("x" * 100)
    rig.repo("add", ".")
    rig.repo("commit", "-q", "-m", "many")
    path = rig.root / "app-worktrees" / "Alice"
    metadata = rig.repo.path / ".git"
    moments: list[Callable[[], object]] = [
        lambda: (metadata / "refs/heads/relay/Alice").exists(),
        lambda: (metadata / "worktrees/Alice").exists(),
        lambda: (path / ".git").exists(),
        lambda: (metadata / "worktrees/Alice/index.lock").exists(),
        lambda: (path / "f100").exists(),
        lambda: (metadata / "worktrees/Alice/index").exists(),
    ]
    for moment in moments:
        first = rig.script("setup=('touch ran',)")
        wait_until(lambda: moment() or first.poll() is not None)  # noqa: B023 (called at once)
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.communicate(timeout=60)
        worktree = rig.prepare(spec=WorktreeSpec(setup=("touch ran",)))
        assert rig.repo("status", "--porcelain", at=worktree.path) == "?? ran"
        assert worktree.branch == "relay/Alice"
        (path / "ran").unlink()
        assert rig.clean_up() == CleanedUp(path)
        assert "Alice" not in rig.repo("worktree", "list", "--porcelain")
