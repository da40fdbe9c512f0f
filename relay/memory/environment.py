"""The environment variables that a backend reads: keys and servers, which may differ between sessions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.errors import ConfigError
from relay.memory.mem0_config import translate
from relay.memory.qdrant_backend import qdrant_settings

# Read unless the configuration has the server's url; the last one is an older name of the second, for mem0.
_SERVERS = {
    "ollama": ("OLLAMA_HOST",),
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"),
}


def read_by(backend: str, config: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of `variables` that the backend reads if it has this `config`.

    A custom backend may read any; none are returned.
    """
    anywhere = Path()  # the place of a local store does not matter
    try:
        if backend == "mem0":
            made = translate(config, anywhere)
            embedder, store = made.embedder, made.provider
        elif backend == "qdrant":
            embedder, store = qdrant_settings(config, anywhere).embedder, "qdrant"
        else:
            return {}
    except ConfigError:
        return {}  # it cannot be opened
    names = () if embedder.url else _SERVERS.get(embedder.provider, ())
    libpq = store == "pgvector"  # postgresql.org/docs/current/libpq-envars.html
    return {
        name: value for name, value in variables.items() if name in names or (libpq and name.startswith("PG"))
    }
