"""Restores what an agent's earlier sessions knew, before the features of this one begin.

SessionBegan ─→ the restored parts read notes, the agent's record and the ring, and nobody else gets an event
OutputRestored ─→ the other features get SessionBegan and the current state, and all of them SessionResumed
"""

from __future__ import annotations

import asyncio

from relay.directives.directive import Directive
from relay.directives.events import AgentSaid, EarlierWords, SessionResumed
from relay.eventbus import EventBus, handles
from relay.terminal.events import KeysTyped, OutputRestored

KEYS = 64
"""Bytes that the user typed last, for SessionResumed."""


class Restoration:
    """Collects what the restored parts find, and publishes it once. over: nothing is left to restore."""

    def __init__(self, bus: EventBus) -> None:
        self.over = asyncio.Event()
        self._bus = bus
        self._said: list[AgentSaid] = []
        self._directives: list[Directive] = []
        self._keys = b""
        if not bus.restoring:
            self.over.set()

    @handles(EarlierWords)
    def words(self, event: EarlierWords) -> None:
        if self._bus.restoring:
            self._said += event.said
            self._directives += event.directives

    @handles(KeysTyped)
    def typed(self, event: KeysTyped) -> None:
        if self._bus.restoring:
            self._keys = (self._keys + event.data)[-KEYS:]

    @handles(OutputRestored)
    def end(self, _: OutputRestored) -> None:
        self._bus.restored()
        self._bus.publish(SessionResumed(tuple(self._said), tuple(self._directives), self._keys))
        self._said, self._directives = [], []
        self.over.set()
