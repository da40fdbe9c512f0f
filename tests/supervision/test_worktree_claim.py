"""Who owns a worktree: agents, homes and processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay import names
from relay.errors import WorktreeError
from relay.home import Home
from relay.supervision import worktree, worktree_setup
from relay.supervision.worktree import WorktreeSpec
from relay.supervision.worktree_claim import Claims
from supervision.repositories import needs_git
from supervision.worktrees import Rig

pytestmark = needs_git


def test_a_worktree_of_a_running_agent_is_in_use(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree, "ENDING", 0.0)
    spec = WorktreeSpec(path="../shared", branch="shared")
    rig.prepare("Alice", spec, lasting=False)
    with rig.running("Alice"), pytest.raises(WorktreeError, match=r"in use by Alice.*relay stop Alice"):
        rig.prepare("Bob", spec, lasting=False)
    assert rig.prepare("Bob", spec, lasting=False).path == rig.root / "shared"
    assert any("taking over" in line and "Alice" in line for line in rig.lines)
    with rig.running("Bob"), pytest.raises(WorktreeError, match="in use by Bob"):
        rig.prepare("Alice", spec)


def test_the_worktree_of_a_fleets_agent_remains_its_own(rig: Rig) -> None:
    spec = WorktreeSpec(path="../shared", branch="shared")
    rig.prepare("Alice", spec)
    with pytest.raises(WorktreeError, match=r"belongs to Alice.*git worktree remove"):
        rig.prepare("Bob", spec)
    other = Home(*(str(rig.root / "other" / name) for name in ("config", "state", "run"))).ensure()
    with pytest.raises(WorktreeError, match="belongs to Alice"):  # an Alice of another home is another agent
        rig.prepare("Alice", spec, home=other)
    rig.repo("worktree", "remove", "../shared")
    assert rig.prepare("Bob", spec).created  # the user has released it


def forge(rig: Rig, at: Path, **fields: Any) -> None:
    """Write a claim on `at` with these fields, as anyone can who may write into the repository."""
    rig.prepare()
    folder = rig.repo.path / ".git" / "relay"
    claim = json.loads(next(folder.glob("*.json")).read_text())
    id = hashlib.sha256(names.key(str(at)).encode()).hexdigest()[:16]
    (folder / f"{id}.json").write_text(json.dumps({**claim, "path": str(at), **fields}))


def test_a_forged_branch_deletes_no_file_elsewhere(rig: Rig) -> None:
    victims = [rig.repo.path / ".git" / "victim.lock", rig.root / "victim.lock"]
    (rig.repo.path / ".git" / "refs" / "heads" / "linked").symlink_to(rig.root)
    for victim, branch in zip(victims, ("../../victim", "linked/victim"), strict=True):
        victim.touch()
        forge(rig, rig.root / "app-worktrees" / "Alice", stage="adding", branch=branch)
        with suppress(WorktreeError):
            rig.prepare()
        assert victim.exists()


def test_a_forged_path_loses_no_worktree_of_another_repository(rig: Rig) -> None:
    victim = rig.root / "other"
    victim.mkdir()
    (victim / ".git").write_text(f"gitdir: {rig.root}/elsewhere\n")
    forge(rig, victim, stage="adding")
    metadata = rig.repo.path / ".git" / "worktrees" / "forged"
    metadata.mkdir()
    (metadata / "gitdir").write_text(f"{victim}/.git\n")
    with suppress(WorktreeError):
        rig.prepare("Bob")
    assert (victim / ".git").exists()


def test_a_forged_process_id_ends_no_process(rig: Rig) -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as victim:
        try:
            path = rig.root / "app-worktrees" / "Alice"
            start = worktree_setup.start_of(victim.pid)
            forge(rig, path, stage="filling", setup_pid=victim.pid, setup_start=start)
            rig.prepare()
            assert victim.poll() is None
        finally:
            victim.kill()


@pytest.mark.parametrize(
    "fields",
    [
        {"branch": "--orphan"},
        {"branch": 7},
        {"stage": "gone"},
        {"setup_pid": "1"},
        {"path": "/"},
        {"owner": {"team": 1, "agent": [], "lock": None}},
    ],
    ids=str,
)
def test_an_impossible_claim_does_not_count(rig: Rig, fields: dict[str, Any]) -> None:
    path = rig.root / "app-worktrees" / "Alice"
    forge(rig, path, **fields)
    assert Claims(rig.repo.path / ".git").read(path) is None


def test_no_hook_of_the_repository_runs(rig: Rig) -> None:
    hooks = rig.root / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {rig.root}/ran\n")
        (hooks / name).chmod(0o755)
    rig.repo("config", "core.hooksPath", str(hooks))
    rig.prepare()
    assert not (rig.root / "ran").exists()


def test_names_that_differ_only_in_case_are_one_agent(rig: Rig) -> None:
    worktree = rig.prepare("Alice")
    assert rig.prepare("alice") == replace(worktree, created=False)


def test_only_one_process_at_a_time_prepares_a_worktree(rig: Rig) -> None:
    os.mkfifo(rig.root / "gate")
    first = rig.script(f"setup=('echo started; cat {rig.root}/gate',)")
    assert first.stdout is not None
    while "started\n" not in first.stdout.readline().replace("$ echo ", ""):
        pass
    with pytest.raises(WorktreeError, match="being prepared, or removed by another process"):
        rig.prepare()
    (rig.root / "gate").write_text("go\n")
    assert "READY" in first.communicate(timeout=60)[0]
    assert not rig.prepare(spec=WorktreeSpec(setup=(f"echo started; cat {rig.root}/gate",))).created


def test_a_damaged_claim_is_ignored(rig: Rig) -> None:
    worktree = rig.prepare()
    for text in ("", "{", "[]", "{}", json.dumps({"path": 1, "owner": 2})):
        for path in (rig.repo.path / ".git" / "relay").glob("*.json"):
            path.write_text(text)
        assert rig.prepare() == replace(worktree, created=False)
