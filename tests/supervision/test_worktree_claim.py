"""Who owns a worktree: agents, homes and processes."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from relay.errors import WorktreeError
from relay.home import Home
from relay.supervision import worktree_making
from relay.supervision.worktree import WorktreeSpec
from supervision.repositories import needs_git
from supervision.worktrees import Rig

pytestmark = needs_git


def test_a_worktree_of_a_running_agent_is_in_use(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree_making, "ENDING", 0.0)
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
