"""What the sessions of one agent pass on to each other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relay.directives.checkpoint import BYTES, Checkpoint, Checkpoints
from relay.place import Place
from relay.shim.ring import SIZE
from relay.storage.progress import Progress


def test_first_is_true_once_for_all_sessions_of_an_agent(tmp_path: Path) -> None:
    one = Progress(tmp_path / "progress", resumed=False)
    assert one.first("end")
    one.close(remove=False)
    two = Progress(tmp_path / "progress", resumed=True)
    assert not two.first("end")
    assert two.first("another")
    two.close(remove=True)
    assert not (tmp_path / "progress").exists()


def test_another_agent_of_the_same_name_starts_fresh(tmp_path: Path) -> None:
    """The predecessor's last session may have been killed before it removed the file."""
    one = Progress(tmp_path / "progress", resumed=False)
    one.begin(Place("terminal", 7), "digest", "@relay")
    assert one.first("end")
    one.close(remove=False)
    two = Progress(tmp_path / "progress", resumed=False)
    two.note("hooks")
    two.close(remove=False)
    three = Progress(tmp_path / "progress", resumed=True)
    assert (three.earlier, [note["note"] for note in three.notes]) == ({}, ["hooks"])
    three.close(remove=True)


def test_a_directive_is_recognized_by_its_text_and_if_it_can_be_by_its_place(tmp_path: Path) -> None:
    one = Progress(tmp_path / "progress", resumed=False)
    one.begin(Place("terminal", 7), "digest", "@relay")
    one.close(remove=False)
    two = Progress(tmp_path / "progress", resumed=True)
    assert two.recognize(Place("terminal", 7), "another") is None
    found = two.recognize(Place("terminal", 9), "digest")
    assert found is not None and found[0] == "terminal:7"
    two.close(remove=True)


def _checkpoint(position: int) -> Checkpoint:
    state = {"grammar": {"block": None}, "reader": {"place": Place("terminal", position - 1)}}
    return Checkpoint(position, position, 80, 24, "", state)


def test_a_week_of_prompts_and_directives_takes_little_space(tmp_path: Path) -> None:
    """The next session knows what the ring and the checkpoint still cover, and all directives are counted."""
    path, prompts, step = tmp_path / "progress.jsonl", 20_000, 2000
    progress = Progress(path, resumed=False)
    checkpoints = Checkpoints(tmp_path / "checkpoint", progress)
    progress.note("hooks")
    progress.note("transcript", path="x", offset=7)
    progress.begin(Place("transcript", 3), "long ago", "@relay")
    progress.count("missed", 5)
    largest = saved = 0
    for at in range(step, step * (prompts + 1), step):
        checkpoints.waited(at, True)
        progress.begin(Place("terminal", at), f"{at}", "@relay")
        progress.done(Place("terminal", at), None if at % (2 * step) else "failed")
        if at - saved >= BYTES:
            saved = at
            checkpoints.save(_checkpoint(at))
        largest = max(largest, path.stat().st_size)
    assert largest < 2 << 20, "for some 20 MB of output"
    progress.close(remove=False)

    later = Progress(path, resumed=True)
    assert later.counts == {
        "heard": prompts + 1, "begun": prompts + 1, "failed": prompts // 2, "missed": 5,
    }  # fmt: skip
    assert [note["note"] for note in later.notes if note["note"] != "waited"] == ["hooks", "transcript"]
    assert later.recognize(Place("transcript", 3), "long ago")
    held = range(saved - SIZE + step, step * (prompts + 1), step)  # as long as the ring holds it
    assert all(later.earlier[f"terminal:{at // step * step}"].done for at in held)
    waits = {note["at"] for note in later.notes if note["note"] == "waited"}
    assert waits.issuperset(at // step * step for at in held)
    later.close(remove=True)
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]


def test_a_session_killed_while_it_compacts_loses_nothing(tmp_path: Path) -> None:
    """The kill comes before each call that changes a file."""
    for call in range(1, 1000):
        path = tmp_path / f"{call}.jsonl"
        progress = Progress(path, resumed=False)
        for offset in (1, 2, SIZE + 3):
            progress.begin(Place("terminal", offset), f"{offset}", "@relay")
        progress.done(Place("terminal", SIZE + 3), "failed")
        progress.note("waited", at=4, sure=True)
        progress.note("hooks")
        pid = os.fork()
        if pid == 0:
            _die_before(call)
            try:
                place = Place("terminal", SIZE + 3)
                progress.compact(place, but_last=True, offset=3, position=5)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        later = Progress(path, resumed=True)
        assert later.counts == {"heard": 3, "begun": 3, "failed": 1}
        assert later.earlier[f"terminal:{SIZE + 3}"].done
        assert "hooks" in [note["note"] for note in later.notes]
        later.close(remove=True)
        progress.close(remove=False)
        assert not list(tmp_path.iterdir()), "no file is left behind"
        if os.waitstatus_to_exitcode(status) == 0:
            break
    else:
        raise AssertionError("the compaction never completed")
    assert call > 4


def _die_before(call: int) -> None:
    """Kill this process before its `call`-th call that changes files."""
    left = call

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return run

    for name in ("open", "write", "pwrite", "ftruncate", "close", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
