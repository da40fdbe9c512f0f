"""What relay's entry points name: how each backend is opened, and which environment variables it reads.

Those are keys and servers, which may differ between sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.errors import ConfigError
from relay.memory.backend import MemoryBackend
from relay_memory.embedder import EmbedderSettings
from relay_memory.mem0_backend import open_mem0
from relay_memory.mem0_config import translate
from relay_memory.qdrant_backend import open_qdrant, qdrant_settings

_ANYWHERE = Path()  # the place of a local store does not matter here

# Read unless the configuration has the server's url; the last one is an older name of the second, for mem0.
_SERVERS = {
    "ollama": ("OLLAMA_HOST",),
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"),
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A `relay.memory.backend.BackendPlugin`.

    parts: returns the embedder of a configuration, and the name of its store; raises ConfigError.
    """

    open: Callable[[Mapping[str, Any], Path], MemoryBackend]
    parts: Callable[[Mapping[str, Any]], tuple[EmbedderSettings, str]]

    def environment(self, config: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
        """Return those of `variables` that the backend reads if it has this `config`."""
        try:
            embedder, store = self.parts(config)
        except ConfigError:
            return {}  # it cannot be opened
        names = () if embedder.url else _SERVERS.get(embedder.provider, ())
        libpq = store == "pgvector"  # postgresql.org/docs/current/libpq-envars.html
        return {
            name: value
            for name, value in variables.items()
            if name in names or (libpq and name.startswith("PG"))
        }


def _mem0(config: Mapping[str, Any]) -> tuple[EmbedderSettings, str]:
    settings = translate(config, _ANYWHERE)
    return settings.embedder, settings.provider


def _qdrant(config: Mapping[str, Any]) -> tuple[EmbedderSettings, str]:
    return qdrant_settings(config, _ANYWHERE).embedder, "qdrant"


mem0 = Plugin(open_mem0, _mem0)
qdrant = Plugin(open_qdrant, _qdrant)
