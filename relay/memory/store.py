"""The memories that an agent sees, in any backend: what may be saved, and short ids with their prefixes."""

from __future__ import annotations

import builtins
import itertools
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from relay.dataclass import replace
from relay.errors import MemoryStoreError
from relay.memory.backend import IdTaken, Memory, MemoryBackend, Scope
from relay.text import one_line

MAX_TEXT = 64 * 1024
"""Maximum bytes of UTF-8 in one memory with its metadata as JSON; a larger one is refused, never cut."""

SHORTEST_PREFIX = 3
"""Minimum characters that `forget` accepts as a prefix of an id: a lone `2` means the second of a list."""

# No vowels, so no id is a word; no 0, 1 or l, which are mistaken for o, i and each other.
_ALPHABET = "23456789bcdfghjkmnpqrstvwxyz"
_SHORTEST_ID = 4  # characters; 28**4 is about 600,000 ids
_ID = re.compile(rf"[0-9a-z]{{{_SHORTEST_ID},32}}")
_TRIES = 4  # attempts at one length; if all ids are taken, the store is crowded: try the next length

_YEAR_10000 = 253_402_300_800  # its start, in seconds since the epoch


class MemoryStore:
    """The memories that `agent` of `team` sees in `backend`.

    An agent sees its own memories and those that members of its team shared, and may forget all that it sees.
    Every method raises MemoryStoreError, with advice, if the backend cannot be used.
    """

    def __init__(
        self, backend: MemoryBackend, team: str, agent: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._backend = backend
        self._scope = Scope(agent, team)
        self._clock = clock

    def check(self) -> None:
        """Raise MemoryStoreError if the backend cannot be used."""
        self._backend.list(self._scope, 1)

    def save(self, text: str, *, shared: bool = False, metadata: Mapping[str, Any] | None = None) -> Memory:
        """Remember `text`, for this agent or, if `shared`, for its whole team; return the memory.

        A text that the agent already sees is not stored twice: that memory is returned, its time unchanged;
        if it is the agent's own and `shared` is given, it becomes the team's.
        metadata: anything that JSON can hold.
        """
        agent, team = self._scope.agent, self._scope.team
        return self.add(Memory("", text, agent, team, shared, self._clock(), metadata or {}))

    def add(self, memory: Memory) -> Memory:
        """Add a memory of any agent, and return it.

        It gets another id if it has none, its id is taken, or relay would not make such an id.
        """
        memory = checked(memory)
        for id in itertools.chain([memory.id] if _ID.fullmatch(memory.id) else [], ids()):
            try:
                return self._backend.add(replace(memory, id=id))
            except IdTaken:
                continue
        raise AssertionError  # there is always another id

    def search(self, query: str, limit: int = 10) -> builtins.list[Memory]:
        """Return at most `limit` memories that match `query` best, best first.

        Any text is a valid query. An empty one finds nothing.
        """
        query = storable(query)
        return self._backend.search(query, self._scope, limit) if query and limit > 0 else []

    def list(self, limit: int | None = 20) -> builtins.list[Memory]:
        """Return the newest memories, newest first; at most `limit`, or all if it is None."""
        return [] if limit is not None and limit <= 0 else self._backend.list(self._scope, limit)

    def forget(self, id: str) -> bool:
        """Delete the memory `id` (in any case, or a prefix of it); return False if the agent sees none.

        Raise MemoryStoreError if several ids match.
        """
        exact = storable(id)
        id = exact.lower()
        if any(self._backend.delete(each, self._scope) for each in dict.fromkeys((exact, id))):
            return True
        if len(id) < SHORTEST_PREFIX:
            return False
        found = sorted(each.id for each in self.list(None) if each.id.lower().startswith(id))
        if len(found) > 1:
            several = ", ".join(one_line(each) for each in found[:5]) + (", ..." if len(found) > 5 else "")
            raise MemoryStoreError(f"'{id}' matches several ids: {several}. Give the whole id.")
        return bool(found) and self._backend.delete(found[0], self._scope)

    def close(self) -> None:
        """Release the backend. Closing twice does no harm."""
        self._backend.close()


def ids() -> Iterator[str]:
    """Yield ids without end: short enough to type, with no two characters that look alike."""
    for length in itertools.count(_SHORTEST_ID):
        for _ in range(_TRIES):
            yield "".join(secrets.choice(_ALPHABET) for _ in range(length))


def storable(text: str) -> str:
    """Return `text` as UTF-8 can hold it, without surrounding white space."""
    return text.encode("utf-8", "replace").decode("utf-8").strip()


def checked(memory: Memory) -> Memory:
    """Return `memory` in a form that can be stored. Raise MemoryStoreError if there is none."""
    if not 0 <= memory.time < _YEAR_10000:  # nor if it is NaN
        raise MemoryStoreError(
            f"the time {memory.time!r:.40} is not in the years 1970 to 9999. Give it in seconds since 1970."
        )
    text = storable(memory.text)
    if not text:
        raise MemoryStoreError("the text is empty. Give a text to save.")
    try:
        metadata = storable(json.dumps(dict(memory.metadata), allow_nan=False, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise MemoryStoreError(
            f"the metadata is not JSON: {error}. Use strings, numbers, lists and dicts."
        ) from None
    if (size := len((text + metadata).encode()) - len("{}")) > MAX_TEXT:
        raise MemoryStoreError(
            f"the text has {size:,} bytes, and a memory holds at most {MAX_TEXT:,}. "
            "Save the important part, or the path of a file with the rest."
        )
    agent, team = storable(memory.agent), storable(memory.team)
    return replace(memory, text=text, agent=agent, team=team, metadata=json.loads(metadata))
