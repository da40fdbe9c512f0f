"""Listens to the presences of a team: one session of a home records them in the ledger for all.

    RUN/listeners/TEAM.0.lock: taken ─→ subscribes to all presences ─→ presence_tracker ─→ ledger, doorbells
                               held  ─→ hears its own name only, until the holder ends

However the holder ends, the kernel releases its lock, and another session takes it at its next check.
The holder touches the lock while it works; if it hangs (a session can), the next session takes
RUN/listeners/TEAM.1.lock and listens too: writing the same presence twice does no harm.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from relay import names
from relay.clock import until_tick
from relay.dataclass import dataclass, field
from relay.errors import LedgerError
from relay.home import private_directory
from relay.messaging.presence_tracker import Heard, PresenceTracker
from relay.storage.locks import is_held, open_lock, try_lock
from relay.transport import topics
from relay.transport.mqtt import MqttTransport
from relay.transport.presence import Presence

LISTENER_CHECK_EVERY = 5.0
"""Approximate seconds between two checks whether a listener works, and between its signs of life."""

HANGS = 15.0
"""Seconds without a sign of life after which a listener counts as hung."""

REQUEST_AGAIN_AFTER = 4.0
"""Seconds after which a new listener requests the retained announcements again: one may slip through between
the retained and the live ones, and would go unnoticed until the next."""

WRITE_EVERY = 0.1
"""Seconds between two writes of announcements: one agent's flood must not keep the ledger busy."""

_RETRY = 1.0  # seconds until a failed write to the ledger is retried
_LISTENERS = 5  # maximum for one team at a time; all but the last hang


@dataclass(eq=False, slots=True)
class PresenceListener:
    """Listens, or stands by, for one messaging client.

    own_boot: returns the boot id of the client's current connection.
    trouble:  called with each error of a ledger that cannot record an announcement.
    unheard:  called when an agent has appeared for which a sender without a session has messages.
    """

    tracker: PresenceTracker
    own_boot: Callable[[], str]
    trouble: Callable[[LedgerError], None]
    unheard: Callable[[], None]
    _lock: int | None = None  # the lock's file descriptor, while this client listens
    # The latest announcement of each kind that is not recorded yet: by name, whether online, and retained.
    _arrived: dict[tuple[str, bool, bool], Heard] = field(default_factory=dict, init=False)
    _came: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # The last sign of life of each listener, and when it was first seen; seconds, monotonic.
    _signs: dict[int, tuple[int, float]] = field(default_factory=dict, init=False)

    @property
    def listening(self) -> bool:
        return self._lock is not None

    @property
    def informed(self) -> bool:
        """True once all presences that the broker had retained are recorded."""
        path = self._path(0)
        return is_held(path) and path.stat().st_size > 0

    async def begin(self, transport: MqttTransport) -> None:
        """Subscribe to this client's topics over `transport`; call `run` or `end` afterwards."""
        await self._subscribe(transport, own=not self._take())

    async def run(self, transport: MqttTransport) -> None:
        """Listen or stand by, until cancelled. Raise BrokerError."""
        while self._lock is None:
            await asyncio.sleep(until_tick(LISTENER_CHECK_EVERY))
            if self._take():
                await self._subscribe(transport, own=False)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write())
            tasks.create_task(self._repeat(transport))
            while True:
                os.utime(self._lock)
                await asyncio.sleep(until_tick(LISTENER_CHECK_EVERY))

    def end(self) -> None:
        """Stop listening: the connection is lost."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None
        self._arrived.clear()

    def hear(self, heard: Presence, *, retained: bool) -> None:
        """Record an announcement soon, if this client listens for its home."""
        if self.listening:
            kind = names.key(heard.name), heard.online, retained
            self._arrived.pop(kind, None)  # the new one comes behind the others
            self._arrived[kind] = Heard(heard, retained, max(0.0, time.time() - heard.seen))
            self._came.set()

    async def _subscribe(self, transport: MqttTransport, *, own: bool) -> None:
        team, name = self.tracker.team, self.tracker.name
        filters = topics.presence(team, name), topics.presence_filter(team)
        # QoS 0, so the broker queues no presences in the mailbox while this agent is away.
        await transport.subscribe(filters[not own], 0)
        # It may date from this connection or an earlier one: a broker keeps subscriptions with the mailbox.
        await transport.unsubscribe(filters[own])

    async def _repeat(self, transport: MqttTransport) -> None:
        await asyncio.sleep(REQUEST_AGAIN_AFTER)
        await self._subscribe(transport, own=False)

    async def _write(self) -> None:
        """Record announcements as they arrive, those of WRITE_EVERY at once."""
        while True:
            await self._came.wait()
            self._came.clear()
            batch = [*self._arrived.values()]
            self._arrived.clear()
            while True:
                try:
                    if not await self.tracker.hear(*batch):
                        self.unheard()
                    break
                except LedgerError as error:
                    self.trouble(error)
                    await asyncio.sleep(_RETRY)
            # The broker sends what it retained before its copy of our announcement, made after we subscribed.
            own = self.own_boot()
            informed = any(each.presence.boot == own and not each.retained for each in batch)
            if informed and self._lock is not None and not os.fstat(self._lock).st_size:
                os.write(self._lock, b"informed\n")
            await asyncio.sleep(WRITE_EVERY)

    def _take(self) -> bool:
        """Return True if this client must listen: no other client does, or all that do hang."""
        now = asyncio.get_running_loop().time()
        for place in range(_LISTENERS):
            path = self._path(place)
            private_directory(path.parent)
            descriptor = open_lock(path)
            if try_lock(descriptor):
                os.ftruncate(descriptor, 0)
                self._lock = descriptor
                return True
            sign = os.fstat(descriptor).st_mtime_ns
            os.close(descriptor)
            known, since = self._signs.get(place, (None, now))
            if known != sign:
                since = now
            self._signs[place] = sign, since
            if now - since < HANGS:
                return False
        return False

    def _path(self, place: int) -> Path:
        tracker = self.tracker
        bus = f"{tracker.bus}." if tracker.bus else ""
        return tracker.home.run / "listeners" / f"{topics.level(tracker.team)}.{bus}{place}.lock"
