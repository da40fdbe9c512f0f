"""The user's inbox, as one session serves it: keeps this agent's items, and passes on those of the home.

AddItem, EndItem ─→ InboxWriter ─→ ledger (messaging/user_inbox) ─→ Pusher ─→ sinks: desktop, ntfy, ...
                        └→ UnreadCounted ─→ the terminal's title and its help
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from relay import names
from relay.clock import until_tick
from relay.errors import LedgerAway, RelayError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Identity, SessionSettling
from relay.messaging import sinks
from relay.messaging.events import (
    AddItem,
    ClientOpened,
    EndItem,
    MessageExchanged,
    UnreadCounted,
    current_client,
)
from relay.messaging.sinks import Sinks
from relay.messaging.user_inbox import SETTLES, SINGLE, Item, UserInbox
from relay.redaction import Redactor
from relay.storage.journal import Journal
from relay.terminal.events import AttachmentChanged

COUNT_EVERY = 5.0
"""Seconds between two counts of the unread items, while somebody sees the number."""

PUSH_EVERY = 15.0
"""Seconds between two looks for items that other processes have added, or whose push is to be repeated."""

MOST = 100
"""The newest items of an agent that are kept for a ledger that is opened later."""

LEDGER_RETRY = 0.2
"""Seconds between two attempts to write to a ledger that is locked, or being opened."""

WRITTEN = 0.3
"""Seconds allowed until an item is in the ledger, from where it is pushed."""

LAST_WORDS = 3.0
"""Seconds that an ending session waits for the ledger, and for the sinks: its last item says how the agent
ended."""

T = TypeVar("T")


async def _ledger(bus: EventBus, job: Callable[[UserInbox], T]) -> T:
    return await (await current_client(bus)).ask(lambda ledger: job(ledger.user_inbox))


class InboxWriter:
    """Writes the items of one agent to the ledger; without one, it keeps them until there is one."""

    def __init__(self, bus: EventBus, redactor: Redactor, session: Identity) -> None:
        self._bus = bus
        self._redactor = redactor
        self._its = (session.team, session.name)
        self._waiting: list[AddItem] = []  # what waits, for a ledger that is opened later
        self._jobs: asyncio.Queue[Callable[[UserInbox], object]] = asyncio.Queue()
        self._watched = False
        self._unread = -1  # not counted yet

    @handles(AddItem)
    def add(self, event: AddItem) -> None:
        self._forget(event.kind, None if event.kind in SINGLE else event.text)
        self._waiting = [*self._waiting, event][-MOST:]
        self._put(event)

    @handles(EndItem)
    def end(self, event: EndItem) -> None:
        self._forget(event.kind, event.text)
        text = None if event.text is None else self._redactor.redact(event.text)
        self._jobs.put_nowait(lambda inbox: inbox.end(*self._its, event.kind, text))

    def _forget(self, kind: str, text: str | None) -> None:
        self._waiting = [each for each in self._waiting if each.kind != kind or text not in {None, each.text}]

    def _put(self, item: AddItem) -> None:
        text = self._redactor.redact(item.text)
        self._jobs.put_nowait(
            lambda inbox: inbox.add(*self._its, item.kind, text, quiet=item.quiet, lasts=item.lasts)
        )

    @handles(ClientOpened)
    def opened(self, _: ClientOpened) -> None:
        """Write all again: the ledger may be another one, and it has ended what an earlier session added."""
        for item in self._waiting:
            self._put(item)

    @handles(AttachmentChanged)
    def attached(self, event: AttachmentChanged) -> None:
        self._watched = event.watched
        if event.watched:
            self._jobs.put_nowait(UserInbox.unread)

    async def run(self) -> None:
        """Write what comes, and count what is unread while a terminal shows the number, until cancelled."""
        while True:
            job = None
            with suppress(TimeoutError):
                async with asyncio.timeout(until_tick(COUNT_EVERY) if self._watched else None):
                    job = await self._jobs.get()
            try:
                if job is not None:
                    await self._run(job)
                if not self._watched or not self._jobs.empty():
                    continue
                unread = await self._run(UserInbox.unread)
            except RelayError:
                continue  # reported by the connection, which publishes ClientOpened when it is over
            finally:
                if job is not None:
                    self._jobs.task_done()
            if unread != self._unread:
                self._unread = unread
                self._bus.publish(UnreadCounted(unread))

    async def _run(self, job: Callable[[UserInbox], T]) -> T:
        """Run `job` as soon as the ledger is not locked."""
        while True:
            try:
                return await _ledger(self._bus, job)
            except LedgerAway:
                await asyncio.sleep(LEDGER_RETRY)

    @answers(SessionSettling)
    async def settle(self, _: SessionSettling, __: object) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._jobs.join()


class Pusher:
    """Gives each unread item of the home to each sink, once; whichever session comes first does it.

    The desktop is that of this session's user, so it gets only the items of this session's agent.
    """

    def __init__(
        self, bus: EventBus, journal: Journal, redactor: Redactor, session: Identity, user_sinks: Sinks
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._redactor = redactor
        self._its = (session.team, session.name)
        self._sinks = user_sinks
        self._failing: dict[str, str] = {}  # by sink: the notice about it
        self._news = asyncio.Event()
        self._pushing = asyncio.Lock()

    @handles(AddItem)
    def added(self, event: AddItem) -> None:
        if not event.quiet:
            self._news.set()

    @handles(MessageExchanged)
    def sent(self, event: MessageExchanged) -> None:
        if names.same(event.message.to, names.PERSON):
            self._news.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(until_tick(PUSH_EVERY)):
                    await self._news.wait()
                self._news.clear()  # what comes now gets a wait of its own
                await asyncio.sleep(SETTLES + WRITTEN)
            await self._push_all()

    @answers(SessionSettling)
    async def settle(self, _: SessionSettling, __: object) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._push_all(settled=True)

    async def _push_all(self, *, settled: bool = False) -> None:
        with suppress(RelayError):  # there is no ledger; the items wait
            async with self._pushing:
                await asyncio.gather(*(self._push_to(sink, settled) for sink in self._sinks.names))

    async def _push_to(self, sink: str, settled: bool) -> None:
        agent = self._its if sink == sinks.DESKTOP else None

        def due(inbox: UserInbox) -> Item | None:
            return inbox.next_push(sink, agent, settled=settled)

        while (item := await _ledger(self._bus, due)) is not None:
            why = await sinks.push(self._sinks, sink, item, self._redactor)
            succeeded = not why or sink == sinks.DESKTOP  # a desktop that is not there stays so
            await _ledger(self._bus, partial(UserInbox.pushed, id=item.id, sink=sink, succeeded=succeeded))
            if why:
                self._journal.write("notification", sink=sink, shown=False, reason=why)
            self._tell(sink, "" if succeeded else f"The sink {sink} of your inbox fails: {why}")

    def _tell(self, sink: str, text: str) -> None:
        """Put a lasting failure into the inbox, quietly, until it is over."""
        before = self._failing.get(sink, "")
        if text != before:
            self._failing[sink] = text
            if before:
                self._bus.publish(EndItem("notice", before))
            if text:
                self._bus.publish(AddItem("notice", text, quiet=True))
