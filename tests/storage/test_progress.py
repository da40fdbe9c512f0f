"""What the sessions of one agent leave to each other."""

from __future__ import annotations

from pathlib import Path

from relay.place import Place
from relay.storage.progress import Progress


def test_what_is_first_for_all_sessions_of_an_agent(tmp_path: Path) -> None:
    one = Progress(tmp_path / "progress", resumed=False)
    assert one.first("end")
    one.close(remove=False)
    two = Progress(tmp_path / "progress", resumed=True)
    assert not two.first("end")
    assert two.first("another")
    two.close(remove=True)
    assert not (tmp_path / "progress").exists()


def test_another_agent_of_the_name_begins_anew(tmp_path: Path) -> None:
    """Its predecessor's last session may have been killed before it removed the file."""
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
