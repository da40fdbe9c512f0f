"""What a feature remembers about an agent beyond its session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relay.home import Home
from relay.lifecycle import SessionClosed
from relay.supervision.notebook import Notebook


def notebook(folder: Path, run: str = "r1", section: str = "hold") -> Notebook:
    home = Home.from_env({"RELAY_HOME": str(folder), "HOME": "/"})
    return Notebook(home, "Web", "Alice", section, run=run)


def test_notes_are_kept_and_removed(tmp_path: Path) -> None:
    notes = notebook(tmp_path)
    assert notes.read() == {}
    notes.write({"turns": 3})
    notes.write({"turns": 4})
    assert notebook(tmp_path).read() == {"turns": 4}
    assert notebook(tmp_path, section="bounds").read() == {}
    notes.remove()
    notes.remove()
    assert notebook(tmp_path).read() == {}


def test_another_run_starts_without_notes_unless_it_is_a_fleets(tmp_path: Path) -> None:
    notebook(tmp_path, "r1").write({"turns": 3})
    assert notebook(tmp_path, "r2").read() == {}
    assert notebook(tmp_path, "").read() == {"turns": 3}


@pytest.mark.parametrize("text", ["", "[1]", "{", "\0", "[" * 10_000])
def test_damaged_notes_are_ignored(tmp_path: Path, text: str) -> None:
    notebook(tmp_path).write({"turns": 3})
    (path,) = tmp_path.rglob("alice.hold.json")
    path.write_text(text)
    assert notebook(tmp_path).read() == {}


def test_notes_that_cannot_be_written_raise_no_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder belongs")
    notes = notebook(tmp_path)
    notes.write({"turns": 3})
    notes.remove()
    assert notes.read() == {}


def test_the_notes_of_an_ended_agent_are_removed_for_good(tmp_path: Path) -> None:
    """A feature that closes later may still write."""
    notes = notebook(tmp_path)
    notes.write({"turns": 3})
    asyncio.run(notes.close(SessionClosed(), ()))
    assert notebook(tmp_path).read() == {"turns": 3}
    asyncio.run(notes.close(SessionClosed(ended=True), ()))
    notes.write({"turns": 4})
    assert notebook(tmp_path).read() == {}
