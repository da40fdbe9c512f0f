"""Writes the presences of a team to the ledger of this home, and reads them from there.

announcement ─→ ledger: which agents are online, when seen, channels, waiting mail ─→ the senders' bells
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from relay import names
from relay.home import Home
from relay.messaging.attendance import Attendance
from relay.messaging.doorbell import ring
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import Owner, end_gone
from relay.storage.locks import is_held
from relay.storage.sqlite import Writer
from relay.transport.name_claims import is_present
from relay.transport.presence import Presence


def is_alive(home: Home, team: str, name: str) -> bool:
    """Return True if an agent of `home` has the name, even while its session is being replaced."""
    return is_present(home, team, name) or is_held(home.agent_lock(team, name))


@dataclass(frozen=True, slots=True)
class Heard:
    """An announcement as it arrived. retained: the broker had kept it; age: seconds, by its timestamp."""

    presence: Presence
    retained: bool
    age: float


@dataclass(eq=False, slots=True)
class PresenceTracker:
    """The presences of `team` on the broker `bus`, for `name` of this home.

    origin: the id of this home's ledger.
    """

    home: Home
    ledger: Writer[Ledger]
    bus: str
    team: str
    name: str
    origin: str

    async def arrive(self, owner: str | None) -> None:
        """Record that this client's agent has its name. Raise LedgerError."""
        await self.ledger.run(lambda ledger: ledger.arrive(self.team, self.name, owner))

    async def leave(self) -> None:
        """Send the messages for this client's agent to the home in which its name is. Raise LedgerError."""

        def leave(ledger: Ledger) -> set[str]:
            where = self.attendance(ledger).home(self.name) or None
            return {*ledger.move_away(self.team, self.name, where)}

        for sender in await self.ledger.run(leave):
            ring(self.home, self.team, sender)

    async def begin(self) -> None:
        """Record which agents of this home left while no session listened. Raise LedgerError."""

        def begin(ledger: Ledger) -> None:
            self.attendance(ledger).leave(self.origin, self._is_here)
            self._end(ledger)

        await self.ledger.run(begin)

    async def hear(self, *batch: Heard) -> bool:
        """Record announcements, and ring the bells of senders whose messages can proceed, or are settled.

        Return False if one of these senders has no session. Raise LedgerError if nothing was recorded.
        """
        concerned = await self.ledger.run(lambda ledger: self._note(ledger, batch))
        rung = [ring(self.home, self.team, sender) for sender in concerned]
        return all(rung)

    def _note(self, ledger: Ledger, batch: tuple[Heard, ...]) -> set[str]:
        concerned: set[str] = set()
        left = False
        for each in batch:
            heard = each.presence
            there = self.attendance(ledger)
            elsewhere = heard.home != self.origin
            ledger.registry.register(self.team, heard.name)
            # A will has the channels that its agent was in when it connected; listeners know better.
            if elsewhere and (heard.online or each.retained):
                ledger.channels.heard(self.team, heard.name, heard.channels)
            if not each.retained:
                heard = replace(heard, seen=time.time())
            appeared = there.hear(heard, each.age if each.retained else 0.0)
            # A late announcement from an earlier connection does not tell who owns the name now.
            if elsewhere and there.boot(heard.name) == heard.boot:
                self._note_owner(ledger, heard)
            seen = (heard.home or None, heard.owner or None)
            if (
                elsewhere
                and heard.home
                and there.home(heard.name) == heard.home
                and (appeared or ledger.registry.is_here(self.team, heard.name))
                and not self.is_alive(self.team, heard.name)  # or it was ending when the other one appeared
            ):
                concerned.update(ledger.move_away(self.team, heard.name, *seen))
            elif appeared:
                concerned.update(ledger.transit.appeared(self.team, heard.name, *seen))
            left = left or not heard.online
        if left:
            self._end(ledger)
            concerned.update(ledger.outbox.untold(self.team))
        return concerned

    def _end(self, ledger: Ledger) -> None:
        """Settle the mail of ended agents of this home."""
        self.recover_dead(ledger)
        end_gone(ledger.owners, self.is_alive)

    def _note_owner(self, ledger: Ledger, heard: Presence) -> None:
        """Record the owner of a name in another home, unless an agent of this home has it."""
        if not heard.owner or self.is_alive(self.team, heard.name):
            return
        known, _ = ledger.owners.of(self.team, heard.name)
        if known is None or heard.online or (heard.over and known != heard.owner):
            ledger.owners.take(self.team, heard.name, Owner(heard.owner), here=False)
        if heard.over:
            ledger.owners.end(self.team, heard.name, heard.owner)

    def attendance(self, ledger: Ledger) -> Attendance:
        """Return the attendance; call it within a ledger job."""
        return ledger.attendance(self.bus, self.team)

    def there(self, ledger: Ledger, name: str) -> bool:
        """Return True if `name` is online (heard recently, or of this home); call it within a ledger job."""
        return self.attendance(ledger).there(name) or self.is_alive(self.team, name)

    def recover_dead(self, ledger: Ledger) -> None:
        """Settle the messages that sessions of this home were typing when they died; a ledger job.

        Skip agents whose shim lives: their next session sees the outcome.
        """
        for name in ledger.inbox.begun(self.team):
            if not self.is_alive(self.team, name):
                ledger.inbox.recover(self.team, name)

    def limit_channels(self, ledger: Ledger) -> None:
        """Expire the surplus channel messages that wait for absent members; a ledger job."""
        there = self.attendance(ledger)
        ledger.channels.limit(self.team, lambda name: not (there.online(name) or self._is_here(name)))

    async def everybody(self, name: str | None = None) -> list[Presence]:
        """Return all known agents of the team, by name, except finished runs.

        For agents of this home the result is always up to date.  name: return only this agent, which is much
        less work in a large team.
        """

        def known(ledger: Ledger) -> list[Presence]:
            if name is None:
                registered = ledger.registry.known(self.team)
            else:
                registered = [each for each in [ledger.registry.spelled(self.team, name)] if each is not None]
            everybody = self.attendance(ledger).roster(registered, name)
            ended = ledger.owners.ended(self.team)
            # No session may have heard the last agent of this home leave.
            return [
                replace(each, online=(each.online and each.home != self.origin) or self._is_here(each.name))
                for each in everybody
                if names.key(each.name) not in ended or self._is_here(each.name)
            ]

        return await self.ledger.run(known)

    def is_alive(self, team: str, name: str) -> bool:
        """Return True if an agent of this home has the name, even while its session is being replaced."""
        return is_alive(self.home, team, name)

    def _is_here(self, name: str) -> bool:
        return is_present(self.home, self.team, name)
