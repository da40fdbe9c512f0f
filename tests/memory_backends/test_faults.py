"""Backends survive killed processes, and report unreachable servers, wrong credentials, models and owners."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from memory.contract import ALICE, memory
from memory_backends.conftest import KINDS, Place, needs
from memory_backends.embedding_server import EmbeddingServer
from memory_backends.writer import numbered
from relay.errors import MemoryStoreError
from relay_memory import embedder

TESTS = Path(__file__).parent.parent


@contextmanager
def writing(place: Place) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that adds memories; kill it at the end."""
    command = [sys.executable, str(TESTS / "memory_backends" / "writer.py")]
    path = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    writer = subprocess.Popen(
        [*command, place.backend, json.dumps(place.config), str(place.folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield writer
    finally:
        writer.kill()
        writer.communicate()


def changed(place: Place, table: str, **options: Any) -> Place:
    return replace(place, config={**place.config, table: {**place.config[table], **options}})


def refused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_memories_survive_a_kill_intact(place: Place) -> None:
    acknowledged = -1
    for round in range(3):
        with writing(place) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            for _ in range(acknowledged + 2 + round * 3):  # the first ones already exist
                acknowledged = int(writer.stdout.readline())
            writer.kill()  # while it adds the next one
            rest = writer.stdout.read().split()
        acknowledged = max([acknowledged, *(int(line) for line in rest)])
        with closing(place.open()) as backend:
            kept = backend.everything()
            assert kept[: acknowledged + 1] == [numbered(number) for number in range(acknowledged + 1)]
            assert kept[acknowledged + 1 :] in ([], [numbered(acknowledged + 1)])
            assert len(backend.list(ALICE, None)) == len(kept)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_killed_while_the_embedder_hangs_stores_nothing(
    place: Place, embeddings: EmbeddingServer
) -> None:
    place = changed(place, "embedder", embeddingDims=64)  # avoids a request before the first memory
    embeddings.hanging.set()
    with writing(place) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        assert embeddings.requested.wait(60)
        writer.kill()
        assert writer.stdout.read() == ""
    embeddings.hanging.clear()
    with closing(place.open()) as backend:
        assert backend.everything() == []
        backend.add(memory("aaaa", "still works"))


@pytest.mark.parametrize("kind", ["qdrant"])
def test_qdrants_own_embedder_has_a_timeout(
    place: Place, embeddings: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(place.open()) as backend:
        monkeypatch.setattr(embedder, "TIMEOUT", 0.2)
        embeddings.hanging.set()
        with pytest.raises(MemoryStoreError, match=r"does not answer .*Start it"):
            backend.add(memory("aaaa", "text"))
        embeddings.hanging.clear()
        assert backend.everything() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_other_dimensions_is_refused_with_advice(place: Place) -> None:
    with closing(place.open()) as backend:
        backend.add(memory("aaaa", "text"))
    with pytest.raises(MemoryStoreError, match=r"holds vectors of another model.*64.*32.*memory export"):
        changed(place, "embedder", model="bag-32").open()
    with closing(place.open()) as backend:
        assert len(backend.everything()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_dimensions_are_reported(place: Place) -> None:
    with (
        closing(changed(place, "embedder", embeddingDims=48).open()) as backend,
        pytest.raises(MemoryStoreError, match=r"have 64 dimensions, and 48 are expected.*embeddingDims"),
    ):
        backend.add(memory("aaaa", "text"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_unreachable_embedder_is_reported(place: Place) -> None:
    url = f"http://127.0.0.1:{refused_port()}"
    with pytest.raises(MemoryStoreError, match=f"{url}/api/(tags|embed) does not answer.*Start it"):
        changed(place, "embedder", url=url).open()


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_missing_in_ollama_is_reported(place: Place) -> None:
    with pytest.raises(MemoryStoreError, match=r"Run: ollama pull no-such-model"):
        changed(place, "embedder", model="no-such-model").open()


@pytest.mark.parametrize("kind", ["qdrant", "mem0-qdrant"])
def test_a_local_folder_has_one_owner(place: Place) -> None:
    with (
        closing(place.open()),
        pytest.raises(MemoryStoreError, match=rf"qdrant is open in .*PID {os.getpid()}.*one owner.*'url'"),
    ):
        place.open()
    place.open().close()


@pytest.mark.parametrize("kind", ["qdrant", "mem0-qdrant"])
@pytest.mark.parametrize("store", ["qdrant", "pgvector", "chroma"])
def test_an_unreachable_vector_store_is_reported(place: Place, kind: str, store: str) -> None:
    if kind == "qdrant" and store != "qdrant":
        return
    needs("psycopg", "psycopg[binary,pool]")
    needs("chromadb", "chromadb")
    port = refused_port()
    scheme = "postgresql://me:hush@" if store == "pgvector" else "http://"
    unreachable = changed(place, "vectorStore", provider=store, url=f"{scheme}127.0.0.1:{port}")
    with pytest.raises(MemoryStoreError, match=r"does not answer") as caught:
        unreachable.open()
    assert str(port) in str(caught.value)
    assert "Start it, or correct its address." in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("kind", ["qdrant", "mem0-qdrant"])
def test_a_key_refused_by_qdrant_is_reported(place: Place) -> None:
    """No Qdrant is available here: this server refuses every request as Qdrant would."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"Must provide an API key or an Authorization bearer token"
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(MemoryStoreError, match=r"refuses the credentials.*Check apiKey") as caught:
                changed(
                    place, "vectorStore", url=f"http://127.0.0.1:{server.server_port}", apiKey="hush"
                ).open()
            assert "hush" not in str(caught.value)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("kind", ["mem0-pgvector"])
def test_a_password_refused_by_postgresql_is_reported(place: Place, postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as admin:
        data = Path(admin.execute("SHOW data_directory").fetchone()[0])  # type: ignore[index]
        admin.execute("DROP ROLE IF EXISTS locked")
        admin.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        rules = data / "pg_hba.conf"
        rules.write_text("local all locked scram-sha-256\n" + rules.read_text())
        admin.execute("SELECT pg_reload_conf()")
    url = re.sub(r"//[^@/]*@", "//locked:hush@", postgres)
    with pytest.raises(MemoryStoreError, match=r"refuses the credentials.*user and password") as caught:
        changed(place, "vectorStore", url=url).open()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("kind", ["qdrant", "mem0-qdrant"])
def test_openais_api_is_used_with_the_key(place: Place, embeddings: EmbeddingServer) -> None:
    table = {"provider": "openai", "model": "bag-64", "baseURL": f"{embeddings.url}/v1", "apiKey": "sk-hush"}
    with closing(replace(place, config={**place.config, "embedder": table}).open()) as backend:
        kept = backend.add(memory("aaaa", "The port is 8080"))
        assert backend.search("which port", ALICE, 3) == [kept]
    assert set(embeddings.keys) == {"Bearer sk-hush"}


@pytest.mark.parametrize("kind", ["qdrant", "mem0-qdrant"])
def test_a_missing_openai_key_is_reported(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MemoryStoreError, match=r"needs a key. Set OPENAI_API_KEY"):
        replace(place, config={"embedder": {"provider": "openai"}}).open()


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_option_is_reported(place: Place) -> None:
    with pytest.raises(MemoryStoreError, match=r"has no option 'colectionName'.*'collection_name'"):
        changed(place, "vectorStore", colectionName="x").open()


@pytest.mark.parametrize("kind", ["mem0-qdrant"])
def test_mem0_writes_only_to_its_folder_and_keeps_no_history(place: Place) -> None:
    with closing(place.open()) as backend:
        backend.add(memory("aaaa", "unforgettable secret"))
        backend.delete("aaaa", ALICE)
    assert not (Path.home() / ".mem0").exists()
    left = [path for path in place.folder.rglob("*") if path.is_file() and path.name != "storage.sqlite"]
    assert not [path for path in left if b"unforgettable" in path.read_bytes()]
