"""Both backends fulfil the contract of memory backends with each vector store available here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from memory.contract import BackendContract, Open
from memory_backends.conftest import KINDS, Place
from relay.memory.backend import MemoryBackend


@pytest.mark.parametrize("kind", KINDS)
class TestContract(BackendContract):
    unstorable = True

    @pytest.fixture
    def open_backend(self, place: Place) -> Iterator[Open]:
        with ExitStack() as opened:

            def open_backend() -> MemoryBackend:
                backend = place.open()
                opened.callback(backend.close)
                return backend

            yield open_backend
