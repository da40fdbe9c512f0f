"""A line of an agent's transcript: what it says, in the form that all kinds of agents share.

Most agents write JSON lines, one object a line, with an ISO 8601 "timestamp" in UTC; AgentKind.reader reads
them. Left out, as the model did not say it: the program's own text about an API error, the summary of a
compaction, thinking, and a text that the user interrupted. AgentKind.failure returns the errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from relay.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """One text of an agent, as the model wrote it (Markdown).

    id:         unique in the session, even for equal texts; the same wherever the agent copies the line.
    time:       the line's own timestamp, unchanged; "" for none.
    subagent:   the subagent that said it; "" for the agent itself.
    agent_type: the kind of that subagent, as the agent calls it.
    place:      the offset in bytes of the end of its line in the transcript; 0 if it is from a stop event.
    version:    of the agent, if its lines have it.
    """

    text: str
    id: str
    time: str = ""
    subagent: str = ""
    agent_type: str = ""
    place: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn of the agent that has ended with an error.

    text: what the agent says about it. code: its own name for the error; "" if it has none.
    id, time: as in Said.
    """

    text: str
    code: str = ""
    id: str = ""
    time: str = ""


LineReader = Callable[[bytes], list[Said]]
"""Return the texts of a complete line; none for a line that is bad or has none. Raise Ambiguous.

It gets an empty line if the file has not grown since the last look. A text that ended before the line has the
place BEFORE.
"""

BEFORE = -1


class Ambiguous(Exception):
    """Nothing that follows in this transcript is certain; the message says why."""


def numbered(
    texts: Iterable[str], id: str, time: str, subagent: str = "", agent_type: str = "", *, version: str = ""
) -> list[Said]:
    """Return the texts of one message, but for empty ones; the second one's id is ID/1, and so on."""
    numbered = ((f"{id}/{number}" if number else id, text) for number, text in enumerate(texts))
    return [
        Said(text, each, time, subagent, agent_type, version=version)
        for each, text in numbered
        if text.strip()
    ]


def object_in(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line; an empty one for anything else."""
    try:
        return dict_of(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def dicts(value: Any) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return `value` if it is a text; half a surrogate pair, which no file can hold, becomes "?"."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
