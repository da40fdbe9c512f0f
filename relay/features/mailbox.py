"""The mailbox: gives the agent the messages that wait in the ledger, and records their outcomes there.

MessagingClient ─ message → Inject ─ typed, or in a hook's reply → MessagingClient ─ receipt → the sender

The ledger is authoritative. The mailbox takes messages from it in order, up to a window per sender; urgent
ones do not wait for the window. It reads the ledger at the start, when the window has room again, and
periodically, in case a message was missed; in between it takes new ones from MessageStored. All its work on
the ledger runs in one queue.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from relay import names
from relay.backoff import Backoff
from relay.clock import until_tick
from relay.errors import LedgerError, RelayError
from relay.eventbus import EventBus, answers, handles
from relay.hooks import events
from relay.injection.events import (
    EarlierInjectionEnded,
    Inject,
    InjectionDeferred,
    InjectionEnded,
    MayBegin,
    Withdraw,
)
from relay.injection.injection import THE_USER, Injection, Outcome, Result
from relay.lifecycle import Describe, SessionClosed, SessionReady
from relay.message import Message, Priority, State
from relay.messaging.events import (
    ClientOpened,
    InHand,
    MessageExchanged,
    MessageGiven,
    MessageStored,
    current_client,
    handler_fields,
    journal_fields,
)
from relay.state.readiness import QUOTED, Readiness, Verdict
from relay.storage.journal import Journal
from relay.tasks import Tasks
from relay.terminal.events import Notify
from relay.text import count

if TYPE_CHECKING:
    from relay.messaging.client import MessagingClient

STATES = {
    Result.INJECTED: State.INJECTED,
    Result.UNCERTAIN: State.UNCERTAIN,
    Result.REJECTED: State.REJECTED,
}
"""The state in the receiver's ledger for each result; a message that was never typed stays stored."""

LEDGER_RETRY = Backoff(1.0, 30.0)
"""The waits between two attempts to read a ledger that cannot be read."""

WINDOW = 64
"""Messages of one sender that the injector has at a time; urgent ones may exceed it."""

ANYBODY = "*"
"""In place of a sender's key, while it is unknown whose messages the ledger holds."""

LEDGER_CHECK_EVERY = 5.0
"""Seconds between two checks for changes that another process made in the ledger."""

A_WAIT = 0.1
"""Seconds after which a message counts as waiting: a ready agent gets it sooner."""

HELD = 20.0
"""Seconds after which relay tells the user about a dialog on the screen that may only be a quotation."""

SWEEP = 30.0
"""Seconds after which the ledger is read even if nothing in it has changed."""

CLOSING = 2.0
"""Seconds that a closing session waits for the ledger."""

T = TypeVar("T")


class Mailbox:
    """Delivers the messages for one agent. verdict: says why they have to wait."""

    def __init__(self, bus: EventBus, tasks: Tasks, journal: Journal, verdict: Callable[[], Verdict]) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._given: dict[str, Message] = {}  # the messages that the injector has
        self._unsettled: dict[str, tuple[Injection, Outcome]] = {}  # outcomes not in the ledger yet
        self._put_back: set[str] = set()  # messages that wait again, not recorded in the ledger yet
        self._collecting = False
        self._behind = set[str]()  # senders (keys) with possibly more messages in the ledger, or ANYBODY
        self._taken = Counter[str]()  # by sender (key): how many of _given are not urgent
        self._version: int | None = None  # of the ledger, at the last look
        self._swept = time.monotonic()
        self._shown = _Shown(bus, verdict, self._waits)

    async def run(self) -> None:
        """Check the ledger every LEDGER_CHECK_EVERY seconds until cancelled."""
        while True:
            await asyncio.sleep(until_tick(LEDGER_CHECK_EVERY))
            await self._ordered(self._look())

    @handles(ClientOpened)
    def use(self, _: ClientOpened) -> None:
        self._version = None
        self._queue(self._use())

    @handles(SessionReady)
    def collect(self, _: SessionReady) -> None:
        self._queue(self._collect())

    @handles(MessageStored)
    def arrived(self, event: MessageStored) -> None:
        self._queue(self._arrive(event.message))

    @handles(InjectionDeferred)
    def deferred(self, event: InjectionDeferred) -> None:
        """Record that a message that was about to be delivered waits again."""
        if event.injection.kind == "message":
            self._queue(self._defer(event.injection.id))

    @handles(InjectionEnded, EarlierInjectionEnded)
    def ended(self, event: InjectionEnded) -> None:
        if event.outcome.result is Result.UNTYPED:
            self._collecting = False  # the session has ended
        if event.injection.kind == "message":
            self._queue(self._end(event.injection, event.outcome))

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        if question.injection.kind == "message":
            await self._ordered(self._begin(question.injection.id, begins=question.begins))

    @answers(InHand)
    async def in_hand(self, _: InHand, __: object) -> frozenset[str]:
        return frozenset(self._given) | frozenset(self._unsettled)

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        """Record the outcome of each message before the ledger closes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await self._ordered(self._catch_up_or_say())

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        if not question.brief:
            await self._ordered(self._look())  # withdraw what no longer waits
        stored: int | None = None
        with suppress(RelayError):
            stored = len(await (await current_client(self._bus, wait=False)).stored())
        return {"waiting" if question.brief else "stored": stored}

    def _queue(self, work: Coroutine[Any, Any, object]) -> None:
        self._tasks.queue("the mailbox", work)

    async def _ordered(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` after everything queued; return its result, or raise its exception."""
        done: asyncio.Future[T] = self._bus.loop.create_future()

        async def do() -> None:
            try:
                value = await work
            except Exception as error:  # noqa: BLE001 (raised in the caller)
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(value)

        self._queue(do())
        return await done

    async def _client(self) -> MessagingClient:
        return await current_client(self._bus)

    async def _use(self) -> None:
        with suppress(RelayError):
            self._shown.others(await (await self._client()).left())
            await self._catch_up()
        if self._collecting:
            await self._collect()

    async def _collect(self, failures: int = 0) -> None:
        """Give the agent all stored messages, and from then on each new one.

        failures: how many times in a row the ledger could not be read.
        """
        self._collecting = True  # a message that arrives meanwhile is taken after this
        if not await self._taken_up():
            failures += 1
            retry = LEDGER_RETRY.wait(failures)
            self._bus.loop.call_later(retry, lambda: self._queue(self._collect(failures)))

    async def _look(self) -> None:
        """Take messages that another process stored, or that came while the ledger failed.

        Withdraw messages that were dropped or have expired.
        """
        if not self._collecting:
            return
        try:
            await self._catch_up()
            version = await (await self._client()).ask(lambda ledger: ledger.data_version())
            due = version != self._version or time.monotonic() >= self._swept + SWEEP
            if due and self._given:
                for id in self._given.keys() - await (await self._client()).stored():
                    self._bus.publish(Withdraw(id))
        except LedgerError as error:
            self._shown.trouble(error)
            return
        except RelayError:
            return  # no bus, as the user knows
        if (due or self._behind) and await self._taken_up():
            self._version = version

    async def _arrive(self, message: Message) -> None:
        """Give the injector a message that was just stored, unless older ones come first.

        Older messages are given already; if not (`_behind`), the ledger is read again.
        """
        if not self._collecting or self._has(message):
            return
        if message.priority is Priority.URGENT or not self._is_behind(message.sender):
            if self._fits(message):
                self._give(message)
                self._shown.watch(message)
            else:
                self._behind.add(names.key(message.sender))

    def _has(self, message: Message) -> bool:
        return message.id in self._given or message.id in self._unsettled

    def _fits(self, message: Message) -> bool:
        return message.priority is Priority.URGENT or self._taken[names.key(message.sender)] < WINDOW

    def _is_behind(self, sender: str) -> bool:
        return not self._behind.isdisjoint({names.key(sender), ANYBODY})

    async def _taken_up(self) -> bool:
        """Give the injector the next messages of the ledger; return False if the ledger cannot be read."""
        try:
            waiting = await (await self._client()).waiting(WINDOW)
        except LedgerError as error:
            self._behind.add(ANYBODY)
            self._shown.trouble(error)
            return False
        except RelayError:
            return True  # no bus, as the user knows; a new client triggers a read anyway
        found = Counter(names.key(each.sender) for each in waiting if each.priority is not Priority.URGENT)
        self._behind = {sender for sender, number in found.items() if number >= WINDOW}
        new = [message for message in waiting if not self._has(message)]
        for message in new:
            if self._fits(message):
                self._give(message)
            else:
                self._behind.add(names.key(message.sender))
        if new:
            self._shown.watch(new[0])
        self._swept = time.monotonic()
        self._shown.well()
        return True

    def _give(self, message: Message) -> None:
        self._given[message.id] = message
        if message.priority is not Priority.URGENT:
            self._taken[names.key(message.sender)] += 1
        self._journal.write("message_received", **journal_fields(message))
        self._bus.publish(MessageExchanged(message))
        self._bus.publish(events.MessageReceived(sender=message.sender, **handler_fields(message)))
        source = THE_USER if names.same(message.sender, names.PERSON) else message.sender
        injection = Injection(
            id=message.id,
            text=message.body,
            source=source,
            kind="message",
            channel=message.channel,
            priority=message.priority,
        )
        self._bus.publish(Inject(injection))

    def _waits(self, message: Message) -> Message | None:
        """Return `message` if it still waits, else the newest one that does, if any."""
        if not (self._collecting and self._given):
            return None
        return message if message.id in self._given else next(reversed(self._given.values()))

    async def _begin(self, id: str, *, begins: bool) -> None:
        """Record that delivery begins: if this session dies from here on, no session delivers it again.

        Raise MessageRefused if the message was dropped, and another RelayError if this must be retried.
        """
        try:
            await (await self._client()).injecting(id)
        except LedgerError as error:
            self._shown.trouble(error)
            raise
        self._shown.well()
        self._put_back.discard(id)
        self._bus.publish(MessageGiven(self._given[id], begins))

    async def _end(self, injection: Injection, outcome: Outcome) -> None:
        """Record the outcome of a message, or remember to do so later."""
        try:
            await self._settle(injection, outcome)
        except RelayError as error:
            self._unsettled[injection.id] = injection, outcome
            why = f"{error} A message of {injection.source} is {outcome.result}, and nobody learns it before."
            self._bus.publish(Notify(why))
        message = self._given.pop(injection.id, None)
        if message is None:
            return
        sender = names.key(message.sender)
        if message.priority is not Priority.URGENT:
            self._taken[sender] -= 1
        if self._collecting and self._is_behind(sender) and self._taken[sender] <= WINDOW // 2:
            await self._taken_up()

    async def _settle(self, injection: Injection, outcome: Outcome) -> None:
        """Record the outcome of a message. Raise RelayError if that is not possible now."""
        if state := STATES.get(outcome.result):
            await (await self._client()).settle(
                injection.id,
                state,
                outcome.detail or None,
                route=outcome.route or None,
                role=outcome.role or None,
            )
        self._unsettled.pop(injection.id, None)

    async def _defer(self, id: str) -> None:
        # If this cannot be recorded, the message is given later anyway, or uncertain if this session dies.
        self._put_back.add(id)
        await self._catch_up_or_say()
        if self._collecting and id not in self._given:  # an earlier session's
            await self._taken_up()

    async def _catch_up_or_say(self) -> None:
        try:
            await self._catch_up()
        except LedgerError as error:
            self._shown.trouble(error)
        except RelayError:
            pass  # no bus, as the user knows

    async def _catch_up(self) -> None:
        """Record in the ledger what it refused earlier. Raise RelayError if it still refuses."""
        for injection, outcome in list(self._unsettled.values()):
            await self._settle(injection, outcome)
        for id in list(self._put_back):
            await (await self._client()).settle(id, State.STORED)
            self._put_back.discard(id)


class _Shown:
    """Tells the user why messages wait, once per reason.

    waits: returns a message if it still waits, else the newest one that does, if any.
    """

    def __init__(
        self, bus: EventBus, verdict: Callable[[], Verdict], waits: Callable[[Message], Message | None]
    ) -> None:
        self._bus = bus
        self._verdict = verdict
        self._waits = waits
        self._watched: set[bool] = set()  # the scheduled looks: after A_WAIT (False), after HELD (True)
        self._why = ""
        self._trouble = False
        self._others: set[str] = set()  # folders of agents whose waiting messages were reported

    def trouble(self, error: LedgerError) -> None:
        """Report that the ledger delays messages."""
        if not self._trouble:
            self._trouble = True
            self._bus.publish(Notify(f"{error} Messages for this agent wait until then."))

    def others(self, left: list[tuple[str, int]]) -> None:
        """Report messages for agents of this name in other folders: (folder, how many)."""
        for folder, number in left:
            if folder not in self._others:
                self._others.add(folder)
                self._bus.publish(
                    Notify(
                        f"{count(number, 'message')} for the agent of this name in "
                        f"{folder or 'a folder on another host'} are waiting for that agent, and this is a "
                        "different one."
                    )
                )

    def well(self) -> None:
        self._trouble = False

    def watch(self, message: Message) -> None:
        """Report why `message` waits, if it still does after a moment.

        Messages that arrive before then wait for the same reason: one look covers all.
        """
        for held, delay in ((False, A_WAIT), (True, HELD)):
            if held not in self._watched:
                self._watched.add(held)
                self._bus.loop.call_later(delay, self._look, message, held)

    def _look(self, message: Message, held: bool) -> None:
        self._watched.discard(held)
        waiting = self._waits(message)
        if waiting is message:
            self._explain(message, held=held)
        elif waiting is not None:
            self.watch(waiting)

    def _explain(self, message: Message, *, held: bool) -> None:
        """Report why `message` waits, if only the user can change that. held: it has waited for long."""
        verdict = self._verdict()
        stuck = verdict.state is Readiness.UNSAFE or (held and verdict.rule == QUOTED)
        if stuck and verdict.reason != self._why:
            self._why = verdict.reason
            text = f"a message from {message.sender} is waiting, and so are those after it: {verdict.reason}."
            self._bus.publish(Notify(text))
