"""The qdrant backend: memories as points of a Qdrant collection, on a server or in a folder of this process.

A point's payload: `relay`, the whole record (relay_memory/record.py), and `text`, `digest`, `id`, `team`,
`agent` and `scope`, by which it is found.
"""

from __future__ import annotations

import builtins
import hashlib
import logging
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relay.errors import ConfigError, MemoryStoreError
from relay.home import private_directory
from relay.memory.backend import IdTaken, Memory, Scope
from relay.memory.config import snake
from relay_memory.embedder import EmbedderSettings, checked, embedder_settings, open_embedder
from relay_memory.extras import require
from relay_memory.failures import explained, wrong_dimension
from relay_memory.mem0_config import ALIASES, STORES, qdrant_place, vector_store
from relay_memory.options import options, positive, without_secrets
from relay_memory.record import decode, encode, storable

COLLECTION = "relay_memories"
"""The default collection; not mem0's, whose points look different."""

_TIMEOUT = 10  # seconds that a server may take
_PAGE = 512  # points read at a time
_POINTS = uuid.UUID("8f8f6b9e-6f0b-4f53-9a57-2f6ad2a0a6f1")  # the namespace of our points' ids
_INDEXED = ("id", "digest", "team", "agent", "scope")


@dataclass(frozen=True, slots=True)
class QdrantSettings:
    """The place of the points, and the embedder of their texts.

    options: of QdrantClient. dimensions: None if the embedder must be asked.
    """

    options: Mapping[str, Any] = field(repr=False)  # it may contain a key
    collection: str
    on_disk: bool
    embedder: EmbedderSettings = field(repr=False)
    dimensions: int | None

    @property
    def local(self) -> Path | None:
        """The folder of a local store; None for a server."""
        path = self.options.get("path")
        return Path(path) if path else None

    @property
    def where(self) -> str:
        """The place of the store, without secrets, for messages."""
        given = self.options
        if url := given.get("url"):
            return without_secrets(url)
        return str(given.get("path") or f"{given.get('host')}:{given.get('port')}")


def qdrant_settings(config: Mapping[str, Any], folder: Path) -> QdrantSettings:
    """Return the settings that the user's `config` describes.

    Qdrant's options are in `vectorStore`, as for mem0, or beside `embedder`. folder: the place of a store
    that names none. Raise ConfigError, with advice, for anything unknown.
    """
    known = {"vector_store": dict, "embedder": dict, **STORES["qdrant"]}
    found = options(config, "the qdrant configuration", known, ALIASES)
    embedder = embedder_settings(found.pop("embedder", None))
    table = {**found.pop("vector_store", {})}
    names_there = {snake(str(key)) for key in table}
    if twice := sorted(names_there & set(found)):
        raise ConfigError(f"the qdrant configuration has two values for {twice[0]!r}. Keep one.")
    _, store = vector_store({**table, **found}, {"qdrant": STORES["qdrant"]}, "qdrant")
    dimensions = positive(store.pop("embedding_dims", None), "embeddingDims of vectorStore")
    if dimensions and embedder.dimensions and dimensions != embedder.dimensions:
        raise ConfigError(
            f"vectorStore has {dimensions} dimensions, and the vectors of {embedder.shown} have "
            f"{embedder.dimensions}. Remove embeddingDims of vectorStore."
        )
    collection = store.pop("collection_name", COLLECTION)
    on_disk = store.pop("on_disk", False)
    return QdrantSettings(
        qdrant_place(store, folder), collection, on_disk, embedder, dimensions or embedder.dimensions
    )


def open_qdrant(config: Mapping[str, Any], folder: Path) -> QdrantBackend:
    """Return the backend that `config` describes (see docs/MEMORY.md).

    folder: where a local store is if the config names no place. Raise MemoryStoreError, with advice, if the
    extra is missing, `config` is wrong, a server does not answer, or another process has the local store
    open.
    """
    try:
        settings = qdrant_settings(config, folder)
    except ConfigError as error:
        raise MemoryStoreError(f"the qdrant backend: {error}") from error
    require("qdrant_client", "the qdrant backend", extra="qdrant")
    private_directory(folder)
    logging.getLogger("httpx").setLevel(logging.CRITICAL)  # it logs each request
    return QdrantBackend(settings)


class QdrantBackend:
    """Memories in a Qdrant collection; see `MemoryBackend`."""

    def __init__(self, settings: QdrantSettings) -> None:
        self._settings = settings
        self._client: Any = None
        self._embedder = open_embedder(settings.embedder)
        self._dimensions = 0
        try:
            with self._explained("open its store"):
                self._open()
        except MemoryStoreError:
            self.close()
            raise

    def _open(self) -> None:
        from qdrant_client import QdrantClient, models

        settings = self._settings
        self._models = models
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a key over plain HTTP: the user's own choice
            if path := settings.local:
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._client = QdrantClient(path=str(path))
            else:
                self._client = QdrantClient(**settings.options, timeout=_TIMEOUT, check_compatibility=False)
        known = settings.dimensions
        self._dimensions = known or len(self._embedder.embed("dimensions"))
        if not self._client.collection_exists(settings.collection):
            self._create()
        vectors = self._client.get_collection(settings.collection).config.params.vectors
        size = getattr(vectors, "size", None)
        if size != self._dimensions:
            shown = settings.embedder.shown
            detail = f"they have {size or 'no'} dimensions, and those of {shown} {self._dimensions}"
            raise MemoryStoreError(
                f"qdrant cannot open its store: {wrong_dimension(settings.collection, detail)}"
            )

    def _create(self) -> None:
        models, collection = self._models, self._settings.collection
        self._client.create_collection(
            collection,
            vectors_config=models.VectorParams(
                size=self._dimensions, distance=models.Distance.COSINE, on_disk=self._settings.on_disk
            ),
        )
        if self._settings.local is None:
            for name in _INDEXED:
                self._client.create_payload_index(collection, name, models.PayloadSchemaType.KEYWORD)

    def add(self, memory: Memory) -> Memory:
        owner = Scope(memory.agent, memory.team)
        with self._explained("save the memory"):
            alike = self._points({"team": owner.keys[0], "digest": _digest(memory.text)})
            known = [(key, each) for key, each in alike if each.text == memory.text and owner.sees(each)]
            if known:
                key, seen = max(known, key=lambda pair: pair[1].shared)
                if memory.shared and not seen.shared:  # then it is the agent's own
                    seen = replace(seen, shared=True)
                    self._client.set_payload(self._settings.collection, _payload(seen), points=[key])
                return seen
            if self._points({"id": memory.id}):
                raise IdTaken(f"the id {memory.id} is taken. Save the memory again.")
            payload = _payload(memory)
            point = self._models.PointStruct(
                # The same record gets the same id, so a request that is sent twice leaves one point.
                id=str(uuid.uuid5(_POINTS, payload["relay"] + payload["digest"])),
                vector=self._embed(memory.text),
                payload=payload,
            )
            self._client.upsert(self._settings.collection, [point], wait=True)
        return memory

    def search(self, query: str, scope: Scope, limit: int) -> list[Memory]:
        if not query.strip() or limit < 1:
            return []
        team, agent = scope.keys
        with self._explained("search"):
            found = self._client.query_points(
                self._settings.collection,
                query=self._embed(query),
                query_filter=self._models.Filter(
                    must=[self._is("team", team)],
                    should=[self._is("scope", "team"), self._is("agent", agent)],
                ),
                limit=limit,
                with_payload=True,
            ).points
        return [memory for _, memory in _read(found) if scope.sees(memory)]

    def list(self, scope: Scope, limit: int | None) -> builtins.list[Memory]:
        with self._explained("list the memories"):
            points = self._points({"team": scope.keys[0]})
        newest = sorted(
            (memory for _, memory in points if scope.sees(memory)), key=lambda each: (-each.time, each.id)
        )
        return newest if limit is None else newest[: max(limit, 0)]

    def everything(self) -> builtins.list[Memory]:
        with self._explained("read the memories"):
            points = self._points({})
        return sorted((memory for _, memory in points), key=lambda each: (each.time, each.id))

    def delete(self, id: str, scope: Scope) -> bool:
        with self._explained("delete the memory"):
            points = self._points({"team": scope.keys[0], "id": id})
            seen = [key for key, memory in points if scope.sees(memory)]
            if seen:
                self._client.delete(self._settings.collection, seen, wait=True)
        return bool(seen)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _points(self, fields: Mapping[str, str]) -> builtins.list[tuple[str, Memory]]:
        """Return the ids and memories of all points whose payload has these fields."""
        if self._client is None:
            raise MemoryStoreError("the store is closed. Open it again.")
        wanted = self._models.Filter(must=[self._is(name, value) for name, value in fields.items()])
        found: list[tuple[str, Memory]] = []
        offset = None
        while True:
            points, offset = self._client.scroll(
                self._settings.collection,
                scroll_filter=wanted if fields else None,
                limit=_PAGE,
                offset=offset,
                with_payload=True,
            )
            found += _read(points)
            if offset is None:
                return found

    def _is(self, name: str, value: str) -> Any:
        return self._models.FieldCondition(key=name, match=self._models.MatchValue(value=value))

    def _embed(self, text: str) -> builtins.list[float]:
        return checked(self._embedder.embed(text), self._settings.embedder, self._dimensions)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        settings = self._settings
        with explained("qdrant", doing, settings.where, settings.collection, settings.local):
            yield


def _digest(text: str) -> str:
    return hashlib.sha256(storable(text).encode()).hexdigest()


def _payload(memory: Memory) -> dict[str, str]:
    team, agent = Scope(memory.agent, memory.team).keys
    return {
        "relay": encode(memory),
        "text": storable(memory.text),
        "digest": _digest(memory.text),
        "id": memory.id,
        "team": team,
        "agent": agent,
        "scope": "team" if memory.shared else "agent",
    }


def _read(points: Any) -> list[tuple[str, Memory]]:
    """Return the ids and memories of points; skip other programs' points."""
    found = []
    for point in points:
        payload = point.payload or {}
        record, text = payload.get("relay"), payload.get("text")
        memory = decode(record, text) if isinstance(record, str) and isinstance(text, str) else None
        if memory is not None:
            found.append((point.id, memory))
    return found
