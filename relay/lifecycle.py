"""The phases of a session.

SessionBegan ─ SessionReady ─ ... ─ AgentExited ─ LastWords ─ SessionEnding ─ WhatFollows
                                             ─ Goodbye ─ SessionSettling ─ SessionClosed
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from relay.dataclass import dataclass
from relay.eventbus import Event, Question


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a session. id: unique to this run; directory: the agent's working directory."""

    id: str
    name: str
    team: str
    directory: Path


class SessionBegan(Event):
    """The agent is running, and all features are registered. No feature publishes anything earlier."""

    lasting: ClassVar[bool] = True


class SessionReady(Event):
    """The session_start handlers have run: from now on relay obeys directives and delivers messages."""


class LastWords(Question[None]):
    """The agent has ended: process the rest of its output, and answer when that is done."""


Order = Literal["", "restart", "resume", "fresh"]
"""How the next agent starts: with the conversation if the policy allows it ("restart"), with it whatever the
policy says, or with a new one; "": none follows."""


class StopRequested(Event):
    """The agent must end, or stay ended. order: how the next one starts.

    by_user: the user asked for this, not the system.
    """

    order: Order = ""
    by_user: bool = True


@dataclass(frozen=True, slots=True)
class Follower:
    """The agent that follows one that has ended.

    command: what it runs; None: the same command. resumes: it continues a conversation.
    """

    command: tuple[str, ...] | None = None
    resumes: bool = False


class WhatFollows(Question[Follower]):
    """The agent has ended with `code`: does another one follow?

    The answer may take hours: the agent's session waits for it. order: what the user asked for.
    """

    code: int
    order: Order = ""


class SessionEnding(Event):
    """Nothing can reach the agent any more."""


class Goodbye(Question[None]):
    """Give the user's terminal back. code: the agent's exit code."""

    code: int


class SessionSettling(Question[None]):
    """The session is about to close: end work in progress, while its outcome can still be recorded."""


class SessionClosed(Question[None]):
    """The session is over: release all resources. ended: the agent has ended, too, and none follows it."""

    ended: bool = False


class Describe(Question[dict[str, Any]]):
    """Contribute to the JSON object of `relay ps` (brief) or `relay explain`."""

    brief: bool
