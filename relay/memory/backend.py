"""The interface of a store of memories, `MemoryBackend`, and the `Memory` that it keeps."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from relay import names
from relay.dataclass import dataclass, field
from relay.errors import MemoryStoreError


@dataclass(frozen=True, slots=True)
class Memory:
    """One text that an agent asked relay to remember.

    The man page shows these lines (`make man`). Compare agent and team by `relay.names.key`.

    id:       short, unique in its backend, lower-case letters and digits.
    text:     the memory.
    agent, team: the agent that saved it.
    shared:   whether the whole team sees it; otherwise only its agent does.
    time:     when it was saved, in seconds since the epoch.
    metadata: what else its agent recorded; anything that JSON can hold.
    """

    id: str
    text: str
    agent: str
    team: str
    shared: bool
    time: float
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: object) -> Memory:
        """Return the memory whose `dataclasses.asdict` is `value`. Raise MemoryStoreError if it is not one.

        Ignore unknown keys; `id` and `metadata` may be missing.
        """
        if not isinstance(value, dict):
            raise MemoryStoreError("a memory is a JSON object.")
        given: dict[str, Any] = {"id": "", "metadata": {}, **value}
        for name, kinds in _KINDS.items():
            if name not in given:
                raise MemoryStoreError(f"{name!r} is missing.")
            if not isinstance(given[name], kinds) or (kinds != (bool,) and isinstance(given[name], bool)):
                raise MemoryStoreError(f"{name!r} must be {_WORDS[kinds]}, not {given[name]!r:.40}.")
        return cls(**{name: given[name] for name in _KINDS})


_KINDS: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "text": (str,),
    "agent": (str,),
    "team": (str,),
    "shared": (bool,),
    "time": (int, float),
    "metadata": (dict,),
}
_WORDS: dict[tuple[type, ...], str] = {
    (str,): "a string",
    (bool,): "true or false",
    (int, float): "a number",
    (dict,): "an object",
}


@dataclass(frozen=True, slots=True)
class Scope:
    """The memories that an agent can see: its own, and those its team shares."""

    agent: str
    team: str

    @property
    def keys(self) -> tuple[str, str]:
        """The team and the agent, normalised for comparison."""
        return names.key(self.team), names.key(self.agent)

    def sees(self, memory: Memory) -> bool:
        """Return True if the agent may read and delete `memory`."""
        team, agent = self.keys
        return names.key(memory.team) == team and (memory.shared or names.key(memory.agent) == agent)


class IdTaken(MemoryStoreError):
    """The backend has another memory with this id."""


class MemoryBackend(Protocol):
    """A store of memories; all methods are called by one thread at a time.

    A method that fails raises MemoryStoreError, whose text says what to do next.  An added memory survives
    any crash, whole; one that could not be added leaves no trace.
    """

    def add(self, memory: Memory) -> Memory:
        """Store `memory` unchanged, and return it. Raise IdTaken if another memory has its id.

        Do not store a text twice if its agent already sees it: return the existing memory, unchanged, but
        make it shared if it is the agent's own and `memory` is shared.  This includes adding the same memory
        again.
        """

    def search(self, query: str, scope: Scope, limit: int) -> builtins.list[Memory]:
        """Return at most `limit` memories that `scope` sees and that match `query`, best first.

        query: any non-empty text. limit: at least 0.
        """

    def list(self, scope: Scope, limit: int | None) -> builtins.list[Memory]:
        """Return the memories that `scope` sees, newest first; at most `limit`, or all if it is None."""

    def everything(self) -> builtins.list[Memory]:
        """Return the memories of all agents of all teams, oldest first."""

    def delete(self, id: str, scope: Scope) -> bool:
        """Delete the memory with this id; return False if `scope` sees none."""

    def close(self) -> None:
        """Release the backend's resources. Closing twice does no harm."""


class BackendPlugin(Protocol):
    """A kind of backend that a package adds, by an entry point of the group `relay.memory_backends`."""

    def open(self, config: Mapping[str, Any], folder: Path) -> MemoryBackend:
        """Return a backend with these settings, which may keep its files in `folder`.

        relay's helper process calls it. Raise MemoryStoreError, whose text says what to do next.
        """

    def environment(self, config: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
        """Return those of `variables` that the backend reads with this `config`.

        Where they differ between sessions, each call gets a backend with its caller's.
        """
