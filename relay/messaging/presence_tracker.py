"""Notes the presences of a team in the ledger of this home.

an announcement ─→ roster, now ─→ ledger: when it was seen, its channels, what waits for it to appear
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from relay import names
from relay.errors import LedgerError
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.storage.locks import is_held
from relay.storage.sqlite import Writer
from relay.transport.name_claims import is_present
from relay.transport.presence import Presence, PresenceRoster

SEEN_EVERY = 3600.0
"""Seconds between two notes in the ledger that an agent is online."""


@dataclass(eq=False, slots=True)
class PresenceTracker:
    """The presences of `team`, as `name` of this home hears them.

    origin: the id of this home's ledger. roster: the presences that were heard.
    """

    home: Home
    ledger: Writer[Ledger]
    team: str
    name: str
    origin: str
    roster: PresenceRoster
    # When each agent was last noted; seconds, monotonic.
    _noted: dict[str, float] = field(default_factory=dict, init=False)

    async def note(self, name: str) -> None:
        """Note in the ledger, to the hour, that `name` is online. Raise LedgerError."""
        if self._is_news(name, 0.0):
            await self.ledger.run(lambda ledger: ledger.registry.register(self.team, name))
            self._noted[names.key(name)] = time.monotonic()

    async def hear(self, heard: Presence, *, retained: bool) -> bool:
        """Take an announcement of another agent; return True if it has just appeared. Raise LedgerError.

        retained: the broker had kept it, and its own time gives its age.
        """
        age = max(0.0, time.time() - heard.seen) if retained or not heard.online else 0.0
        news = self._is_news(heard.name, age)
        elsewhere = heard.home != self.origin
        # A will has the channels of the time when its agent connected, and listeners know better.
        joined = elsewhere and (heard.online or retained)
        died = not heard.online and not elsewhere
        appeared = self.roster.hear(heard, retained=retained)

        def note(ledger: Ledger) -> None:
            if news:
                ledger.registry.register(self.team, heard.name, ledger.now() - age)
            if joined:
                ledger.channels.heard(self.team, heard.name, heard.channels)
            if died:
                self.recover_dead(ledger)
            if appeared:
                ledger.outbox.appeared(self.team, heard.name, self.name, heard.home or None)

        if news or joined or died or appeared:
            try:
                await self.ledger.run(note)
            except LedgerError:
                if appeared:  # it must be noted before anything is published to its present home
                    self.roster.forget(heard.name)
                raise
        if news:
            self._noted[names.key(heard.name)] = time.monotonic() - age
        return appeared

    def _is_news(self, name: str, age: float) -> bool:
        seen = time.monotonic() - age
        return seen - self._noted.get(names.key(name), float("-inf")) >= SEEN_EVERY

    def recover_dead(self, ledger: Ledger) -> None:
        """Settle what sessions of this home were typing when they died; a ledger's job.

        Not while the agent's shim lives: the next session sees what became of the text.
        """
        for name in ledger.inbox.begun(self.team):
            if not (self._is_here(name) or is_held(self.home.agent_lock(self.team, name))):
                ledger.inbox.recover(self.team, name)

    def limit_channels(self, ledger: Ledger) -> None:
        """Expire what has waited too long in channels for members that are away; a ledger's job."""
        there = self.roster.now()
        ledger.channels.limit(self.team, lambda name: not (there.online(name) or self._is_here(name)))

    def online(self, name: str) -> bool:
        """Return True if `name` was heard to be online."""
        return self.roster.online(name)

    async def everybody(self) -> list[Presence]:
        """Return everybody known in the team, by name. For agents of this home this is always up to date."""

        def known(ledger: Ledger) -> list[Presence]:
            return [
                replace(each, online=each.online or self._is_here(each.name))
                for each in self.roster.now().list(ledger.registry.known(self.team))
            ]

        return await self.ledger.run(known)

    def _is_here(self, name: str) -> bool:
        return is_present(self.home, self.team, name)
