"""The journal: nothing is lost when sessions rotate it at the same time, and no disk fault raises."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.eventbus import EventBus, handles
from relay.redaction import Redactor
from relay.storage import journal
from relay.storage.journal import EntryWritten, Journal, WritingFailed

TOKEN = "gh" + "p_" + "a7Q" * 12  # in parts, so that this file contains no secret


class Listener:
    """Collects what journals publish on `bus`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failures: list[str] = []
        self.entries: list[dict[str, object]] = []
        self.bus = EventBus(loop)
        self.bus.add(self)

    @handles(WritingFailed)
    def failed(self, event: WritingFailed) -> None:
        self.failures.append(event.text)

    @handles(EntryWritten)
    def entry(self, event: EntryWritten) -> None:
        self.entries.append(event.entry)


@pytest.fixture
def listener() -> Iterator[Listener]:
    loop = asyncio.new_event_loop()
    yield Listener(loop)
    loop.close()


def test_entries_are_read_oldest_first_with_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = Journal(path, "s1", "Alice")
    writer.write("first", text="日本\x1b\udcff")
    writer.write("second", path=tmp_path)
    first, second = journal.read(path)
    assert (first["event"], first["session"], first["name"]) == ("first", "s1", "Alice")
    assert first["text"].startswith("日本\x1b")
    assert second["path"] == str(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_sessions_that_rotate_at_the_same_time_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 1000)
    for number in range(50):
        path = tmp_path / str(number) / "events.jsonl"
        path.parent.mkdir()
        Journal(path, "s0", "Alice").write("old", text="x" * 1000)
        together = threading.Barrier(4)

        def write(name: str, path: Path = path, together: threading.Barrier = together) -> None:
            writer = Journal(path, name, name)
            together.wait()
            writer.write("new")

        threads = [threading.Thread(target=write, args=(f"s{n}",)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [entry["event"] for entry in journal.read(path)].count("new") == 4
        assert [entry["event"] for entry in journal.read(path)].count("old") == 1


def test_a_failing_disk_is_reported_once_per_failure(tmp_path: Path, listener: Listener) -> None:
    path = tmp_path / "state" / "events.jsonl"
    writer = Journal(path, "s1", "Alice", listener.bus)
    writer.write("lost")
    writer.write("lost too")
    assert (
        len(listener.failures) == 1
        and f"cannot write the journal {path}: No such file" in listener.failures[0]
    )
    path.parent.mkdir()
    writer.write("kept")
    assert [entry["event"] for entry in journal.read(path)] == ["kept"]
    path.unlink()
    path.parent.rmdir()
    writer.write("lost again")
    assert len(listener.failures) == 2


def test_a_truncated_entry_spoils_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    path = tmp_path / "events.jsonl"
    writer = Journal(path, "s1", "Alice", listener.bus)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        writer.write("cut")
    writer.write("whole")
    assert [entry["event"] for entry in journal.read(path)] == ["whole"]
    assert len(listener.failures) == 1 and "No space left" in listener.failures[0]


@pytest.mark.parametrize("room", [1, 10, 60, -1])
def test_a_full_disk_leaves_no_torn_line_and_costs_no_other_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """room: bytes of the second entry that fit; -1: all except its last."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(journal.time, "time", lambda: 1.0)  # entries of both processes are equally long
    bob = Journal(path, "s2", "Bob")
    bob.write("first")
    first = path.stat().st_size
    Journal(tmp_path / "other", "s1", "Alice").write("cut", text="x" * 100)
    most = first + (room if room > 0 else (tmp_path / "other").stat().st_size + room)

    def small_files() -> None:  # a write beyond the limit is truncated, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    code = (
        "import sys; from pathlib import Path; from relay.storage import journal\n"
        "journal.time.time = lambda: 1.0\n"
        "alice = journal.Journal(Path(sys.argv[1]), 's1', 'Alice')\n"
        "alice.write('cut', text='x' * 100); alice.write('refused')"
    )
    subprocess.run([sys.executable, "-c", code, path], preexec_fn=small_files, check=True)
    assert path.stat().st_size > first  # part of an entry was written
    bob.write("last")
    assert [entry["event"] for entry in journal.read(path)] == ["first", "last"]
    lines = path.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines if line.strip()] == ["first", "last"]


def test_removing_a_fragment_keeps_what_another_session_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    write = os.write
    with monkeypatch.context() as full:

        def cut(fd: int, data: bytes) -> int:
            written = write(fd, data[:10])
            full.undo()
            Journal(path, "s2", "Bob").write("whole")  # right after the fragment
            return written

        full.setattr(os, "write", cut)
        Journal(path, "s1", "Alice").write("cut")
    assert [entry["event"] for entry in journal.read(path)] == ["whole"]


def test_a_line_that_is_not_an_entry_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(["[" * 100_000, "{", "3", '{"event": "whole"}', ""]))
    assert [entry["event"] for entry in journal.read(path)] == ["whole"]


def test_a_preview_omits_the_middle() -> None:
    assert journal.preview("short") == "short"
    long = journal.preview("a" * 1000 + "b" * 1000)
    assert long == f"{'a' * 250} [... 1500 characters ...] {'b' * 250}"


def test_secrets_are_redacted_in_every_entry(tmp_path: Path, listener: Listener) -> None:
    """R44: wherever in an entry they are, and whatever their key."""
    path = tmp_path / "events.jsonl"
    redactor = Redactor(["correct horse battery"])
    writer = Journal(path, "s1", "Alice", listener.bus, publishes=True, redactor=redactor)
    writer.write("plain", number=1)
    writer.write(
        "call",
        text=f"first\n{TOKEN}\tlast",
        input={
            "command": ["curl", "-H", f"Authorization: Bearer {'x9' * 20}"],
            "password": "hunter2x",
            TOKEN: 1,
        },
        path=tmp_path / TOKEN,
        known="it is correct horse battery",
    )
    content = path.read_text()
    for secret in (TOKEN, "x9x9", "hunter2x", "horse"):
        assert secret not in content
    _, entry = journal.read(path)
    assert entry["text"] == "first\n[secret: github-token]\tlast"
    assert entry["input"]["password"] == "[secret: password]"
    assert entry["input"]["command"][2] == "Authorization: Bearer [secret: authorization]"
    assert [each["event"] for each in listener.entries] == ["plain", "call"]
    assert json.loads(content.splitlines()[1]) == listener.entries[1]


class Counting(Redactor):
    """Counts the texts searched for secrets, after a quick check."""

    searched = 0

    def redact(self, text: str) -> str:
        self.searched += 1
        return super().redact(text)


@pytest.mark.parametrize(
    "fields, is_searched",
    [
        ({"tokens": 7, "over_budget": False, "route": None}, False),
        ({"tokens": f"a key: {TOKEN}"}, True),
        ({"given": {"token": TOKEN}}, True),
    ],
)
def test_only_text_is_searched_for_secrets(
    tmp_path: Path, fields: dict[str, object], is_searched: bool
) -> None:
    """Each injection has "tokens": the search would take longer than the rest of the entry."""
    redactor = Counting()
    Journal(tmp_path / "audit.jsonl", "s1", "Alice", redactor=redactor).write("injection", **fields)
    assert (redactor.searched > 0) == is_searched
    assert TOKEN not in (tmp_path / "audit.jsonl").read_text()


def test_no_preview_contains_half_a_secret(tmp_path: Path) -> None:
    """R42, R44: neither a preview nor the limit of an entry leaves half a secret."""
    for at in range(200, 300):
        text = "." * at + TOKEN + "." * 1000
        assert TOKEN[:12] not in journal.preview(text)
        assert TOKEN[-12:] not in journal.preview(text[::-1].replace(TOKEN[::-1], TOKEN))
    path = tmp_path / "events.jsonl"
    Journal(path, "s1", "Alice").write("large", text="x" * (journal.MAX_TEXT // 2 - 10) + TOKEN + "y" * 10**7)
    assert TOKEN[:12] not in path.read_text()
    assert path.stat().st_size < journal.MAX_TEXT + 1000
