"""The memory store withstands racing and killed processes, and unusable files."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.errors import MemoryStoreError
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore

# Saves until it is killed, and prints a line after each memory.
WRITER = """
import itertools, sys
from pathlib import Path
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
store = MemoryStore(EmbeddedBackend(Path(sys.argv[1])), "home", sys.argv[2])
for number in itertools.count():
    saved = store.save(f"{sys.argv[2]} fact {number} " + "padding " * 200, shared=True)
    print(saved.id, flush=True)
"""

# Creates or opens each store that it reads from stdin, saves, and prints the id.
RACER = """
import sys
from pathlib import Path
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
for line in sys.stdin:
    store = MemoryStore(EmbeddedBackend(Path(line.strip())), "home", sys.argv[1])
    print(store.save(f"by {sys.argv[1]}", shared=True).id, flush=True)
    store.close()
"""

# Opens and saves without root's privileges, and prints the error.
READER = """
import os, sys
from pathlib import Path
from relay.errors import MemoryStoreError
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    MemoryStore(EmbeddedBackend(Path(sys.argv[1])), "home", "Alice").save("hello")
except MemoryStoreError as error:
    print(error)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def make(path: Path) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    store.check()
    store.close()


def assert_sound(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute("INSERT INTO memory_text (memory_text, rank) VALUES ('integrity-check', 1)")
    connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state" / "memory.db"


def test_saved_memories_survive_a_killed_process(path: Path) -> None:
    saved: list[str] = []
    for round in range(5):
        with start(WRITER, str(path), f"writer{round}") as writer:
            assert writer.stdout is not None
            for _ in range(7 + 3 * round):
                saved.append(writer.stdout.readline().strip())
            writer.send_signal(signal.SIGKILL)
            saved += writer.stdout.read().split()
        assert writer.returncode == -signal.SIGKILL
    store = MemoryStore(EmbeddedBackend(path), "home", "reader")
    known = {memory.id for memory in store.list(10_000)}
    assert set(saved) <= known
    assert len(known) <= len(saved) + 5  # at most one more per killed writer
    assert {memory.id for memory in store.search("fact", 10_000)} == known
    store.close()
    assert_sound(path)


def test_processes_that_start_together_share_one_file(tmp_path: Path) -> None:
    writers = [start(RACER, f"writer{number}") for number in range(8)]
    for round in range(20):
        path = tmp_path / f"{round}.db"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(f"{path}\n")
            writer.stdin.flush()
        saved = []
        for writer in writers:
            assert writer.stdout is not None
            saved.append(writer.stdout.readline().strip())
        store = MemoryStore(EmbeddedBackend(path), "home", "reader")
        assert sorted(memory.id for memory in store.list()) == sorted(saved)
        store.close()
        assert_sound(path)
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0


def test_opening_and_reading_do_not_wait_for_a_writer(path: Path) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    kept = store.save("kept")
    store.close()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    other = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    assert other.list() == [kept]
    assert other.search("kept") == [kept]
    writer.close()
    other.close()


def test_the_file_is_private_to_its_owner(path: Path) -> None:
    mask = os.umask(0)
    try:
        store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
        store.save("a secret")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        store.close()
    finally:
        os.umask(mask)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"not a database at all\n" * 50, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_reported_with_advice(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(MemoryStoreError, match=r"is damaged .*Move it away"):
        MemoryStore(EmbeddedBackend(path), "home", "Alice").save("hello")
    assert path.read_bytes() == content


def test_damage_within_a_file_is_reported(path: Path) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    for number in range(50):
        store.save(f"fact {number} " + "padding " * 500)
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    damaged = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    with pytest.raises(MemoryStoreError, match="is damaged"):
        damaged.list(100)
    damaged.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_store_whose_file_was_moved_uses_the_one_that_others_see(path: Path, how: str) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    store.save("before")
    for file in list(path.parent.iterdir()):
        file.rename(file.with_name("moved-" + file.name))
    other = None
    if how == "replaced":
        other = MemoryStore(EmbeddedBackend(path), "home", "Bob")
        other.check()
    after = store.save("after", shared=True)
    other = other or MemoryStore(EmbeddedBackend(path), "home", "Bob")
    assert other.list() == store.list() == [after]
    for opened in (store, other):
        opened.close()


@pytest.mark.parametrize("version", [1, 99])
def test_a_file_of_another_relay_is_refused(path: Path, version: int) -> None:
    make(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(MemoryStoreError, match=r"another relay.*Update"):
        MemoryStore(EmbeddedBackend(path), "home", "Alice").check()


@pytest.mark.parametrize("what", ["the file", "the directory"])
def test_an_unwritable_store_is_reported(path: Path, what: str) -> None:
    make(path)
    for parent in list(path.parents)[:3]:
        parent.chmod(0o755)  # pytest makes them private
    path.chmod(0o444 if what == "the file" else 0o666)
    path.parent.chmod(0o755 if what == "the file" else 0o555)
    with start(READER, str(path)) as reader:
        out, _ = reader.communicate(timeout=60)
    assert "cannot be " in out
    assert "writable, or set RELAY_HOME" in out


def test_a_home_that_is_not_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MemoryStoreError, match=r"File exists|Not a directory"):
        MemoryStore(EmbeddedBackend(tmp_path / "file" / "memory.db"), "home", "Alice").check()


def test_a_full_disk_refuses_a_memory_and_keeps_the_others(path: Path) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    kept = store.save("kept")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores SIGXFSZ, so a file at its limit makes write(2) fail, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(MemoryStoreError, match="Free some space"):
            for number in range(100):
                store.save(f"{number} " + "x" * 60_000)
        assert kept in store.list(100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = store.save("there is space again")
    assert store.list(1) == [after]
    store.close()
    assert_sound(path)


class _WithoutFTS5(sqlite3.Connection):
    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        return super().execute(sql.replace("USING fts5", "USING fts5_missing"), *parameters)  # type: ignore[arg-type]


def test_a_python_without_fts5_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=_WithoutFTS5)
    )
    with pytest.raises(MemoryStoreError, match=r"lacks FTS5.*another Python"):
        MemoryStore(EmbeddedBackend(path), "home", "Alice").check()


def test_a_closed_store_raises_an_error_and_may_be_closed_again(path: Path) -> None:
    store = MemoryStore(EmbeddedBackend(path), "home", "Alice")
    store.close()
    store.close()
    with pytest.raises(MemoryStoreError, match="closed"):
        store.list()
