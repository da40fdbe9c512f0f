"""Following a file that another process writes."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents.tail import MAX_LINE, Tail

BUDGET = 1 << 20


def read(tail: Tail, budget: int = BUDGET) -> list[bytes]:
    """Return the lines available now, after checking the places where they end."""
    found, used = tail.read(budget)
    assert used <= budget
    while tail.behind:
        more, used = tail.read(budget)
        assert used <= budget
        found += more
    content = tail.path.read_bytes() if tail.path.is_file() else b""
    for line, place in found:
        assert content[:place].endswith(line + b"\n")
        assert content[: place - len(line) - 1].endswith(b"\n") or place == len(line) + 1
    assert [place for _, place in found] == sorted({place for _, place in found})
    return [line for line, _ in found]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(0, 500)), st.integers(1, 50))
def test_each_line_is_read_once_however_the_file_grows(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int], budget: int
) -> None:
    data = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    path = tmp_path_factory.mktemp("tail") / "t"
    tail = Tail(path)
    lines_read: list[bytes] = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *places], places, strict=False):
        append(path, data[start:end])
        lines_read += read(tail, budget)
    assert lines_read == [line.replace(b"\n", b"") for line in lines]


def test_a_file_may_be_created_later(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "t")
    assert read(tail) == []
    assert tail.problem is None
    append(tmp_path / "t", b"a\n")
    assert read(tail) == [b"a"]


def test_reading_at_the_end_starts_after_the_last_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, b"old\nold too\nbeing wri")
    tail = Tail(path, at_end=True)
    assert read(tail) == []
    append(path, b"tten\nnew\n")
    assert read(tail) == [b"being written", b"new"]


def test_the_rest_of_a_long_unfinished_line_is_ignored(tmp_path: Path) -> None:
    """The rest of a line whose beginning is unknown is ignored."""
    path = tmp_path / "t"
    append(path, b"x" * 1_000_000)
    tail = Tail(path, at_end=True)
    append(path, b"y\nnew\n")
    assert read(tail) == [b"new"]


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, b"a\n" + b"x" * (MAX_LINE + 1) + b"\n" + b"y" * MAX_LINE + b"\nb\n")
    assert read(Tail(path)) == [b"a", b"y" * MAX_LINE, b"b"]


def test_a_truncated_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, b"one\ntwo\nhalf")
    tail = Tail(path)
    read(tail)
    path.write_bytes(b"new\n")
    assert read(tail) == [b"new"]


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, b"one\n")
    tail = Tail(path)
    read(tail)
    append(tmp_path / "other", b"one\ntwo\n")
    (tmp_path / "other").rename(path)
    assert read(tail) == [b"one", b"two"]


def test_a_rewritten_file_that_is_longer_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, b"one\n")
    tail = Tail(path)
    read(tail)
    path.write_bytes(b"1\n2\n3\n4\n")
    assert read(tail) == [b"1", b"2", b"3", b"4"]


def test_a_deleted_and_recreated_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, b"one\n")
    tail = Tail(path)
    read(tail)
    path.unlink()
    assert read(tail) == []
    append(path, b"two\n")
    assert read(tail) == [b"two"]


def test_a_path_that_is_not_a_regular_file_is_a_problem_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, at_end in product(("pipe", "."), (False, True)):
        tail = Tail(tmp_path / name, at_end)
        assert read(tail) == []
        assert tail.problem is not None
        assert "not a regular file" in tail.problem


def test_a_problem_ends_when_the_file_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir()
    tail = Tail(path)
    read(tail)
    path.rmdir()
    append(path, b"a\n")
    assert read(tail) == [b"a"]
    assert tail.problem is None
