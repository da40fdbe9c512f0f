"""The states of a supervised agent.

off → queued → starting → up → off
                   ↓      ↓
   done | failed | held | backoff | waiting → starting
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """A state of a supervised agent. relay.state says what a running agent is doing, as `relay ps` shows."""

    OFF = "off"  # not running, and not supposed to
    QUEUED = "queued"  # waiting for another agent, or for room under max_running
    STARTING = "starting"  # not ready yet
    UP = "up"
    BACKOFF = "backoff"  # failed; will be restarted after a pause
    WAITING = "waiting"  # waiting until a known time for a limit, or a failure that passes with time
    HELD = "held"  # waiting for the user, or for the cause to go away
    DONE = "done"  # ended as intended
    FAILED = "failed"  # ended, and will not be restarted


PAUSED = frozenset({Phase.BACKOFF, Phase.WAITING, Phase.HELD})
"""The states of an agent that has ended, while its session waits to restart it."""

ENDED = frozenset({Phase.OFF, Phase.DONE, Phase.FAILED})
"""The states of an agent that has ended together with its session."""


def in_words(state: str) -> str:
    """Return a session's state for a sentence that begins with "it is"."""
    return {"backoff": "about to restart"}.get(state, state)
