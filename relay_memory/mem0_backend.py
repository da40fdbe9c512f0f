"""The mem0 backend: memories in a vector store, through the open-source package mem0.

mem0 never rewrites a memory (`infer=False`), keeps no history and sends no telemetry.  It gets a memory's
text, `user_id` (the team), `agent_id`, and in its metadata `relay`, the whole record
(relay_memory/record.py), `relay_id` and `relay_scope`.
"""

from __future__ import annotations

import builtins
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.errors import ConfigError, MemoryStoreError
from relay.home import private_directory
from relay.memory.backend import IdTaken, Memory, Scope
from relay_memory.embedder import (
    EmbedderSettings,
    OllamaEmbedder,
    checked,
    embeddable,
    openai_key,
)
from relay_memory.extras import require
from relay_memory.failures import explained, wrong_dimension
from relay_memory.mem0_config import Mem0Settings, translate
from relay_memory.record import decode, encode, storable

_ALL = 10_000_000
"""Row limit that stands for all rows; mem0 has no other way to ask for them."""

_CONNECT_SECONDS = 5

# What mem0 imports for a provider, and the package that has it.
_PACKAGES = {
    "pgvector": (("psycopg", "psycopg[binary,pool]"), ("psycopg_pool", "psycopg[binary,pool]")),
    "chroma": (("chromadb", "chromadb"),),
    "ollama": (("ollama", "ollama"),),
    "huggingface": (("sentence_transformers", "sentence-transformers"),),
    "fastembed": (("fastembed", "fastembed"),),
}


def open_mem0(config: Mapping[str, Any], folder: Path) -> Mem0Backend:
    """Return the backend that `config` describes (see docs/MEMORY.md).

    folder: where a local store is if the config names no place. Importing mem0 takes seconds. Raise
    MemoryStoreError, with advice, if the extra is missing, `config` is wrong or a server does not answer.
    """
    try:
        settings = translate(config, folder / "mem0")
    except ConfigError as error:
        raise MemoryStoreError(f"the mem0 backend: {error}") from error
    require("mem0", "the mem0 backend", extra="mem0")
    for provider in (settings.provider, settings.embedder.provider):
        for module, package in _PACKAGES.get(provider, ()):
            require(module, f"the mem0 backend with {provider}", package=package)
    _quieten(folder)
    return Mem0Backend(settings)


def _quieten(folder: Path) -> None:
    """Make mem0, not yet imported, send no telemetry, write only into `folder`, and log nothing."""
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["ANONYMIZED_TELEMETRY"] = "False"  # Chroma's
    os.environ["MEM0_DIR"] = str(folder / "mem0")
    private_directory(folder)
    for name in ("mem0", "psycopg.pool", "httpx", "openai", "chromadb"):  # they also raise what they log
        logging.getLogger(name).setLevel(logging.CRITICAL)


class Mem0Backend:
    """Memories that mem0 keeps; see `MemoryBackend`."""

    def __init__(self, settings: Mem0Settings) -> None:
        self._settings = settings
        self._pool: Any = None
        self._mem0: Any = None
        try:
            with self._explained("open its store"):
                self._open()
        except MemoryStoreError:
            self.close()
            raise

    def _open(self) -> None:
        from mem0 import Memory as Mem0
        from mem0.configs.base import MemoryConfig
        from mem0.utils.factory import EmbedderFactory

        settings = self._settings
        embedder = settings.embedder
        if embedder.provider == "ollama":
            OllamaEmbedder(embedder).check()  # mem0 would download a missing model, for minutes
        openai_key(embedder, os.environ)
        dimensions = settings.dimensions
        if dimensions is None:
            asked = settings.for_mem0(1)["embedder"]
            asked["config"].pop("embedding_dims", None)
            model = EmbedderFactory.create(asked["provider"], asked["config"], None)
            dimensions = len(model.embed("dimensions"))
        config = settings.for_mem0(dimensions)
        store = config["vector_store"]["config"]
        if path := settings.local:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if settings.provider == "pgvector":
            store["connection_pool"] = self._pool = _connection_pool(store)
        self._mem0 = Mem0(MemoryConfig(**config))
        self._mem0.embedding_model = _Bounded(self._mem0.embedding_model, embedder, dimensions)
        if (found := _dimensions_of(self._mem0.vector_store, settings.provider)) not in (None, dimensions):
            detail = f"they have {found} dimensions, and those of {embedder.shown} {dimensions}"
            raise MemoryStoreError(
                f"mem0 cannot open its store: {wrong_dimension(settings.collection, detail)}"
            )

    def add(self, memory: Memory) -> Memory:
        owner = Scope(memory.agent, memory.team)
        team, agent = owner.keys
        text = storable(memory.text)
        with self._explained("save the memory"):
            alike = self._rows({"user_id": team, "hash": hashlib.md5(text.encode()).hexdigest()})
            known = [(key, each) for key, each in alike if each.text == memory.text and owner.sees(each)]
            if known:
                key, seen = max(known, key=lambda pair: pair[1].shared)
                if memory.shared and not seen.shared:  # then it is the agent's own
                    seen = replace(seen, shared=True)
                    self._mem0.update(key, metadata=_fields(seen))
                return seen
            if self._rows({"user_id": "*", "relay_id": memory.id}):
                raise IdTaken(f"the id {memory.id} is taken. Save the memory again.")
            added = self._mem0.add(text, user_id=team, agent_id=agent, metadata=_fields(memory), infer=False)
            if not added.get("results"):
                raise MemoryStoreError("mem0 stored nothing, and gave no reason. Save the memory again.")
        return memory

    def search(self, query: str, scope: Scope, limit: int) -> list[Memory]:
        query = storable(query).strip()
        if not query or limit < 1:
            return []
        team, agent = scope.keys
        filters = {"user_id": team, "OR": [{"relay_scope": "team"}, {"agent_id": agent}]}
        with self._explained("search"):
            found = self._mem0.search(query, top_k=limit, filters=filters, threshold=0.0, show_expired=True)
        return [memory for _, memory in _read(found) if scope.sees(memory)]

    def list(self, scope: Scope, limit: int | None) -> builtins.list[Memory]:
        with self._explained("list the memories"):
            rows = self._rows({"user_id": scope.keys[0]})
        newest = sorted(
            (memory for _, memory in rows if scope.sees(memory)), key=lambda each: (-each.time, each.id)
        )
        return newest if limit is None else newest[: max(limit, 0)]

    def everything(self) -> builtins.list[Memory]:
        with self._explained("read the memories"):
            rows = self._rows({"user_id": "*"})
        return sorted((memory for _, memory in rows), key=lambda each: (each.time, each.id))

    def delete(self, id: str, scope: Scope) -> bool:
        with self._explained("delete the memory"):
            rows = self._rows({"user_id": scope.keys[0], "relay_id": id})
            seen = [key for key, memory in rows if scope.sees(memory)]
            for key in seen:
                self._mem0.delete(key)
        return bool(seen)

    def close(self) -> None:
        mem0, self._mem0 = self._mem0, None
        pool, self._pool = self._pool, None
        if mem0 is not None:
            mem0.close()
            if self._settings.provider == "qdrant":
                mem0.vector_store.client.close()
        if pool is not None:
            pool.close(timeout=1)

    def _rows(self, filters: Mapping[str, Any]) -> builtins.list[tuple[str, Memory]]:
        """Return mem0's ids and the memories of all rows that match `filters` and that relay wrote."""
        if self._mem0 is None:
            raise MemoryStoreError("the store is closed. Open it again.")
        return _read(self._mem0.get_all(filters=dict(filters), top_k=_ALL, show_expired=True))

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        settings = self._settings
        with explained("mem0", doing, settings.where, settings.collection, settings.local):
            yield


class _Bounded:
    """A mem0 embedder that gets only what it accepts, and whose vectors have the right length."""

    def __init__(self, embedder: Any, settings: EmbedderSettings, dimensions: int) -> None:
        self._embedder = embedder
        self._settings = settings
        self._dimensions = dimensions
        self.config = embedder.config

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        vector = self._embedder.embed(embeddable(text), memory_action)
        return checked([float(value) for value in vector], self._settings, self._dimensions)

    def embed_batch(self, texts: list[str], memory_action: str = "add") -> list[list[float]]:
        return [self.embed(text, memory_action) for text in texts]


def _fields(memory: Memory) -> dict[str, str]:
    """Return the metadata for mem0: strings only, which all vector stores accept."""
    return {
        "relay": encode(memory),
        "relay_id": memory.id,
        "relay_scope": "team" if memory.shared else "agent",
    }


def _read(answer: Any) -> list[tuple[str, Memory]]:
    """Return the ids and memories in an answer from mem0; skip other programs' rows."""
    found = []
    for row in answer["results"]:
        record = (row.get("metadata") or {}).get("relay")
        ours = isinstance(record, str) and bool(row.get("user_id"))
        memory = decode(str(record), row["memory"]) if ours else None
        if memory is not None:
            found.append((str(row["id"]), memory))
    return found


def _connection_pool(store: Mapping[str, Any]) -> Any:
    """Return a pool of connections to PostgreSQL, after trying one.

    mem0's own pool reports only that it waited for 30 seconds.
    """
    import psycopg
    from psycopg.conninfo import make_conninfo
    from psycopg_pool import ConnectionPool

    given = {"host": store.get("host"), "port": store.get("port"), "user": store.get("user")} | {
        "password": store.get("password"),
        "dbname": store.get("dbname"),
        "sslmode": store.get("sslmode"),
        "connect_timeout": _CONNECT_SECONDS,
    }
    conninfo = make_conninfo(
        store.get("connection_string", ""),
        **{name: value for name, value in given.items() if value is not None},
    )
    psycopg.connect(conninfo).close()
    return ConnectionPool(
        conninfo,
        min_size=1,
        max_size=2,
        timeout=_CONNECT_SECONDS,
        check=ConnectionPool.check_connection,
        open=True,
    )


def _dimensions_of(store: Any, provider: str) -> int | None:
    """Return the dimensions of the vectors in a mem0 store; None if it does not say."""
    if provider == "qdrant":
        vectors = store.client.get_collection(store.collection_name).config.params.vectors
        size = getattr(vectors, "size", None)
        return None if size is None else int(size)
    if provider == "chroma":
        rows = store.collection.get(limit=1, include=["embeddings"])["embeddings"]
        return len(rows[0]) if rows is not None and len(rows) else None
    with store.connection_pool.connection() as connection:  # pgvector keeps them as the type's modifier
        row = connection.execute(
            "SELECT atttypmod FROM pg_attribute"
            " WHERE attrelid = to_regclass(quote_ident(%s)) AND attname = 'vector'",
            (store.collection_name,),
        ).fetchone()
    return None if row is None or row[0] < 1 else int(row[0])
