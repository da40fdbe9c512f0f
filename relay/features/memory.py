"""Tells the user at the start of a session if memory is unavailable, and closes the store at the end."""

from __future__ import annotations

import asyncio

from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import SessionBegan, SessionClosed
from relay.memory.store import MemoryStore
from relay.tasks import Tasks
from relay.terminal.events import Notify


class MemoryFeature:
    """Checks `store` at the beginning, and closes it at the end. Handlers reach it through their context.

    store: the error if there is none; a mistake in the settings was reported along with the settings.
    """

    def __init__(self, bus: EventBus, tasks: Tasks, store: MemoryStore | RelayError) -> None:
        self._bus = bus
        self._tasks = tasks
        self._store = store

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if isinstance(self._store, MemoryStore):
            self._tasks.spawn(self._check(self._store), "memory")

    async def _check(self, store: MemoryStore) -> None:
        try:
            await asyncio.to_thread(store.check)
        except RelayError as error:
            self._bus.publish(Notify(f"{error} The agent keeps running without memory."))

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        if isinstance(self._store, MemoryStore):
            await asyncio.to_thread(self._store.close)
