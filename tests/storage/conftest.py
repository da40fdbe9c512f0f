from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgers import counted
from relay.storage.writer import Writer
from storage.notes import Notes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer[Notes]]:
    found = Writer(Notes, path)
    yield found
    found.close()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    return counted(monkeypatch)
