"""mem0's configuration: translates what users write into what mem0 2.2 accepts.

    {"vectorStore": {"provider": "qdrant", "url": ...}, "embedder": {"provider": "ollama", "model": ...}}

mem0 silently ignores camelCase options and those that are not nested under `config`, and assumes 1,536
dimensions if none are given.  Nothing here imports mem0, reads a file or asks a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relay import names
from relay.errors import ConfigError
from relay.memory.config import snake
from relay_memory.embedder import DIMENSION_ALIASES, EmbedderSettings, embedder_settings
from relay_memory.options import camel, options, positive, without_secrets

COLLECTION = "relay_mem0"
"""The default collection, or table, of the vector store."""

_CHROMA_PORT = 8000  # the default of `chroma run`

_COMMON: Mapping[str, type] = {"collection_name": str, "embedding_dims": int}

STORES: Mapping[str, Mapping[str, type]] = {
    "qdrant": {
        "url": str,
        "host": str,
        "port": int,
        "path": str,
        "api_key": str,
        "https": bool,
        "on_disk": bool,
        **_COMMON,
    },
    "pgvector": {
        "url": str,
        "host": str,
        "port": int,
        "user": str,
        "password": str,
        "dbname": str,
        "sslmode": str,
        "hnsw": bool,
        "diskann": bool,
        **_COMMON,
    },
    "chroma": {
        "url": str,
        "host": str,
        "port": int,
        "path": str,
        "api_key": str,
        "tenant": str,
        **_COMMON,
    },
}
"""The vector stores that relay uses through mem0, with their options."""

ALIASES = {
    **DIMENSION_ALIASES,
    "collection": "collection_name",
    "connection_string": "url",
    "database": "dbname",
    "username": "user",
}

_REFUSED = {
    **dict.fromkeys(
        ("llm", "reranker", "graph_store", "custom_instructions", "custom_fact_extraction_prompt"),
        "relay stores memories word for word, and does not let mem0 call a language model. Remove it.",
    ),
    "history_db_path": "relay does not let mem0 keep a history, so that deleted memories are gone. Remove "
    "it.",
}

_URL_NAMES = {
    "ollama": "ollama_base_url",
    "openai": "openai_base_url",
    "lmstudio": "lmstudio_base_url",
    "huggingface": "huggingface_base_url",
}


@dataclass(frozen=True, slots=True)
class Mem0Settings:
    """The store and the embedder for mem0.

    store:      options of the vector store, by mem0's names, without the dimensions.
    dimensions: of the vectors; None if the embedder must be asked.
    """

    provider: str
    store: Mapping[str, Any] = field(repr=False)  # it may contain a password
    embedder: EmbedderSettings = field(repr=False)
    dimensions: int | None

    @property
    def collection(self) -> str:
        return str(self.store["collection_name"])

    @property
    def local(self) -> Path | None:
        """The folder of a store that is on this machine's disk; None for a server."""
        path = self.store.get("path")
        return Path(path) if path else None

    @property
    def where(self) -> str:
        """The place of the vector store, without secrets, for messages."""
        if self.local:
            return str(self.local)
        url = self.store.get("url") or self.store.get("connection_string")
        if url:
            return without_secrets(url) if "://" in url else "the database of url"
        return f"{self.store.get('host', 'localhost')}:{self.store.get('port', '')}".rstrip(":")

    def for_mem0(self, dimensions: int) -> dict[str, Any]:
        """Return the argument of `mem0.Memory.from_config`, for vectors with that many dimensions."""
        embedder = self.embedder
        given: dict[str, Any] = {"model": embedder.model}
        if embedder.url:
            given[_URL_NAMES[embedder.provider]] = embedder.url
            if embedder.provider == "openai" and not embedder.api_key:
                given["api_key"] = "none"  # the openai package requires one, but the server does not
        if embedder.api_key:
            given["api_key"] = embedder.api_key
        if embedder.requested or embedder.provider == "ollama":
            given["embedding_dims"] = dimensions
        # Chroma takes the dimensions of the first vector.
        sized = {} if self.provider == "chroma" else {"embedding_model_dims": dimensions}
        return {
            "vector_store": {"provider": self.provider, "config": {**self.store, **sized}},
            "embedder": {"provider": embedder.provider, "config": given},
            # mem0 creates a client for a language model, although `infer=False` never uses it. Only LM
            # Studio's needs no key and makes no call when it is created.
            "llm": {"provider": "lmstudio", "config": {}},
            "history_db_path": ":memory:",
        }


def translate(config: Mapping[str, Any], folder: Path) -> Mem0Settings:
    """Return the settings that the user's `config` describes.

    folder: the place of a store that names none. Raise ConfigError, with advice, for anything unknown.
    """
    tables = options(
        config, "the mem0 configuration", {"vector_store": dict, "embedder": dict}, refused=_REFUSED
    )
    embedder = embedder_settings(tables.get("embedder"))
    provider, found = vector_store(tables.get("vector_store", {}), STORES, "mem0")
    dimensions = positive(found.pop("embedding_dims", None), "embeddingDims of vectorStore")
    if dimensions and embedder.dimensions and dimensions != embedder.dimensions:
        raise ConfigError(
            f"vectorStore has {dimensions} dimensions, and the vectors of {embedder.shown} have "
            f"{embedder.dimensions}. Remove embeddingDims of vectorStore."
        )
    found.setdefault("collection_name", COLLECTION)
    place = {"qdrant": qdrant_place, "pgvector": _pgvector_place, "chroma": _chroma_place}[provider]
    return Mem0Settings(provider, place(found, folder), embedder, dimensions or embedder.dimensions)


def vector_store(
    table: Mapping[str, Any], stores: Mapping[str, Mapping[str, type]], backend: str
) -> tuple[str, dict[str, Any]]:
    """Return the provider that a `vectorStore` table names (default: Qdrant), and its options."""
    rest = {key: value for key, value in table.items() if snake(str(key)) != "provider"}
    provider = next((value for key, value in table.items() if snake(str(key)) == "provider"), "qdrant")
    if not isinstance(provider, str) or provider.lower() not in stores:
        meant = names.did_you_mean(str(provider), stores, "{!r}")
        raise ConfigError(
            f"the {backend} backend of relay has no vector store {provider!r}. {meant}"
            f"Use one of: {', '.join(stores)}; or write a custom backend."
        )
    return provider.lower(), options(
        rest, f"vectorStore ({provider.lower()})", stores[provider.lower()], ALIASES
    )


def qdrant_place(found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return Qdrant's options with one place: a server, or a folder, by default below `folder`."""
    _one_place(found, ("url", "path", "host"), "qdrant")
    if "port" in found and "host" not in found:
        raise ConfigError("vectorStore (qdrant) has a 'port' without 'host'. Add 'host', or write a 'url'.")
    if "url" in found:
        _checked_url(found["url"], ("http", "https"), "http://localhost:6333")
        return dict(found)
    if "host" in found:
        return {"port": 6333, **found}
    if "api_key" in found or "https" in found:
        raise ConfigError(
            "vectorStore (qdrant) has no 'url', and a folder needs no 'apiKey' or 'https'. Add 'url'."
        )
    return {**found, "path": str(Path(found.get("path", folder / "qdrant")).expanduser())}


def _pgvector_place(found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    _one_place(found, ("url", "host"), "pgvector")
    # Without an index, the search is exact: HNSW finds too little if most rows are other agents'.
    exact = {"hnsw": False, **found}
    if "url" in found:
        extra = sorted({"port", "user", "password", "dbname"} & set(found))
        if extra:
            raise ConfigError(
                f"vectorStore (pgvector) has a 'url' and {extra[0]!r}. Put everything in the url."
            )
        url = exact.pop("url")
        if "://" in url:
            _checked_url(url, ("postgresql", "postgres"), "postgresql://me@localhost:5432/memories")
        return {**exact, "connection_string": url}
    missing = [camel(name) for name in ("host", "user", "password") if name not in found]
    if missing:
        raise ConfigError(
            f"vectorStore (pgvector) does not say {missing[0]!r}. Add 'host', 'user' and 'password', "
            "or 'url': 'postgresql://me@localhost:5432/memories'."
        )
    return {"port": 5432, "dbname": "postgres", **exact}


def _chroma_place(found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    _one_place(found, ("url", "path", "host", "api_key"), "chroma")
    if ("api_key" in found) != ("tenant" in found):
        raise ConfigError(
            "vectorStore (chroma): Chroma Cloud needs 'apiKey' and 'tenant'. Give both, or neither."
        )
    if "api_key" in found:
        return dict(found)
    if "url" in found:
        # mem0 passes Chroma a host and a port, and never asks for TLS.
        url = _checked_url(found["url"], ("http",), f"http://localhost:{_CHROMA_PORT}")
        rest = {name: value for name, value in found.items() if name != "url"}
        return {**rest, "host": url.hostname, "port": url.port or _CHROMA_PORT}
    if "host" in found:
        return {"port": _CHROMA_PORT, **found}
    if "port" in found:
        raise ConfigError("vectorStore (chroma) has a 'port' without 'host'. Add 'host', or write a 'url'.")
    return {**found, "path": str(Path(found.get("path", folder / "chroma")).expanduser())}


def _one_place(found: Mapping[str, Any], places: tuple[str, ...], provider: str) -> None:
    several = [camel(name) for name in places if name in found]
    if len(several) > 1 and not (provider == "qdrant" and several == ["url", "apiKey"]):
        raise ConfigError(f"vectorStore ({provider}) has {' and '.join(map(repr, several))}. Keep one.")


def _checked_url(url: str, schemes: tuple[str, ...], example: str) -> Any:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname or "@" in url or parts.query)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{without_secrets(url)!r} is not a url of vectorStore. Write one like '{example}'."
        )
    return parts
