"""The kinds of backends that installed packages add: entry points of the group `relay.memory_backends`."""

from __future__ import annotations

from importlib.metadata import EntryPoints, entry_points
from typing import cast

from relay.errors import MemoryStoreError
from relay.memory.backend import BackendPlugin
from relay.memory.calls import failure

GROUP = "relay.memory_backends"


def installed() -> EntryPoints:
    return entry_points(group=GROUP)


def plugin(name: str) -> BackendPlugin:
    """Return the plug-in `name`. Raise MemoryStoreError if there is none, or if it cannot be imported."""
    for found in installed().select(name=name):
        try:
            return cast(BackendPlugin, found.load())
        except Exception as error:  # another package's code may raise anything
            raise MemoryStoreError(failure(name, error)) from error
    raise MemoryStoreError(
        f"no installed package has the memory backend {name!r}. Install the one that does."
    )
