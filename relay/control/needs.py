"""Which agents need the user, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntEnum

from relay.control.sessions import UNRESPONSIVE, SessionInfo
from relay.names import key


class Need(IntEnum):
    """A reason why an agent needs the user, the most urgent first."""

    PROMPTING = 0
    """It has a question, and does nothing until the user answers."""
    FAILED = 1
    """It has stopped with an error, or is held until the user starts it again."""
    ESCALATED = 2
    """Its supervision does not know what to do."""
    UNRESPONSIVE = 3
    """Its session does not answer; `relay reload` replaces it."""
    HELD = 4
    """Its messages are held until the user releases or drops them."""
    READY = 5
    """It is waiting for its next prompt."""
    NONE = 6


_NEEDS = {
    "prompting": Need.PROMPTING,
    "failed": Need.FAILED,
    "held": Need.FAILED,
    UNRESPONSIVE: Need.UNRESPONSIVE,
    "ready": Need.READY,
}

ATTACH = frozenset({Need.PROMPTING, Need.FAILED, Need.ESCALATED})
"""The needs that the user resolves in the agent's own terminal."""


def need(session: SessionInfo) -> Need:
    """Return the most urgent reason why the agent needs the user."""
    reasons = [_NEEDS.get(session.state, Need.NONE)]
    if session.escalation:
        reasons.append(Need.ESCALATED)
    if session.held:
        reasons.append(Need.HELD)
    return min(reasons)


def urgency(session: SessionInfo) -> tuple[int, float, str, str]:
    """Return the sort key of an agent: its need, then since when, then its name."""
    since = math.inf if session.since is None else session.since
    return need(session), since, key(session.team), key(session.name)


def by_urgency(sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    return sorted(sessions, key=urgency)
