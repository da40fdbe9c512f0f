"""What a store of memories has to do: `MemoryBackend`, and the `Memory` that it keeps."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from relay import names
from relay.errors import MemoryStoreError


@dataclass(frozen=True, slots=True)
class Memory:
    """One text that an agent asked relay to remember.

    id:       short, unique in its backend, lower-case letters and digits.
    agent:    who saved it; team: the agent's team. Compare both by `relay.names.key`.
    shared:   the whole team sees it; otherwise only its agent does.
    time:     when it was saved, in seconds since the epoch.
    metadata: what else its agent said of it; anything that JSON can hold.
    """

    id: str
    text: str
    agent: str
    team: str
    shared: bool
    time: float
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Viewer:
    """An agent of a team, which sees its own memories and those that its team shares."""

    agent: str
    team: str

    @property
    def keys(self) -> tuple[str, str]:
        """The team and the agent, in the form in which names are compared."""
        return names.key(self.team), names.key(self.agent)

    def sees(self, memory: Memory) -> bool:
        """Return True if this agent may read `memory`, and forget it."""
        team, agent = self.keys
        return names.key(memory.team) == team and (memory.shared or names.key(memory.agent) == agent)


class IdTaken(MemoryStoreError):
    """The backend has another memory with this id."""


class MemoryBackend(Protocol):
    """A store of memories; all methods are called by one thread at a time.

    A method that cannot do its work raises MemoryStoreError, whose text says what to do next.  A memory that
    was added is there after any crash, whole; one that could not be added is not there at all.
    """

    def add(self, memory: Memory) -> Memory:
        """Keep `memory` as it is, and return it. Raise IdTaken if another memory has its id.

        A text that its agent sees already is not kept twice: return the memory that has it, unchanged, but
        shared from now on if it is the agent's own and `memory` is shared.  The same memory, added again, is
        such a text.
        """

    def search(self, query: str, viewer: Viewer, limit: int) -> builtins.list[Memory]:
        """Return at most `limit` memories that `viewer` sees and that fit `query` best, best first.

        query: any text that is not empty. limit: at least 0.
        """

    def list(self, viewer: Viewer, limit: int | None) -> builtins.list[Memory]:
        """Return the memories that `viewer` sees, newest first; at most `limit`, or all if it is None."""

    def everything(self) -> builtins.list[Memory]:
        """Return the memories of all agents of all teams, oldest first."""

    def delete(self, id: str, viewer: Viewer) -> bool:
        """Delete the memory with this id; return False if `viewer` sees none."""

    def close(self) -> None:
        """Release what the backend holds. Closing twice does no harm."""
