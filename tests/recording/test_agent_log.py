"""The log of an agent's text: how much of a flood it keeps, what can be read later, when it is deleted."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from relay.place import Place
from relay.recording import agent_log, store
from relay.recording.asciicast import Header
from relay.recording.writer import PartWriter
from relay.storage.journal import Journal

BEGAN, DAY = 1_760_000_000.0, 86_400.0


def places(*lines: tuple[str, str]) -> list[tuple[str, Place]]:
    """Return the text of each (source, text), with places in order."""
    return [(text, Place(source, number)) for number, (source, text) in enumerate(lines)]


def test_consecutive_lines_of_one_source_are_one_entry() -> None:
    found = [*agent_log.entries(places(("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")), 100)]
    assert found == [("1\n2", Place("a", 1), 0), ("3", Place("b", 2), 0), ("4", Place("a", 3), 0)]


def test_the_last_lines_of_a_flood_are_kept() -> None:
    assert [*agent_log.entries(places(*[("a", "x" * 9)] * 5), 25)] == [
        ("x" * 9 + "\n" + "x" * 9, Place("a", 4), 3)
    ]
    assert [*agent_log.entries(places(("a", "x" * 99)), 25)] == [("x" * 99, Place("a", 0), 0)], (
        "at least one line"
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text("xy", max_size=9)), max_size=30), st.integers(1, 60))
def test_every_omitted_line_is_counted(lines: list[tuple[str, str]], most: int) -> None:
    found = [*agent_log.entries(places(*lines), most)]
    assert sum(text.count("\n") + 1 + left_out for text, _, left_out in found) == len(lines)
    assert [place for _, place, _ in found] == sorted(
        (place for _, place, _ in found), key=lambda each: each.offset
    )


def test_a_log_shows_where_lines_were_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.log.jsonl"
    journal = Journal(path, "s", "Ann")
    journal.write("said", text="one\ntwo", left_out=0, place=["terminal", 8, 1])
    journal.write("said", text="five", left_out=2, place=["transcript", 3, 0])
    journal.write("said", text=7)
    journal.write("other", text="no words")
    texts = [line.text for line in agent_log.read(path)]
    assert texts == ["one", "two", "[... 2 lines left out ...]", "five"]
    last = {"terminal": Place("terminal", 8, 1), "transcript": Place("transcript", 3)}
    assert agent_log.last_places(path) == last


def test_a_file_name_identifies_the_agent_of_a_log(tmp_path: Path) -> None:
    path = store.log_path_of(tmp_path, "team.x", "a-b", "0123456789", BEGAN)
    assert store.parse_log(path) == store.StoredLog(tmp_path / "team.x", path.name, "a-b", "01234567", BEGAN)
    assert store.parse(path) is None, "it is not a recording"
    for other in ("Ann.log.jsonl", "Ann-20261399T000000-abc.log.jsonl", "Ann-20260101T000000-abc.cast"):
        assert store.parse_log(tmp_path / other) is None


def write(folder: Path, session: str, days: int, name: str = "Ann") -> Path:
    path = store.log_path_of(folder, "default", name, session, BEGAN - days * DAY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * 100)
    os.utime(path, (BEGAN - days * DAY,) * 2)
    return path


def test_old_logs_are_deleted(tmp_path: Path) -> None:
    """By age, then the oldest until the rest fits; never the log of a running agent."""
    old, second, third = (write(tmp_path, f"s{days}", days) for days in (40, 20, 10))
    running = write(tmp_path, "running", 90)
    before = running.with_suffix(".jsonl.1")
    before.write_text("x")
    cast = PartWriter(
        store.path_of(tmp_path, "default", "Ann", "running", BEGAN - 90 * DAY), Header(80, 24, BEGAN, "", "")
    )
    assert [log.path for log in store.logs(tmp_path, "ann")] == [running, old, second, third]
    assert store.sweep(tmp_path, days=30, total=10**9, now=BEGAN) == 1
    assert [log.path for log in store.logs(tmp_path, "ann")] == [running, second, third]
    total = sum(log.size for log in store.logs(tmp_path)) + store.recordings(tmp_path)[0].size
    assert store.sweep(tmp_path, days=30, total=total - 1, now=BEGAN) == 1
    assert [log.path for log in store.logs(tmp_path, "ann")] == [running, third]
    cast.close()
    store.sweep(tmp_path, days=30, total=0, now=BEGAN)
    assert not list(tmp_path.glob("*/*"))
