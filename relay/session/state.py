"""What the agent does, and since when.

    starting → working ⇄ ready | prompting | unsafe        from the injector's verdict
               any ⇄ stopped                               Ctrl-Z, and fg
               any → ending                                the agent has ended; its last words are acted on

Nobody tells when a program falls quiet, so the state is looked at whenever output has just stopped, and
whenever somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from relay.injection.readiness import Readiness, Verdict

STOPPED, ENDING = "stopped", "ending"


class AgentState:
    """The state of one agent.

    verdict: whether it may be typed into now; quiet: seconds since its last output.
    suspended, ended: what the system has said of its process.
    """

    def __init__(
        self,
        verdict: Callable[[], Verdict],
        quiet: Callable[[], float],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.suspended = False
        self.ended = False
        self._verdict = verdict
        self._quiet = quiet
        self._clock = clock
        self.name = "starting"
        self.since = clock()

    def look(self) -> str:
        """The state's name now; `since` is when it was entered (seconds since the epoch)."""
        name, began = self._now()
        if name != self.name:
            self.name, self.since = name, began
        return name

    @property
    def reason(self) -> str:
        """Why it counts as that, for a person."""
        if self.ended:
            return "it has ended; what it said last is still acted on"
        if self.suspended:
            return "it was suspended with Ctrl-Z; `fg` in its terminal brings it back"
        return self._verdict().reason

    def _now(self) -> tuple[str, float]:
        now = self._clock()
        if self.ended:
            return ENDING, now
        if self.suspended:
            return STOPPED, now
        state = self._verdict().state
        return str(state), now if state is Readiness.WORKING else now - self._quiet()
