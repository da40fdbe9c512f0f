"""An agent's conversation: the id that the agent uses to resume it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.agents import kinds
from relay.dataclass import dataclass
from relay.storage.files import open_regular

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
"""Any agent's id: a UUID, `ses_...` of opencode. It comes from outside and ends up in a command line."""

_CHUNK = 1 << 16
_CHUNKS = 256  # more than a conversation without a prompt ever has
_OVERLAP = 32  # bytes, more than AgentKind.prompt can match


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation.

    agent:     the name of the agent's profile.
    id:        the agent's own id for it (`is_id`).
    directory: the folder in which the agent was started: only from there does it find the id.
    path:      the file in which the agent keeps it; None if there is no such file, or it is unknown.
    """

    agent: str
    id: str
    directory: Path
    path: Path | None = None

    def to_json(self) -> dict[str, Any]:
        path = None if self.path is None else str(self.path)
        return {"agent": self.agent, "id": self.id, "directory": str(self.directory), "path": path}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Conversation | None:
        """Return the conversation that `to_json` wrote; None for anything else."""
        agent, id, directory, path = (values.get(key) for key in ("agent", "id", "directory", "path"))
        if not (isinstance(agent, str) and isinstance(id, str) and is_id(id) and isinstance(directory, str)):
            return None
        return cls(agent, id, Path(directory), Path(path) if isinstance(path, str) else None)


def is_id(text: str) -> bool:
    """Return True if `text` can be a conversation's id: not an option, not a path, nothing to quote."""
    return _ID.match(text) is not None


def resumable(conversation: Conversation) -> bool:
    """Return False if the agent is known to have nothing to resume.

    It has nothing while the conversation's file is missing, or has no prompt yet: agents then refuse the id
    ("No conversation found").  If no file is known, assume that it can be resumed.
    """
    if conversation.path is None:
        return True
    before = b""
    try:
        with open(conversation.path, "rb", buffering=0, opener=open_regular) as file:
            for _ in range(_CHUNKS):
                data = file.read(_CHUNK)
                if kinds.find(conversation.agent).prompt.search(before + data):
                    return True
                if not data:
                    return False
                before = data[-_OVERLAP:]
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return False
    return True
