"""Continuations: turns that relay makes the agent continue after it had ended them.

A printed hook reply has not necessarily been read: only the agent's next step proves it.
"""

from __future__ import annotations

from relay.agents.hook_reply import ReplyOutcome, Settle
from relay.eventbus import EventBus
from relay.state.events import EvidenceChanged
from relay.state.readiness import Readiness
from relay.state.states import AgentState
from relay.state.turn import Turn
from relay.storage.journal import Journal, preview
from relay.terminal.events import Notify

PROOF = 5.0
"""Seconds after which an agent still waiting at its prompt cannot have read the reply."""


class Continuations:
    """The continuations of one agent's turns. most: the limit in a row."""

    def __init__(self, bus: EventBus, journal: Journal, turn: Turn, state: AgentState, most: int) -> None:
        self.most = most
        self._bus = bus
        self._journal = journal
        self._turn = turn
        self._state = state
        self._refused = False
        self._unproved: Settle | None = None

    def refuse(self, text: str, why: str) -> None:
        """Record that the agent may not continue with `text`; show the user `why`, once per series."""
        if not self._refused:
            self._refused = True
            self._journal.write("continuation_capped", most=self.most, text=preview(text))
            self._bus.publish(Notify(why))

    def by_prompt(self, text: str) -> None:
        """Record that the turn has ended and `text` follows as a prompt."""
        self._refused = False
        self._turn.will_continue(text)

    def by_reply(self, text: str, settle: Settle) -> Settle:
        """Record that the reply to a hook makes the agent continue with `text`.

        Return the function to call with the outcome of the reply. It calls `settle` once we know whether the
        agent read the reply.
        """
        self._refused = False
        self._turn.continue_with(text)
        self._journal.write("continued", times=self._turn.continuations, most=self.most)

        def printed(outcome: ReplyOutcome) -> None:
            if outcome is not ReplyOutcome.PRINTED:
                settle(outcome)
                return
            self.proved(True)
            self._unproved = settle
            self._bus.loop.call_later(PROOF, self._look, settle)

        return printed

    def proved(self, read: bool) -> None:
        """Settle the last reply: the agent has read it or, if not `read`, we will never know."""
        settle, self._unproved = self._unproved, None
        if settle is not None:
            settle(ReplyOutcome.PRINTED if read else ReplyOutcome.UNKNOWN)

    def _look(self, settle: Settle) -> None:
        if self._unproved is not settle:
            return
        ready = self._state.look() == Readiness.READY
        self.proved(not ready)
        if ready:
            self._turn.end()
            self._bus.publish(EvidenceChanged())
