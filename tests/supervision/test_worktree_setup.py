"""The setup of a worktree: its output, its failures, and its end."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from relay.errors import SetupFailed, WorktreeError
from relay.supervision.worktree import WorktreeSpec, prepare
from supervision.repositories import needs_git
from supervision.worktrees import House, group_is_gone
from support import wait_until

pytestmark = needs_git


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
