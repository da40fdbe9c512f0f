"""The phases of a session, as every feature sees them.

SessionBegan ─ SessionReady ─ ... ─ AgentExited ─ LastWords ─ SessionEnding ─ Goodbye ─ SessionClosed
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.eventbus import Event, Question


@dataclass(frozen=True, slots=True)
class Identity:
    """Which session this is. id: of this run; directory: the one in which the agent runs."""

    id: str
    name: str
    team: str
    directory: Path


@dataclass(frozen=True, slots=True)
class SessionBegan(Event):
    """All features are there, and the agent is running. No feature publishes anything before this."""


@dataclass(frozen=True, slots=True)
class SessionReady(Event):
    """The handlers of session_start have been called: directives are acted upon, and mail is delivered."""


@dataclass(frozen=True, slots=True)
class LastWords(Question[None]):
    """The agent has ended: read and act upon what is left of its output. Answer when that is done."""


@dataclass(frozen=True, slots=True)
class SessionEnding(Event):
    """Nothing reaches the agent any more. code: its exit code, for a shell."""

    code: int


@dataclass(frozen=True, slots=True)
class Goodbye(Question[None]):
    """Give the user's terminal back."""

    code: int


@dataclass(frozen=True, slots=True)
class SessionClosed(Question[None]):
    """The session is over: close what is open."""


@dataclass(frozen=True, slots=True)
class Describe(Question[dict[str, Any]]):
    """Contribute to the JSON object of `relay ps` (brief) or `relay explain`."""

    brief: bool
