"""Each session uses the keys in its own environment."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from memory.contract import ALICE, memory
from memory_backends.conftest import Place
from memory_backends.embedding_server import EmbeddingServer
from relay.home import Home
from relay.memory.config import MemoryConfig
from relay.memory.remote import RemoteBackend
from relay.storage.locks import is_held
from support import wait_until


@pytest.mark.parametrize("kind", ["qdrant", "mem0-qdrant", "mem0-pgvector", "mem0-chroma"])
def test_a_new_key_takes_effect_while_another_session_has_the_old_one(
    place: Place, embeddings: EmbeddingServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.from_env({"RELAY_HOME": str(folder / "h")}).ensure()
    embedder = {"provider": "openai", "model": "bag-64"}
    settings = MemoryConfig(place.backend, {**place.config, "embedder": embedder}, timeout=60)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{embeddings.url}/v1")

    def session(key: str) -> closing[RemoteBackend]:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        return closing(RemoteBackend(settings, home, idle=0.1))

    with session("old") as old, session("new") as new:
        kept = [old.add(memory("aaaa", "The port is 8080"))]
        assert set(embeddings.keys) == {"Bearer old"}
        embeddings.keys.clear()
        kept.append(new.add(memory("bbbb", "The host is box", time=2_000.0)))
        assert set(embeddings.keys) == {"Bearer new"}
        assert old.list(ALICE, None) == new.list(ALICE, None) == kept[::-1]
    wait_until(lambda: not any(is_held(owner) for owner in (home.run / "memory").glob("*.owner")))
