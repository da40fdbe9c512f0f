"""Locks between processes, and files that are written completely or not at all."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relay.errors import HomeError
from relay.home import Home, private_directory
from relay.storage import files
from relay.storage.locks import is_held, locked, open_lock, try_lock, wait_lock

HOLDER = """
import sys
from relay.storage.locks import locked
with locked(sys.argv[1], shared=len(sys.argv) > 2):
    print(flush=True)
    sys.stdin.read()
"""

# Adds its numbers to a list in a file, one at a time.
ADDER = """
import json, sys
from pathlib import Path
from relay.storage.files import rewrite
path = Path(sys.argv[1])
for number in range(20):
    rewrite(path, lambda: json.dumps([*(json.loads(path.read_text()) if path.exists() else []), number]))
"""


def holder(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    return started


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    assert not is_held(path) and not path.exists()
    with holder(path) as process:
        assert is_held(path)
        descriptor = open_lock(path)
        assert not try_lock(descriptor) and not wait_lock(descriptor, 0.02)
        with pytest.raises(HomeError, match=r"has held .*a\.lock for 0 s\. Try again"), locked(path, 0.02):
            pass
        process.kill()
        assert wait_lock(descriptor)
        os.close(descriptor)
    assert not is_held(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_shared_lock_excludes_only_exclusive_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path, "shared") as process:
        assert not is_held(path)
        with locked(path, 0.02, shared=True):
            pass
        descriptor = open_lock(path)
        assert not try_lock(descriptor)
        os.close(descriptor)
        process.kill()


def test_a_lock_file_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match=r"cannot open the lock file .*writable, or set RELAY_HOME"):
        open_lock(tmp_path / "missing" / "a.lock")


def test_a_private_file_is_written_completely_and_only_for_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "above" / "new" / "file"
    mask = os.umask(0)
    try:
        files.write_private(path, "one")
        private_directory(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    created = [path.parent, path.parent.parent, *(tmp_path / "a").rglob("*"), tmp_path / "a"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in created} == {0o700}, "S13"
    with pytest.raises(UnicodeEncodeError):
        files.write_private(path, "two\ud800")
    with pytest.raises(FileExistsError):
        files.write_private(path, "three", replace=False)
    assert path.read_text() == "one"
    assert list(path.parent.iterdir()) == [path]  # no temporary file is left next to it


def test_a_folder_is_created_while_another_process_creates_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process acts right after the first attempt."""
    mkdir = os.mkdir

    def raced(path: str, mode: int = 0o777) -> None:
        try:
            mkdir(path, mode)
        except FileNotFoundError:
            Path(path).parent.mkdir(parents=True)
            raise

    monkeypatch.setattr(os, "mkdir", raced)
    private_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    with pytest.raises(HomeError, match=r"cannot use the directory /proc/none/b: No such"):
        monkeypatch.undo()
        private_directory("/proc/none/b")


def test_concurrent_rewrites_of_a_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    adders = [subprocess.Popen([sys.executable, "-c", ADDER, str(path)]) for _ in range(4)]
    assert [adder.wait(60) for adder in adders] == [0] * 4
    assert sorted(json.loads(path.read_text())) == sorted([*range(20)] * 4)


def test_a_file_that_cannot_be_rewritten_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(HomeError, match=r"cannot write .*folder: .*then try again"):
        files.rewrite(tmp_path / "folder", lambda: "text")


def test_an_unreadable_home_is_rejected_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home's modes may be the user's choice: `Home.check` only looks."""
    home = Home(tmp_path / "config", tmp_path / "state", tmp_path / "run").ensure()
    home.state.chmod(0o355)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.R_OK)  # as for a user other than root
    with pytest.raises(HomeError, match=r"Permission denied\. Make it readable"):
        home.check()
    assert stat.S_IMODE(home.state.stat().st_mode) == 0o355


def test_a_home_with_a_file_in_place_of_a_directory_is_rejected(tmp_path: Path) -> None:
    home = Home(tmp_path / "config", tmp_path / "state", tmp_path / "run")
    home.state.touch()
    with pytest.raises(HomeError, match="Not a directory"):
        home.check()


def test_a_lock_that_cannot_be_checked_counts_as_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder may be alive: without a free descriptor, every agent would seem to have ended."""
    (tmp_path / "lock").touch()
    assert not is_held(tmp_path / "lock") and not is_held(tmp_path / "none")

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", full)
    assert is_held(tmp_path / "lock")
