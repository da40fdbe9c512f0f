"""Opens the backend that the settings name."""

from __future__ import annotations

from relay.home import Home
from relay.memory.backend import MemoryBackend
from relay.memory.config import MemoryConfig
from relay.memory.embedded import EmbeddedBackend
from relay.memory.in_process import InProcessBackend
from relay.memory.remote import RemoteBackend


def open_backend(config: MemoryConfig, home: Home) -> MemoryBackend:
    """Return the backend of `config`; its first call does the work. Raise MemoryStoreError.

    A factory that is a Python object runs in this process, because it cannot be passed to another one;
    libraries (mem0, qdrant, "package.module:name") run in a helper process.
    """
    if config.backend == "embedded":
        return EmbeddedBackend(home.memory)
    if config.factory is not None and not isinstance(config.factory, str):
        return InProcessBackend(config.factory, config.config, config.timeout)
    return RemoteBackend(config, home)
