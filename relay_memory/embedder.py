"""Embedders, which turn a text into a vector, and their configuration.

Ollama and servers with OpenAI's API are called over plain HTTP; FastEmbed runs in this process.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from relay.errors import ConfigError, MemoryStoreError
from relay.text import one_line
from relay_memory.extras import require
from relay_memory.options import options, positive, without_secrets

MAX_EMBEDDED = 6_000
"""Maximum characters of a text that are embedded; OpenAI refuses texts of more than 8,191 tokens."""

TIMEOUT = 20.0
"""Seconds that an embedder's server may be silent."""

OLLAMA_URL = "http://localhost:11434"
OPENAI_URL = "https://api.openai.com/v1"
LMSTUDIO_URL = "http://localhost:1234/v1"

PROVIDERS = ("ollama", "openai", "lmstudio", "huggingface", "fastembed")

_DEFAULT_MODELS = {"ollama": "nomic-embed-text", "openai": "text-embedding-3-small"}

# From the model cards; only models that have one size.
_DIMENSIONS = {
    "nomic-embed-text": 768,
    "mxbai-embed-large": 1024,
    "all-minilm": 384,
    "all-minilm-l6-v2": 384,
    "all-mpnet-base-v2": 768,
    "multi-qa-minilm-l6-cos-v1": 384,
    "bge-m3": 1024,
    "bge-small-en-v1.5": 384,
    "bge-base-en-v1.5": 768,
    "bge-large-en-v1.5": 1024,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}

DIMENSION_ALIASES = dict.fromkeys(
    ("dimensions", "dims", "embedding_model_dims", "embedding_dimensions"), "embedding_dims"
)
_URL_ALIASES = {f"{name}base_url": "url" for name in ("", *(f"{provider}_" for provider in PROVIDERS))}


@dataclass(frozen=True, slots=True)
class EmbedderSettings:
    """The choice of an embedder.

    url:        of its server; None for the provider's own.
    api_key:    None if it needs none, or if the environment has it.
    dimensions: of its vectors; None if only a vector shows them.
    requested:  the user set the dimensions; a server that can choose is asked for them.
    """

    provider: str
    model: str
    url: str | None = None
    api_key: str | None = None
    dimensions: int | None = None
    requested: bool = False

    @property
    def shown(self) -> str:
        return f"{self.provider}'s {self.model}"


class Embedder(Protocol):
    """Turns texts into vectors, all of one dimension."""

    def embed(self, text: str) -> list[float]:
        """Return the vector of `text`. Raise MemoryStoreError, with advice."""


def embedder_settings(table: object) -> EmbedderSettings:
    """Return the settings in the `embedder` table of a configuration; None stands for an empty one.

    The default provider is Ollama, on this machine. Raise ConfigError.
    """
    found = options(
        {} if table is None else table,
        "embedder",
        {"provider": str, "model": str, "url": str, "api_key": str, "embedding_dims": int},
        {**DIMENSION_ALIASES, **_URL_ALIASES},
    )
    provider = found.get("provider", "ollama").lower()
    if provider not in PROVIDERS:
        raise ConfigError(
            f"unknown embedder provider {found['provider']!r}. Use one of: {', '.join(PROVIDERS)}."
        )
    model = found.get("model", _DEFAULT_MODELS.get(provider))
    if model is None:
        raise ConfigError(f"embedder names no model for {provider}. Add 'model'.")
    if provider == "fastembed" and "url" in found:
        raise ConfigError("fastembed runs without a server, and has no 'url'. Remove it from embedder.")
    dimensions = positive(found.get("embedding_dims"), "embeddingDims of embedder")
    return EmbedderSettings(
        provider,
        model,
        found.get("url"),
        found.get("api_key"),
        dimensions or known_dimensions(model),
        requested=dimensions is not None,
    )


def known_dimensions(model: str) -> int | None:
    """Return the dimensions of a well-known model's vectors (768 for `nomic-embed-text:latest`), or None."""
    return _DIMENSIONS.get(model.lower().rpartition("/")[2].partition(":")[0])


def embeddable(text: str) -> str:
    """Return the beginning of `text` as any embedder accepts it: UTF-8, without NUL, not empty."""
    cleaned = text[:MAX_EMBEDDED].replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    return cleaned if cleaned.strip() else "(blank)"


def checked(vector: list[float], settings: EmbedderSettings, dimensions: int) -> list[float]:
    """Return `vector`. Raise MemoryStoreError if it does not have the `dimensions` that the store expects."""
    if len(vector) != dimensions:
        raise MemoryStoreError(
            f"the vectors of {settings.shown} have {len(vector)} dimensions, and {dimensions} are expected. "
            f"Set embeddingDims of embedder to {len(vector)}, and collectionName to a new name."
        )
    return vector


def open_embedder(settings: EmbedderSettings) -> Embedder:
    """Return the embedder. Raise MemoryStoreError if relay does not have it, or a package is missing."""
    match settings.provider:
        case "ollama":
            return OllamaEmbedder(settings)
        case "openai" | "lmstudio":
            return OpenAIEmbedder(settings)
        case "fastembed":
            return FastEmbedder(settings)
    raise MemoryStoreError(
        f"the qdrant backend has no embedder {settings.provider!r}. "
        "Use ollama, openai, lmstudio or fastembed, or the mem0 backend."
    )


class OllamaEmbedder:
    """Ollama's /api/embed (https://docs.ollama.com/api/embed)."""

    def __init__(self, settings: EmbedderSettings) -> None:
        self._settings = settings
        self._url = ollama_url(settings.url, os.environ)

    def embed(self, text: str) -> list[float]:
        request = {"model": self._settings.model, "input": embeddable(text)}
        reply = _call(f"{self._url}/api/embed", request, self._settings)
        return _vector(reply, self._settings, lambda: reply["embeddings"][0])

    def check(self) -> None:
        """Raise MemoryStoreError if the server does not answer or does not have the model."""
        reply = _call(f"{self._url}/api/tags", None, self._settings)
        listed = [str(each.get("name", "")) for each in reply.get("models") or () if isinstance(each, dict)]
        wanted = self._settings.model
        if not {wanted, f"{wanted}:latest"} & {*listed, *(name.removesuffix(":latest") for name in listed)}:
            raise _model_missing(self._settings)


class OpenAIEmbedder:
    """The /embeddings of OpenAI and of servers with its API (platform.openai.com/docs/api-reference)."""

    def __init__(self, settings: EmbedderSettings) -> None:
        own = LMSTUDIO_URL if settings.provider == "lmstudio" else openai_url(os.environ)
        self._settings = settings
        self._url = (settings.url or own).rstrip("/")
        self._key = settings.api_key or openai_key(settings, os.environ)

    def embed(self, text: str) -> list[float]:
        settings = self._settings
        request: dict[str, Any] = {
            "model": settings.model,
            "input": [embeddable(text)],
            "encoding_format": "float",
        }
        if settings.requested and settings.provider == "openai":
            request["dimensions"] = settings.dimensions
        reply = _call(f"{self._url}/embeddings", request, settings, self._key)
        return _vector(reply, settings, lambda: reply["data"][0]["embedding"])


class FastEmbedder:
    """Models of the package fastembed, on this machine's CPU; the first use downloads the model."""

    def __init__(self, settings: EmbedderSettings) -> None:
        require("fastembed", "the embedder fastembed", package="fastembed")
        from fastembed import TextEmbedding

        try:
            self._model = TextEmbedding(model_name=settings.model)
        except Exception as error:  # a download, a file or a model may raise anything
            raise MemoryStoreError(
                f"fastembed cannot load {settings.model}: {one_line(str(error), 200)}. "
                "Check the model's name, and the network."
            ) from error

    def embed(self, text: str) -> list[float]:
        return [float(value) for value in next(iter(self._model.embed([embeddable(text)])))]


def ollama_url(url: str | None, environment: Mapping[str, str]) -> str:
    """Return Ollama's URL: `url`, else OLLAMA_HOST, else this machine's."""
    where = url or environment.get("OLLAMA_HOST") or OLLAMA_URL
    return (where if "://" in where else f"http://{where}").rstrip("/")


def openai_url(environment: Mapping[str, str]) -> str:
    """Return the URL of OpenAI's API: OPENAI_BASE_URL, else OpenAI's own."""
    return environment.get("OPENAI_BASE_URL") or OPENAI_URL


def openai_key(settings: EmbedderSettings, environment: Mapping[str, str]) -> str | None:
    """Return OPENAI_API_KEY; None for the user's own servers, which need no key. Raise MemoryStoreError."""
    if settings.provider != "openai" or settings.url:
        return None  # OpenAI's key is for OpenAI only
    if key := environment.get("OPENAI_API_KEY"):
        return key
    raise MemoryStoreError(
        "the embedder openai needs a key. Set OPENAI_API_KEY before relay starts, or apiKey of embedder; "
        "or use {'provider': 'ollama'}, which needs none."
    )


def _call(
    url: str, body: Mapping[str, Any] | None, settings: EmbedderSettings, key: str | None = None
) -> Any:
    """Return the JSON object with which `url` answers a POST of `body`, or a GET. Raise MemoryStoreError."""
    where = without_secrets(url)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        request = urllib.request.Request(
            url, None if body is None else json.dumps(body).encode(), headers=headers
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            reply = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            said = one_line(error.read(2000).decode("utf-8", "replace"), 200)
        if error.code in (401, 403):
            what = f"the embedder at {where} refuses the key ({error.code}). Check apiKey of embedder."
        elif error.code == 404 and settings.provider == "ollama":
            raise _model_missing(settings) from error
        else:
            what = (
                f"the embedder at {where} answers {error.code}: {said}. Check its model {settings.model!r}."
            )
        raise MemoryStoreError(what) from error
    except http.client.InvalidURL:  # its text may have a password
        raise MemoryStoreError(
            f"the embedder at {where} cannot be called: its url has a user, or is not valid. "
            "Correct url of embedder; a key belongs in apiKey."
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise MemoryStoreError(
            f"the embedder at {where} does not answer ({one_line(str(reason), 120)}). "
            "Start it, or correct url of embedder."
        ) from error
    except ValueError as error:  # not JSON; not a URL
        raise MemoryStoreError(
            f"the embedder at {where} is not {settings.provider} ({one_line(str(error), 120)}). "
            "Correct url of embedder."
        ) from error
    return reply if isinstance(reply, dict) else {}


def _model_missing(settings: EmbedderSettings) -> MemoryStoreError:
    return MemoryStoreError(
        f"Ollama does not have the model {settings.model!r}. Run: ollama pull {settings.model}"
    )


def _vector(reply: Any, settings: EmbedderSettings, taken: Any) -> list[float]:
    try:
        vector = [float(value) for value in taken()]
    except (KeyError, IndexError, TypeError, ValueError):
        vector = []
    if not vector:
        raise MemoryStoreError(
            f"{settings.shown} answered without a vector: {one_line(repr(reply), 120)}. "
            "Check that the model is an embedding model."
        )
    return vector
