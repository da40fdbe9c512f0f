"""Dismisses the dialog that reports the agent's limit, while supervision waits for the reset.

PhaseEntered(WAITING) ─┬→ the dialog stays for a moment, the user types nothing ─→ its key, DialogDismissed
StateChanged ──────────┘

Nothing can be typed while the dialog is open, not even the nudge after the reset. The key chooses nothing, so
the dialog's question stays open.
"""

from __future__ import annotations

import asyncio

from relay.agents.profile import DismissKey, Profile
from relay.clock import Clock
from relay.eventbus import EventBus, handles
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import DialogDismissed, StateChanged
from relay.state.readiness import Readiness
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.supervision.events import PhaseEntered
from relay.supervision.states import Phase
from relay.terminal.events import AgentExited, KeysTyped

STABLE_FOR = 0.4
"""Seconds that the dialog must stay drawn: less than a question for the user (relay.features.attention)."""

_KEYS: dict[DismissKey, bytes] = {"esc": b"\x1b"}


class LimitDialog:
    """Dismisses the dialogs for which the agent's profile names a key, once each time they are drawn."""

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        profile: Profile,
        terminal: AgentTerminal,
        state: AgentState,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._keys = {rule.name: _KEYS[rule.dismiss] for rule in profile.states if rule.dismiss}
        self._terminal = terminal
        self._state = state
        self._clock = clock or Clock()
        self._drawn = ""  # the rule of the dialog on the screen; "" if none, or already handled
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None

    @handles(PhaseEntered)
    def entered(self, event: PhaseEntered) -> None:
        self._waits = event.phase is Phase.WAITING
        self._look()

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        prompting = event.verdict is not None and event.verdict.state is Readiness.PROMPTING
        rule = event.verdict.rule if event.verdict is not None and prompting else ""
        self._drawn = rule if rule in self._keys else ""
        self._look()

    @handles(KeysTyped, AgentExited)
    def leave(self, _: object) -> None:
        """Leave the dialog to the user, who has begun to answer it."""
        self._drawn = ""
        self._look()

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waits and self._drawn:
            self._timer = self._clock.later(STABLE_FOR, self._dismiss)

    def _dismiss(self) -> None:
        self._timer, rule, self._drawn = None, self._drawn, ""
        self._state.look()
        verdict = self._state.verdict
        if verdict is not None and verdict.rule == rule:
            self._journal.write("dismissed", rule=rule, lines=list(verdict.lines))
            self._terminal.write(self._keys[rule])
            self._bus.publish(DialogDismissed())
