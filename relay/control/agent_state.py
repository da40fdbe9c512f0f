"""The state of an agent as lists show it: in words, for how long, in which colour."""

from __future__ import annotations

import time

from relay.control.sessions import CONNECTING, UNRESPONSIVE, SessionInfo
from relay.supervision.restart import span
from relay.text import one_line

_CYAN = "\x1b[36m"
_COLOURS = {
    "prompting": "\x1b[1;33m",
    "failed": "\x1b[1;31m",
    "held": "\x1b[1;31m",
    UNRESPONSIVE: "\x1b[31m",
    "ready": "\x1b[32m",
}


def colour(session: SessionInfo) -> str:
    """Return the SGR sequence (ECMA-48) for the name and the state of an agent."""
    return _COLOURS.get(session.state, _CYAN)


def state(session: SessionInfo) -> str:
    """Return the agent's state, and in brackets its question and problems with its messages."""
    marks = [session.prompt] if session.prompt else []
    if session.bus not in {"", "connected", CONNECTING}:
        marks.append("off the bus")
    if session.account_hold:
        marks.append("account held")
    if session.held:
        marks.append(f"{session.held} held")
    if session.reason and session.state != "off":
        marks.append(one_line(session.reason, None))
    elif session.escalation:
        marks.append(one_line(session.escalation, None))
    if session.next_try is not None:
        marks.append(f"next try in {span(session.next_try - time.time())}")
    return f"{session.state} ({', '.join(marks)})" if marks else session.state


def duration(session: SessionInfo, now: float) -> str:
    """Return how long the agent has been in its state; "" if unknown. now: in seconds since the epoch."""
    return "" if session.since is None else _ago(now - session.since)


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
