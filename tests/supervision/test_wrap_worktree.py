"""`relay wrap --worktree BRANCH`: the agent runs in a worktree of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervision.repositories import Repo, needs_git
from support import Relay, wait_until

pytestmark = needs_git


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "app")


def test_the_agent_runs_in_its_worktree(relay: Relay, repo: Repo) -> None:
    run = relay(
        *("wrap", "--worktree", "team/fix", "sh", "-c", "pwd; echo $PWD; git branch --show-current; exit 3"),
        env={**repo.env, "GIT_DIR": str(repo.path / ".git")},
        cwd=repo.path,
        check=False,
    )
    worktree = repo.path.parent / "app-worktrees" / "team-fix"
    assert run.stdout.split() == [str(worktree), str(worktree), "team/fix"]
    assert run.returncode == 3
    assert f"relay: creating the worktree {worktree} (branch team/fix, from HEAD)" in run.stderr
    again = relay("wrap", "--worktree=team/fix", "pwd", env=repo.env, cwd=repo.path)  # under another name
    assert again.stdout.strip() == str(worktree)


def test_a_relative_program_and_config_are_still_found(relay: Relay, repo: Repo) -> None:
    repo.write("agent", "#!/bin/sh\nwhile [ ! -e started ]; do sleep 0.1; done; echo here\n")
    (repo.path / "agent").chmod(0o755)
    repo("commit", "-q", "-a", "-m", "executable")
    config = repo.path / "my.config.py"
    config.write_text(
        "from pathlib import Path\n"
        "from relay import on\n"
        "@on('session_start')\n"
        "def start(event, ctx):\n"
        "    Path(ctx.working_dir, 'started').touch()\n"
    )
    relay("trust", config)
    run = relay(
        *("wrap", "--config", "my.config.py", "--worktree", "fix", "./agent"), env=repo.env, cwd=repo.path
    )
    assert run.stdout.strip() == "here"


def test_two_agents_do_not_share_a_worktree(relay: Relay, repo: Repo) -> None:
    relay(*("wrap", "-d", "-n", "Alice", "--worktree", "fix", "cat"), env=repo.env, cwd=repo.path)
    (session,) = json.loads(relay("ps", "--json").stdout)
    assert session["cwd"] == str(repo.path.parent / "app-worktrees" / "fix")
    refused = relay(
        *("wrap", "-n", "Bob", "--worktree", "fix", "pwd"), env=repo.env, cwd=repo.path, check=False
    )
    assert refused.returncode == 1
    assert "is in use by Alice" in refused.stderr
    assert "Traceback" not in refused.stderr
    relay("stop", "Alice")
    wait_until(lambda: json.loads(relay("ps", "--json").stdout) == [])
    taken = relay(*("wrap", "-n", "Bob", "--worktree", "fix", "pwd"), env=repo.env, cwd=repo.path)
    assert "taking over" in taken.stderr


def test_nothing_starts_outside_a_repository(relay: Relay, tmp_path: Path) -> None:
    run = relay("wrap", "-n", "Alice", "--worktree", "fix", "pwd", cwd=tmp_path, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert "not in a git repository" in run.stderr
    assert relay("wrap", "-n", "Alice", "pwd", cwd=tmp_path).stdout.strip() == str(
        tmp_path
    )  # the name is free


def test_a_restarted_agent_runs_in_its_worktree_again(relay: Relay, repo: Repo) -> None:
    relay(*("wrap", "-d", "-n", "Alice", "--worktree", "fix", "cat"), env=repo.env, cwd=repo.path)
    relay("restart", "Alice")
    worktree = str(repo.path.parent / "app-worktrees" / "fix")

    def restarted() -> bool:
        found = json.loads(relay("ps", "--json").stdout)
        return [(each["restarts"], each["cwd"]) for each in found] == [(1, worktree)]

    wait_until(restarted)
