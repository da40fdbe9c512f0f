"""Real servers for the memory backends: PostgreSQL with pgvector, Chroma, and an embedder.

`make test-memory` runs these tests, in a separate virtual environment.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memory_backends.embedding_server import EmbeddingServer
from relay.memory.backend import MemoryBackend
from relay_memory.mem0_backend import open_mem0
from relay_memory.qdrant_backend import open_qdrant
from support import wait_until

_OPENERS: dict[str, Callable[..., MemoryBackend]] = {"mem0": open_mem0, "qdrant": open_qdrant}
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("default"))  # for warnings within the libraries
        item.add_marker(pytest.mark.timeout(400))  # chromadb and mem0 are slow to import


def needs(module: str, package: str) -> None:
    """Skip the test if a package that it needs is missing."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"the package {package} is not installed: run `make test-memory`")


@dataclass(frozen=True)
class Place:
    """A backend and its configuration: a user's settings, and a folder."""

    backend: str
    config: dict[str, Any]
    folder: Path

    def open(self) -> MemoryBackend:
        return _OPENERS[self.backend](self.config, self.folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="memory-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of a real PostgreSQL with pgvector."""
    needs("pgserver", "pgserver")
    needs("psycopg", "psycopg[binary,pool]")
    import pgserver

    path = Path(tempfile.mkdtemp(prefix="pg-"))
    server = pgserver.get_server(path, cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def chroma() -> Iterator[str]:
    """Yield the URL of a real `chroma run`."""
    needs("chromadb", "chromadb")
    path = Path(tempfile.mkdtemp(prefix="chroma-"))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        Path(sys.executable).with_name("chroma"),
        "run",
        "--path",
        path,
        "--host",
        "127.0.0.1",
        "--port",
        port,
    ]
    with open(path / "log", "wb") as log:
        server = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    try:

        def answers() -> bool:
            assert server.poll() is None, (path / "log").read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=5) as reply:
                    return bool(reply.status == 200)
            except OSError:
                return False

        wait_until(answers, timeout=300)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(path, ignore_errors=True)


KINDS = ("qdrant", "mem0-qdrant", "mem0-pgvector", "mem0-chroma")


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: str, embeddings: EmbeddingServer, folder: Path) -> Place:
    """Return a new, empty store of `kind`, one of KINDS."""
    return make_place(request, kind, embeddings.url, folder)


def make_place(request: pytest.FixtureRequest, kind: str, embedder: str, folder: Path) -> Place:
    backend, _, store = kind.partition("-")
    needs("qdrant_client" if backend == "qdrant" else "mem0", f"agent-relay[{backend}]")
    vectors: dict[str, Any] = {"collectionName": f"test_{os.getpid()}_{next(_numbers)}"}
    if store in ("pgvector", "chroma"):
        server = request.getfixturevalue("postgres" if store == "pgvector" else "chroma")
        vectors |= {"provider": store, "url": server}
    config = {
        "vectorStore": vectors,
        "embedder": {"provider": "ollama", "model": "bag-64", "url": embedder},
    }
    return Place(backend, config, folder)
