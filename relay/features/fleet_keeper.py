"""Starts fleet agents that are due and have no session yet.

Only the session that holds the home's lock does this; when it ends, another session takes the lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from relay.clock import until_tick
from relay.control.fleet_status import FleetStatus
from relay.control.sessions import claims
from relay.errors import RelayError
from relay.eventbus import EventBus, answers
from relay.home import Home
from relay.lifecycle import SessionClosed
from relay.names import key
from relay.storage.journal import Journal
from relay.storage.locks import open_lock, try_lock
from relay.supervision import fleet_file
from relay.supervision.due import due
from relay.supervision.records import Records

_log = logging.getLogger(__name__)

SCHEDULE_CHECK_EVERY = 30.0
"""Seconds between two checks for agents that are due: schedules have a precision of a minute."""


class FleetKeeper:
    """Looks after the fleets of a home, every `look` seconds."""

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        home: Home,
        *,
        look: float = SCHEDULE_CHECK_EVERY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._home = home
        self._look = look
        self._clock = clock
        self._lock = -1
        self._held = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(until_tick(self._look))
            if self._take():
                try:
                    await self._start_due()
                except (OSError, RuntimeError, RelayError) as error:  # no process or thread can be created
                    _log.warning("fleets: %s; trying again", error)

    async def _start_due(self) -> None:
        for path, names in (await asyncio.to_thread(self._due)).items():
            self._journal.write("fleet_due", fleet=str(path), agents=names)
            await asyncio.to_thread(self._start, path)

    def _take(self) -> bool:
        """Take the lock if no other session has it; return True if this session holds it."""
        try:
            if self._lock < 0:
                self._lock = open_lock(self._home.run / "fleets.lock")
            self._held = self._held or try_lock(self._lock)
        except (OSError, RelayError):
            return False  # the next look retries
        return self._held

    def _due(self) -> dict[Path, list[str]]:
        """Return the agents that are due, by fleet file; skip files that are invalid or not trusted."""
        records = Records(self._home).all()
        running = {(key(claim.team), key(claim.name)) for claim in claims(self._home)}
        found = {}
        for path in {Path(record.fleet) for record in records if record.fleet and record.wanted == "up"}:
            try:
                fleet = fleet_file.load(self._home, path.parent, path)
            except RelayError:
                continue
            team = key(fleet.team)
            own = {key(record.name): record for record in records if key(record.team) == team}
            there = {name for other, name in running if other == team}
            now = self._clock()
            if due(fleet, own, there, now) and (names := FleetStatus.now(self._home, fleet).due(now)):
                found[path] = names
        return found

    def _start(self, path: Path) -> None:
        """Start the agents that are due with `relay up`, in a process that outlives this one."""
        subprocess.run(
            [sys.executable, "-P", "-m", "relay", "up", "--due", "-f", path],
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        if self._lock >= 0:
            os.close(self._lock)
