"""The phases of a supervised agent that may follow each other."""

from __future__ import annotations

from relay.supervision.states import Phase

_STARTS = frozenset({Phase.QUEUED, Phase.STARTING, Phase.OFF})
_EXITS = frozenset({Phase.BACKOFF, Phase.WAITING, Phase.HELD, Phase.DONE, Phase.FAILED, Phase.OFF})

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.OFF: _STARTS,
    Phase.QUEUED: _STARTS | {Phase.FAILED, Phase.HELD},
    Phase.STARTING: _EXITS | {Phase.UP, Phase.STARTING},
    Phase.UP: _EXITS | {Phase.STARTING},
    Phase.BACKOFF: frozenset({Phase.STARTING, Phase.OFF, Phase.FAILED, Phase.DONE}),
    Phase.WAITING: _EXITS | {Phase.UP, Phase.STARTING},
    Phase.HELD: _STARTS | {Phase.UP, Phase.DONE, Phase.FAILED, Phase.BACKOFF},
    Phase.DONE: _STARTS,
    Phase.FAILED: _STARTS,
}
"""The states that may follow each state."""


def check(before: Phase, after: Phase) -> Phase:
    """Return `after`. Raise ValueError if it may not follow `before`; staying is always allowed."""
    if after is not before and after not in TRANSITIONS[before]:
        raise ValueError(f"an agent that is {before} cannot become {after}")
    return after
