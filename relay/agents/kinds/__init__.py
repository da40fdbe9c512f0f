"""The kinds of agents that relay knows: each module of this package is one, named like its pattern file.

No other module names a kind. A new kind is a new module, with one subclass of relay.agents.kind.AgentKind.
"""

from __future__ import annotations

import os
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.agents.kind import AgentKind


@lru_cache(1)
def names() -> tuple[str, ...]:
    """Return the names of all kinds, sorted. It imports none, as `relay wrap` calls it at its start."""
    files = (name for folder in __path__ for name in os.listdir(folder))  # noqa: PTH208
    return tuple(sorted(name[:-3] for name in files if name.endswith(".py") and not name.startswith("_")))


@lru_cache
def find(name: str) -> AgentKind:
    """Return the kind called `name`; for an unknown name, one without hooks and transcripts."""
    import importlib

    from relay.agents.kind import AgentKind

    if name not in names():
        return AgentKind()
    module = importlib.import_module(f"{__name__}.{name}")
    (kind,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, AgentKind) and each.__module__ == module.__name__
    )
    return kind()


def hooked() -> list[str]:
    """Return the names of the kinds that have hooks, sorted. It imports them all."""
    return [name for name in names() if find(name).events]
