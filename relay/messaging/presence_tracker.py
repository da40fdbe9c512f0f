"""Who is in the team and who of them is there: what is announced, noted in the ledger of this home.

an announcement ─→ roster, now ─→ ledger: when it was seen, its channels, what waits for it to appear
"""

from __future__ import annotations

import time
from dataclasses import replace

from relay import names
from relay.errors import LedgerError
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.storage.sqlite import Writer
from relay.transport.name_claims import is_present
from relay.transport.presence import Presence, Roster

SEEN_EVERY = 3600.0
"""Seconds between two notes in the ledger that somebody is still there."""


class PresenceTracker:
    """The presences of `team`, as `name` of this home hears them.

    origin: the id of this home's ledger. roster: keeps what is heard.
    """

    def __init__(
        self, home: Home, ledger: Writer[Ledger], team: str, name: str, origin: str, roster: Roster
    ) -> None:
        self._home = home
        self._ledger = ledger
        self._team = team
        self._name = name
        self._origin = origin
        self._roster = roster
        self._noted: dict[str, float] = {}  # when who was last noted to be there; seconds, monotonic

    async def note(self, name: str) -> None:
        """Note in the ledger, to the hour, that `name` is there. Raise LedgerError."""
        if self._is_news(name, 0.0):
            await self._ledger.run(lambda ledger: ledger.registry.register(self._team, name))
            self._noted[names.key(name)] = time.monotonic()

    async def hear(self, heard: Presence, *, retained: bool) -> bool:
        """Take an announcement of another agent; True if it has just appeared. Raise LedgerError.

        retained: the broker had kept it, and its own time says how old it is.
        """
        age = max(0.0, time.time() - heard.seen) if retained or not heard.online else 0.0
        news = self._is_news(heard.name, age)
        elsewhere = heard.home != self._origin
        # A will says what was so when its agent connected, and whoever listened knows better.
        joined = elsewhere and (heard.online or retained)
        died = not heard.online and not elsewhere
        appeared = self._roster.hear(heard, retained=retained)

        def note(ledger: Ledger) -> None:
            if news:
                ledger.registry.register(self._team, heard.name, ledger.now() - age)
            if joined:
                ledger.channels.heard(self._team, heard.name, heard.channels)
            if died:
                self.recover_dead(ledger)
            if appeared:
                ledger.outbox.appeared(self._team, heard.name, self._name, heard.home or None)

        if news or joined or died or appeared:
            try:
                await self._ledger.run(note)
            except LedgerError:
                if appeared:  # it must be noted before anything is published to where it is now
                    self._roster.forget(heard.name)
                raise
        if news:
            self._noted[names.key(heard.name)] = time.monotonic() - age
        return appeared

    def _is_news(self, name: str, age: float) -> bool:
        seen = time.monotonic() - age
        return seen - self._noted.get(names.key(name), float("-inf")) >= SEEN_EVERY

    def recover_dead(self, ledger: Ledger) -> None:
        """Have the senders know of what sessions of this home were typing when they died; a ledger's job."""
        for name in ledger.inbox.begun(self._team):
            if not is_present(self._home, self._team, name):
                ledger.inbox.recover(self._team, name)

    def limit_channels(self, ledger: Ledger) -> None:
        """Leave out what has waited too long in channels for members that are away; a ledger's job."""
        there = self._roster.now()
        ledger.channels.limit(
            self._team,
            lambda name: not (there.online(name) or is_present(self._home, self._team, name)),
        )

    def online(self, name: str) -> bool:
        """Return True if `name` was heard to be there."""
        return self._roster.online(name)

    async def everybody(self) -> list[Presence]:
        """Return everybody known in the team, by name; those of this home as they are, whatever was heard."""

        def known(ledger: Ledger) -> list[Presence]:
            return [
                replace(each, online=each.online or is_present(self._home, self._team, each.name))
                for each in self._roster.now().list(ledger.registry.known(self._team))
            ]

        return await self._ledger.run(known)
