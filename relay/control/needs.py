"""Which agents need the user, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntEnum

from relay.control.sessions import UNRESPONSIVE, SessionInfo
from relay.names import key


class Need(IntEnum):
    """A reason why an agent needs its user, the most urgent first."""

    PROMPTING = 0
    """It asks something, and does nothing until that is answered."""
    FAILED = 1
    """It has stopped with an error, or is held until the user has it start again."""
    ESCALATED = 2
    """Its supervision does not know what to do."""
    UNRESPONSIVE = 3
    """Its session does not answer; `relay reload` replaces it."""
    HELD = 4
    """Messages of its own are held until the user releases or drops them."""
    READY = 5
    """It waits for its next prompt."""
    NONE = 6


_NEEDS = {
    "prompting": Need.PROMPTING,
    "failed": Need.FAILED,
    "held": Need.FAILED,
    UNRESPONSIVE: Need.UNRESPONSIVE,
    "ready": Need.READY,
}

ATTACH = frozenset({Need.PROMPTING, Need.FAILED, Need.ESCALATED})
"""What the user settles in the agent's own terminal."""


def need(session: SessionInfo) -> Need:
    """Return the most urgent reason why the agent needs its user."""
    reasons = [_NEEDS.get(session.state, Need.NONE)]
    if session.escalation:
        reasons.append(Need.ESCALATED)
    if session.held:
        reasons.append(Need.HELD)
    return min(reasons)


def urgency(session: SessionInfo) -> tuple[int, float, str, str]:
    """Return the key by which agents are sorted: the need, then who has had it for longest, then the name."""
    since = math.inf if session.since is None else session.since
    return need(session), since, key(session.team), key(session.name)


def by_urgency(sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    """Return `sessions`, those that need the user most first."""
    return sorted(sessions, key=urgency)
