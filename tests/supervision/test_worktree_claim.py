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


def test_a_worktree_of_a_running_agent_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree_making, "ENDING", 0.0)
    spec = WorktreeSpec(path="../shared", branch="shared")
    rig.prepare("Alice", spec, lasting=False)
    with rig.running("Alice"), pytest.raises(WorktreeError, match=r"in use by Alice.*relay stop Alice"):
        rig.prepare("Bob", spec, lasting=False)
    assert rig.prepare("Bob", spec, lasting=False).path == rig.root / "shared"
    assert any("taking over" in line and "Alice" in line for line in rig.lines)
    with rig.running("Bob"), pytest.raises(WorktreeError, match="in use by Bob"):
        rig.prepare("Alice", spec)


def test_a_worktree_remains_that_of_an_agent_of_a_fleet(rig: Rig) -> None:
    spec = WorktreeSpec(path="../shared", branch="shared")
    rig.prepare("Alice", spec)
    with pytest.raises(WorktreeError, match=r"belongs to Alice.*git worktree remove"):
        rig.prepare("Bob", spec)
    other = Home(*(str(rig.root / "other" / name) for name in ("config", "state", "run"))).ensure()
    with pytest.raises(WorktreeError, match="belongs to Alice"):  # an Alice of another home is another agent
        rig.prepare("Alice", spec, home=other)
    rig.repo("worktree", "remove", "../shared")
    assert rig.prepare("Bob", spec).created  # the user has released it


def test_names_that_differ_in_case_are_one_agent(rig: Rig) -> None:
    made = rig.prepare("Alice")
    assert rig.prepare("alice") == replace(made, created=False)


def test_one_worktree_is_prepared_by_one_process_at_a_time(rig: Rig) -> None:
    os.mkfifo(rig.root / "gate")
    first = rig.script(f"setup=('echo begun; cat {rig.root}/gate',)")
    assert first.stdout is not None
    while "begun\n" not in first.stdout.readline().replace("$ echo ", ""):
        pass
    with pytest.raises(WorktreeError, match="being prepared, or removed by another process"):
        rig.prepare()
    (rig.root / "gate").write_text("go\n")
    assert "READY" in first.communicate(timeout=60)[0]
    assert not rig.prepare(spec=WorktreeSpec(setup=(f"echo begun; cat {rig.root}/gate",))).created


def test_a_claim_that_is_no_claim_any_more_counts_as_none(rig: Rig) -> None:
    made = rig.prepare()
    for text in ("", "{", "[]", "{}", json.dumps({"path": 1, "owner": 2})):
        for path in (rig.repo.path / ".git" / "relay").glob("*.json"):
            path.write_text(text)
        assert rig.prepare() == replace(made, created=False)
