"""The states of a supervised agent, from off to off again, and which may follow which.

off → queued → preparing → starting → up → stopping → off
                               ↓      ↓
        done | failed | held | backoff | waiting → starting
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """A state of a supervised agent. What a running agent does is its state in `relay ps` (relay.state)."""

    OFF = "off"  # it does not run, and is not to
    QUEUED = "queued"  # it waits for another agent, or for room under max_running
    PREPARING = "preparing"  # its worktree is being set up
    STARTING = "starting"  # it has not been ready yet
    UP = "up"
    STOPPING = "stopping"  # it was asked to end
    BACKOFF = "backoff"  # it has failed, and is restarted after a pause
    WAITING = "waiting"  # a limit of its account holds until a known time
    HELD = "held"  # only the user, or a cause that is gone, lets it continue
    DONE = "done"  # it has ended as it should
    FAILED = "failed"  # it has ended, and is not restarted


PAUSED = frozenset({Phase.BACKOFF, Phase.WAITING, Phase.HELD})
"""The states of an agent that has ended, and whose session waits to start it again."""

ENDED = frozenset({Phase.OFF, Phase.DONE, Phase.FAILED})
"""The states of an agent that has ended, and its session with it."""

_STARTS = frozenset({Phase.QUEUED, Phase.PREPARING, Phase.STARTING, Phase.OFF})
_EXITS = frozenset({Phase.BACKOFF, Phase.WAITING, Phase.HELD, Phase.DONE, Phase.FAILED, Phase.OFF})

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.OFF: _STARTS,
    Phase.QUEUED: _STARTS | {Phase.FAILED, Phase.HELD},
    Phase.PREPARING: frozenset({Phase.STARTING, Phase.HELD, Phase.FAILED, Phase.OFF}),
    Phase.STARTING: _EXITS | {Phase.UP, Phase.STOPPING, Phase.STARTING},
    Phase.UP: _EXITS | {Phase.STOPPING, Phase.STARTING},
    Phase.STOPPING: frozenset({Phase.OFF, Phase.STARTING}),
    Phase.BACKOFF: frozenset({Phase.STARTING, Phase.OFF, Phase.FAILED, Phase.DONE}),
    Phase.WAITING: _EXITS | {Phase.UP, Phase.STARTING, Phase.STOPPING},
    Phase.HELD: _STARTS | {Phase.UP, Phase.STOPPING, Phase.DONE, Phase.FAILED, Phase.BACKOFF},
    Phase.DONE: _STARTS,
    Phase.FAILED: _STARTS,
}
"""The states that may follow each one."""


def check(before: Phase, after: Phase) -> Phase:
    """Return `after`. Raise ValueError if it may not follow `before`; the same state may always stay."""
    if after is not before and after not in TRANSITIONS[before]:
        raise ValueError(f"an agent that is {before} cannot become {after}")
    return after
