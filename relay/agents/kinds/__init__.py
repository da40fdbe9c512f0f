"""The kinds of agents that relay knows: each module of this package is one, named like its pattern file.

No other module names a kind. A new kind is a new module, with one subclass of relay.agents.kind.AgentKind.
The door of a kind is in _NAME_door.py: it is only used once an agent runs.
This module is on the path to an agent's first byte, so it imports a kind only when asked for it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.agents.kind import AgentKind

_names: list[str] = []
_kinds: dict[str, AgentKind] = {}


def names() -> list[str]:
    """Return the names of all kinds, sorted. It imports none of them."""
    if not _names:
        files = (name for folder in __path__ for name in os.listdir(folder))  # noqa: PTH208
        _names.extend(sorted(name[:-3] for name in files if name.endswith(".py") and name[0] != "_"))
    return _names


def find(name: str) -> AgentKind:
    """Return the kind called `name`; for an unknown name, one without hooks and transcripts."""
    known = name if name in names() else ""  # it may come from outside: keep no others
    if known not in _kinds:
        _kinds[known] = _import_kind(known)
    return _kinds[known]


def hooked() -> list[str]:
    """Return the names of the kinds that have hooks, sorted. It imports them all."""
    return [name for name in names() if find(name).events]


def _import_kind(name: str) -> AgentKind:
    from importlib import import_module

    from relay.agents.kind import AgentKind

    if not name:
        return AgentKind()
    module = import_module(f"{__name__}.{name}")
    (kind,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, AgentKind) and each.__module__ == module.__name__
    )
    return kind()
