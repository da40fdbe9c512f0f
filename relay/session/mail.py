"""Mail: what waits in the ledger is given to the injector, and what became of it goes back.

Courier ── message ──→ Injector ── typed, or in a native reply ──→ Courier ── receipt ──→ the sender

The ledger is the truth: what it holds is taken up in its order, a window at a time, and what is urgent before
the window is done with.  Mail looks into the ledger whenever the courier brings something, and now and then
without being told, so that nothing in it is ever forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from relay import names
from relay.errors import LedgerError, RelayError
from relay.hooks import events
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.queue import Injector
from relay.messaging.client import Courier
from relay.messaging.message import Message, Priority, State
from relay.session.absent import NoBus
from relay.session.chain import Chain
from relay.session.receipts import Receipts, TellAgent
from relay.state.readiness import Readiness
from relay.storage.journal import Journal, preview

STATES = {
    Result.INJECTED: State.INJECTED,
    Result.UNCERTAIN: State.UNCERTAIN,
    Result.REJECTED: State.REJECTED,
}
"""What the receiver's ledger says for each end of an injection; one that was never typed stays stored."""

THE_PERSON = "the person"
"""What agents know the person by: `you` would be themselves."""

FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds between two looks for what waits, where the ledger cannot be read: doubling."""

WINDOW = 64
"""Messages that the injector has at one time; of urgent ones more."""

LOOK = 5.0
"""Seconds between two looks at whether another process has written in the ledger."""

SWEEP = 30.0
"""Seconds after which the ledger is read although nobody has."""


class Mail:
    """The messages of one agent.

    fire: told of message events; tell_agent: what a sender must know; tell_person: what the ledger refuses;
    tell_held: that messages are held for the person.
    It listens to `injector` for texts that are put off.
    """

    def __init__(
        self,
        courier: Courier | NoBus,
        injector: Injector,
        messages: deque[Message],
        journal: Journal,
        *,
        fire: Callable[[events.Event], None],
        tell_agent: TellAgent,
        tell_person: Callable[[str], None],
        tell_held: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._courier = courier
        self._injector = injector
        self._messages = messages
        self._journal = journal
        self._fire = fire
        self._tell_person = tell_person
        self._clock = clock
        self._chain = Chain()
        self._receipts = Receipts(tell_agent, injector.withdraw, tell_held)
        self._told_why = ""  # why messages wait
        self._collecting = False
        self._told_trouble = False  # that the ledger cannot be used
        self._given: dict[str, Message] = {}  # the messages that the injector has
        self._behind = False  # there may be more in the ledger
        self._taking = False
        self._version: int | None = None  # of the ledger, at the last look
        self._swept = clock()
        # What the ledger did not take when it happened: how a message ended, and that it waits again.
        self._unsettled: dict[str, tuple[Injection, Outcome]] = {}
        self._put_back: set[str] = set()
        injector.on_deferred = self._deferred

    def use(self, courier: Courier | NoBus) -> None:
        """Go on with another courier, and take up what waits in its ledger."""
        self._courier = courier
        self._version = None
        with suppress(RelayError):
            self._catch_up()  # before it takes what was begun for what a dead session left
        if self._collecting:
            self.collect()

    def collect(self) -> None:
        """Have everything typed that has come so far, and from now on what comes."""
        self._collect(FIRST_RETRY)

    def _collect(self, retry: float) -> None:
        """`collect`, which the ledger may refuse for now: then again in `retry` seconds."""
        if not self._take_up():
            again = min(2 * retry, LAST_RETRY)
            asyncio.get_running_loop().call_later(retry, self._collect, again)
            return
        # Not before: what comes meanwhile is among what waits, and must not overtake the rest.
        self._collecting = True

    async def run(self) -> None:
        """Look into the ledger for ever."""
        while True:
            await asyncio.sleep(LOOK)
            self.look()

    def look(self) -> None:
        """Take up what nobody has told of: stored by another process, or while the ledger was in trouble.

        And give up what is no longer so: a message that was dropped or has expired is not given, and of what
        was released the agent is not told that it is held.
        """
        if not self._collecting:
            return
        try:
            self._catch_up()
            version = self._courier.version()
            due = version != self._version or self._clock() >= self._swept + SWEEP
            if due:
                self._give_up()
        except LedgerError as error:
            self._trouble(error)
            return
        except RelayError:
            return  # there is no bus, as the person knows
        if (due or self._behind) and self._take_up():
            self._version = version

    def _give_up(self) -> None:
        """Withdraw what there is no reason to give to the agent any more. Raises RelayError."""
        if self._given:
            for id in self._given.keys() - self._courier.stored():
                self._injector.withdraw(id)
        if self._receipts.holding:
            self._receipts.still_held(self._courier.held())

    def send(
        self,
        to: str,
        body: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: Priority = Priority.NORMAL,
        ttl: float | None = None,
    ) -> Sequence[Message]:
        """Commit a message to `to`; raises UnknownRecipient or MessageRefused.

        Where no `reply_to` is given it answers the last message from `to` that the agent was given since the
        person spoke, in the same thread.
        """
        if reply_to is None and (answered := self._chain.answers(to)):
            reply_to, thread = answered.id, thread or answered.thread or answered.id
        sent = self._courier.send(
            to,
            body,
            thread=thread,
            reply_to=reply_to,
            priority=priority,
            ttl=ttl,
            depth=self._chain.depth,
        )
        self._chain.said()
        for message in sent:
            self._messages.append(message)
            self._record("message_sent", message)
            if names.same(message.to, names.PERSON) and message.state is not State.HELD:
                where = f"in #{message.channel}" if message.channel else "says to you"
                self._tell_person(f"{message.sender} {where}: {message.body}")
            self._fire(
                events.MessageSent(
                    to=message.to,
                    body=message.body,
                    id=message.id,
                    channel=message.channel,
                    thread=message.thread,
                    reply_to=message.reply_to,
                    priority=message.priority.value,
                )
            )
        if self._receipts.holding:
            with suppress(RelayError):  # then as far as is known
                self._receipts.still_held(self._courier.held())
        self._receipts.sent(sent)
        return sent

    async def outcomes(self, messages: Sequence[Message], seconds: float) -> Sequence[Message]:
        """`messages` of ours as they are once they have come to an end or are held, or after `seconds`."""
        return await self._receipts.wait(messages, seconds)

    def person_spoke(self) -> None:
        """The person has submitted something to the agent."""
        self._chain.person_spoke()

    def arrived(self, message: Message) -> None:
        """A message is in the ledger: have it typed as soon as that is safe, unless `collect` will."""
        waits = self._behind and message.priority is not Priority.URGENT
        if self._collecting and message.id not in self._given and not waits:
            self._take_up()

    def _take_up(self) -> bool:
        """Give the injector, in the ledger's order, what there is room for; False if that cannot be read."""
        if self._taking:  # it refuses a text at once, and we are told of its end
            return True
        self._taking = True
        try:
            limit = WINDOW + len(self._given)
            waiting = self._courier.waiting(limit)
            self._behind = len(waiting) >= limit
            first: Message | None = None
            for message in waiting:
                if message.id in self._given or message.id in self._unsettled:
                    continue
                if message.priority is not Priority.URGENT and len(self._given) >= WINDOW:
                    self._behind = True
                    break
                self._give(message)
                first = first or message
            if first is not None:
                self._tell_why(first)
        except LedgerError as error:
            self._behind = True
            self._trouble(error)
            return False
        finally:
            self._taking = False
        self._swept = self._clock()
        self._told_trouble = False
        return True

    def _give(self, message: Message) -> None:
        self._given[message.id] = message
        self._messages.append(message)
        self._record("message_received", message)
        self._fire(
            events.MessageReceived(
                sender=message.sender,
                body=message.body,
                id=message.id,
                channel=message.channel,
                thread=message.thread,
                reply_to=message.reply_to,
                priority=message.priority.value,
            )
        )
        source = THE_PERSON if names.same(message.sender, names.PERSON) else message.sender
        self._injector.submit(
            Injection(
                id=message.id,
                text=message.body,
                source=source,
                kind="message",
                channel=message.channel,
                priority=message.priority,
            )
        )

    def _tell_why(self, message: Message) -> None:
        """Tell the person why `message` waits, where it does until they do something about it."""
        verdict = self._injector.verdict
        if verdict.state is Readiness.UNSAFE and verdict.reason != self._told_why:
            self._told_why = verdict.reason
            self._tell_person(
                f"a message from {message.sender} waits, and so do those after it: {verdict.reason}."
            )

    def typing(self, injection: Injection) -> None:
        """It is about to be typed: should we die now, nobody may type it again by himself.

        Raises MessageRefused when it was dropped, and another RelayError when it must be tried again.
        """
        begins = self._injector.typing is injection
        if injection.kind != "message":
            depth = self._receipts.depth(injection)
            if depth is not None and (begins or injection.wakes):  # else it rides along, and leads to nothing
                self._chain.given(depth, begins=begins)
            return
        try:
            self._courier.injecting(injection.id)
        except LedgerError as error:
            self._trouble(error)
            raise
        self._told_trouble = False
        self._put_back.discard(injection.id)
        message = self._given[injection.id]
        self._chain.given(message.depth, begins=begins)
        self._chain.heard(message)

    def _deferred(self, injection: Injection) -> None:
        """It was about to be typed, and is not: it waits again."""
        if injection.kind != "message":
            return
        self._put_back.add(injection.id)
        # Where that cannot be noted it is typed later all the same; should we die first, it is uncertain.
        try:
            self._catch_up()
        except LedgerError as error:
            self._trouble(error)
        except RelayError:
            pass  # there is no bus, as the person knows

    def _catch_up(self) -> None:
        """Note in the ledger what it did not take when it happened. Raises RelayError."""
        for injection, outcome in list(self._unsettled.values()):
            self._settle(injection, outcome)
        for id in list(self._put_back):
            self._courier.settle(id, State.STORED)
            self._put_back.discard(id)

    def _trouble(self, error: LedgerError) -> None:
        """Tell the person once that the ledger holds messages up."""
        if not self._told_trouble:
            self._told_trouble = True
            self._tell_person(f"{error} Messages for this agent wait until then.")

    def typed(self, injection: Injection, outcome: Outcome) -> None:
        """It was given to the agent, or never will be, or has arrived after all: the sender learns it."""
        if outcome.result is Result.UNTYPED:
            self._collecting = False  # the session has ended
        if injection.kind != "message":
            self._receipts.given(injection)
            return
        try:
            self._settle(injection, outcome)
        except RelayError as error:
            self._unsettled[injection.id] = injection, outcome
            self._tell_person(
                f"{error} A message of {injection.source} is {outcome.result}, and nobody learns it before."
            )
        self._given.pop(injection.id, None)
        if self._behind and self._collecting and len(self._given) <= WINDOW // 2:
            self._take_up()

    def _settle(self, injection: Injection, outcome: Outcome) -> None:
        """Note the end of a message. Raises LedgerError."""
        if state := STATES.get(outcome.result):
            self._courier.settle(
                injection.id,
                state,
                outcome.detail or None,
                route=outcome.route or None,
                role=outcome.role or None,
            )
        self._unsettled.pop(injection.id, None)

    def settled(self, message: Message) -> None:
        """The state of a message of ours has changed; what did not arrive, its sender is told."""
        self._record("message_outcome", message)
        self._receipts.settled(message)

    def _record(self, event: str, message: Message) -> None:
        self._journal.write(
            event,
            id=message.id,
            sender=message.sender,
            to=message.to,
            state=str(message.state),
            route=message.route,
            role=message.role,
            body=preview(message.body),
        )
