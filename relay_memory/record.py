"""How a store that knows only texts and scalar fields keeps a memory: as a JSON string beside the text.

The string is ASCII, so NUL and lone surrogates, which PostgreSQL and UTF-8 refuse, come back unchanged.
"""

from __future__ import annotations

import json
from typing import Any

from relay.errors import MemoryStoreError
from relay.memory.backend import Memory

_REPLACEMENT = "\ufffd"  # U+FFFD REPLACEMENT CHARACTER


def storable(text: str) -> str:
    """Return `text` as any store can hold it: replace what UTF-8 or PostgreSQL refuses by U+FFFD."""
    return "".join(_REPLACEMENT if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in text)


def encode(memory: Memory) -> str:
    """Return all of `memory` as JSON, without its text if the text is `storable`.

    Raise MemoryStoreError if its metadata is not JSON.
    """
    record: dict[str, Any] = {
        "id": memory.id,
        "agent": memory.agent,
        "team": memory.team,
        "shared": memory.shared,
        "time": memory.time,
        "metadata": dict(memory.metadata),
    }
    if storable(memory.text) != memory.text:
        record["text"] = memory.text
    try:
        return json.dumps(record, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise MemoryStoreError(
            f"the memory's metadata is not JSON: {error}. Use strings, numbers, lists and dicts."
        ) from None


def decode(record: str, text: str) -> Memory | None:
    """Return the memory that `encode` turned into `record`; None if `record` is not from `encode`.

    text: the memory's text, made `storable`.
    """
    try:
        fields = json.loads(record)
        return Memory(
            id=str(fields["id"]),
            text=str(fields.get("text", text)),
            agent=str(fields["agent"]),
            team=str(fields["team"]),
            shared=bool(fields["shared"]),
            time=float(fields["time"]),
            metadata=dict(fields["metadata"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
