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
from supervision.worktrees import House

pytestmark = needs_git


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
    assert house.prepare("Bob", spec).created  # the user has released it


def test_names_that_differ_in_case_are_one_agent(house: House) -> None:
    made = house.prepare("Alice")
    assert house.prepare("alice") == replace(made, created=False)


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


def test_a_claim_that_is_no_claim_any_more_counts_as_none(house: House) -> None:
    made = house.prepare()
    for text in ("", "{", "[]", "{}", json.dumps({"path": 1, "owner": 2})):
        for path in (house.repo.path / ".git" / "relay").glob("*.json"):
            path.write_text(text)
        assert house.prepare() == replace(made, created=False)
