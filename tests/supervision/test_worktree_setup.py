"""The setup of a worktree: its output, failures, time limit and cancellation."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.errors import SetupFailed
from relay.supervision import worktree_setup
from relay.supervision.worktree import AgentWorktree, WorktreeSpec
from relay.supervision.worktree_setup import LEFT_OUT, LIMIT, TAIL
from supervision.repositories import needs_git
from supervision.worktrees import Rig, group_is_gone
from support import wait_until

pytestmark = needs_git


def test_the_output_of_the_setup_is_kept_and_reported(rig: Rig) -> None:
    rig.prepare(spec=WorktreeSpec(setup=("echo one; echo two >&2", "printf three")))
    log = rig.home.state / "worktrees" / "alice@web.log"
    assert log.read_text() == "$ echo one; echo two >&2\none\ntwo\n$ printf three\nthree"
    assert log.stat().st_mode & 0o777 == 0o600
    assert rig.lines[-5:] == ["$ echo one; echo two >&2", "one", "two", "$ printf three", "three"]


def test_a_failing_command_is_reported_with_its_last_lines(rig: Rig) -> None:
    spec = WorktreeSpec(setup=("echo early", "seq 100; printf '\\033[31mno\\n'; exit 3", "touch never"))
    with pytest.raises(SetupFailed, match=r"exited with 3.*alice@web\.log") as caught:
        rig.prepare(spec=spec)
    error = caught.value
    assert (error.command, error.code) == (spec.setup[1], 3)
    assert error.lines == (*map(str, range(82, 101)), "␛[31mno")
    assert error.log.read_text().startswith("$ echo early\nearly\n$ seq 100")
    worktree = rig.root / "app-worktrees" / "Alice"
    assert not (worktree / "never").exists()
    assert rig.prepare(spec=replace(spec, setup=("touch again",))).path == worktree
    assert (worktree / "again").exists()
    assert "exit 3" in (error.log.with_name("alice@web.log.1")).read_text()


def test_a_command_ended_by_a_signal_has_the_shells_exit_code(rig: Rig) -> None:
    with pytest.raises(SetupFailed) as caught:
        rig.prepare(spec=WorktreeSpec(setup=("kill -9 $$",)))
    assert caught.value.code == 128 + 9


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_setup_that_takes_too_long_is_killed_with_all_its_processes(rig: Rig, trap: str) -> None:
    command = f"{trap}echo $$ > pid; (sleep 1000; true) & sleep 1000; true"
    with pytest.raises(SetupFailed, match=r"longer than 0\.3 s \(setup_timeout\)") as caught:
        rig.prepare(spec=WorktreeSpec(setup=(command,), setup_timeout=0.3))
    assert caught.value.code is None
    pid = int((rig.root / "app-worktrees" / "Alice" / "pid").read_text())
    wait_until(lambda: group_is_gone(pid))


def interrupt(line: str) -> None:
    """Do what Ctrl-C does once the setup has started."""
    if line == "started":
        raise KeyboardInterrupt


def test_a_setup_can_be_interrupted(rig: Rig) -> None:
    with pytest.raises(KeyboardInterrupt):
        AgentWorktree(
            WorktreeSpec(setup=("echo $$ > pid; echo started; sleep 1000; true",)),
            "Alice",
            team="web",
            home=rig.home,
            directory=rig.repo.path,
            env=rig.repo.env,
            progress=interrupt,
        ).prepare()
    pid = int((rig.root / "app-worktrees" / "Alice" / "pid").read_text())
    wait_until(lambda: group_is_gone(pid))


# A flood of output.


class Flood:
    """A setup with a flood of output. lines: the reported ones."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "logs" / "log"
        self.folder = folder
        self.lines: list[str] = []

    def run(self, command: str, **options: Any) -> None:
        worktree_setup.run(
            [command], self.folder, os.environ, self.log, progress=self.report, **{"limit": 1000.0, **options}
        )

    def report(self, line: str) -> None:
        if not line.startswith("$ "):
            self.lines.append(line)


def test_a_flood_does_not_delay_the_time_limit(tmp_path: Path) -> None:
    flood = Flood(tmp_path)
    with pytest.raises(SetupFailed, match="setup_timeout") as caught:
        flood.run("yes", clock=lambda: 2000.0 * bool(flood.lines))
    assert caught.value.lines == ("y",) * TAIL
    assert flood.log.stat().st_size <= LIMIT + 200


def test_the_middle_of_a_long_output_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree_setup, "LIMIT", 1 << 16)
    flood = Flood(tmp_path)
    flood.run("i=0; while [ $i -lt 40000 ]; do i=$((i+1)); echo $i; done; sleep 0.2; seq 40001 40010")
    kept = flood.log.read_bytes()
    assert len(kept) <= (1 << 16) + 200
    assert kept.count(LEFT_OUT) == 1
    head, tail = kept.split(LEFT_OUT)
    assert head.splitlines()[1:4] == [b"1", b"2", b"3"] and len(head) > 20_000
    assert tail.splitlines()[-10:] == [b"%d" % number for number in range(40_001, 40_011)]
    numbers = [int(line) for line in flood.lines if line.isdigit()]
    assert (numbers[:3], numbers[-1]) == ([1, 2, 3], 40_010)
    assert len(set(numbers)) == len(numbers), "no line is reported twice"
