"""The embedded backend fulfils the contract of memory backends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from memory.contract import BackendContract, Open
from relay.memory.embedded import EmbeddedBackend


class TestEmbedded(BackendContract):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Iterator[Open]:
        with ExitStack() as opened:

            def open_backend() -> EmbeddedBackend:
                backend = EmbeddedBackend(tmp_path / "memory.db")
                opened.callback(backend.close)
                return backend

            yield open_backend
