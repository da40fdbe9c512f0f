"""Mail: what the courier brings is given to the injector, and what became of it goes back.

Courier ── message ──→ Injector ── typed, or in a native reply ──→ Courier ── receipt ──→ the sender
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from relay import names
from relay.bus.courier import Courier
from relay.bus.message import Message, State
from relay.errors import LedgerError
from relay.hooks import events
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.queue import Injector
from relay.injection.readiness import Readiness
from relay.journal import Journal, preview
from relay.session.absent import NoBus

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


class Mail:
    """The messages of one agent.

    fire: told of message events; tell_agent: what a sender must know; tell_person: what the ledger refuses.
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
        tell_agent: Callable[[str], None],
        tell_person: Callable[[str], None],
    ) -> None:
        self._courier = courier
        self._injector = injector
        self._messages = messages
        self._journal = journal
        self._fire = fire
        self._tell_agent = tell_agent
        self._tell_person = tell_person
        self._told_why = ""  # why messages wait
        self._collecting = False
        self._told_trouble = False  # that the ledger cannot be used
        self._given: set[str] = set()  # the messages that the injector has
        injector.on_deferred = self._deferred

    def use(self, courier: Courier | NoBus) -> None:
        """Go on with another courier, and take up what waits in its ledger."""
        self._courier = courier
        if self._collecting:
            self.collect()

    def collect(self) -> None:
        """Have everything typed that has come so far, and from now on what comes."""
        self._collect(FIRST_RETRY)

    def _collect(self, retry: float) -> None:
        """`collect`, which the ledger may refuse for now: then again in `retry` seconds."""
        try:
            waiting = self._courier.waiting()
        except LedgerError as error:
            self._trouble(error)
            again = min(2 * retry, LAST_RETRY)
            asyncio.get_running_loop().call_later(retry, self._collect, again)
            return
        # Not before: what comes meanwhile is among what waits, and must not overtake the rest.
        self._collecting = True
        self._told_trouble = False
        for message in waiting:
            self.arrived(message)

    def send(self, to: str, body: str, *, thread: str | None = None) -> Sequence[Message]:
        """Commit a message to `to`; raises UnknownRecipient or MessageRefused."""
        sent = self._courier.send(to, body, thread=thread)
        for message in sent:
            self._messages.append(message)
            self._record("message_sent", message)
            if names.same(message.to, names.PERSON):
                self._tell_person(f"{message.sender} says to you: {message.body}")
            self._fire(events.MessageSent(to=message.to, body=message.body, id=message.id))
        return sent

    def arrived(self, message: Message) -> None:
        """A message is in the ledger: have it typed as soon as that is safe, unless `collect` will."""
        if not self._collecting or message.id in self._given:
            return
        self._given.add(message.id)
        self._messages.append(message)
        self._record("message_received", message)
        self._fire(events.MessageReceived(sender=message.sender, body=message.body, id=message.id))
        source = THE_PERSON if names.same(message.sender, names.PERSON) else message.sender
        self._injector.submit(Injection(id=message.id, text=message.body, source=source, kind="message"))
        verdict = self._injector.verdict
        if verdict.state is Readiness.UNSAFE and verdict.reason != self._told_why:
            self._told_why = verdict.reason
            self._tell_person(
                f"a message from {message.sender} waits, and so do those after it: {verdict.reason}."
            )

    def typing(self, injection: Injection) -> None:
        """It is about to be typed: should we die now, nobody may type it again by himself.

        Raises MessageRefused when it was dropped, and LedgerError when it must be tried again.
        """
        if injection.kind != "message":
            return
        try:
            self._courier.injecting(injection.id)
        except LedgerError as error:
            self._trouble(error)
            raise
        self._told_trouble = False

    def _deferred(self, injection: Injection) -> None:
        """It was about to be typed, and is not: it waits again."""
        if injection.kind != "message":
            return
        try:
            self._courier.settle(injection.id, State.STORED)
        except LedgerError as error:
            self._trouble(error)  # it is typed later all the same; should we die first, it is uncertain

    def _trouble(self, error: LedgerError) -> None:
        """Tell the person once that the ledger holds messages up."""
        if not self._told_trouble:
            self._told_trouble = True
            self._tell_person(f"{error} Messages for this agent wait until then.")

    def typed(self, injection: Injection, outcome: Outcome) -> None:
        """It was given to the agent, or never will be, or has arrived after all: the sender learns it."""
        self._given.discard(injection.id)
        if injection.kind == "message" and (state := STATES.get(outcome.result)):
            try:
                self._courier.settle(
                    injection.id,
                    state,
                    outcome.detail or None,
                    route=outcome.route or None,
                    role=outcome.role or None,
                )
            except LedgerError as error:
                self._tell_person(
                    f"{error} A message of {injection.source} is {state}, and nobody learns it."
                )

    def settled(self, message: Message) -> None:
        """A message of ours has come to an end; what did not arrive, its sender is told."""
        self._record("message_outcome", message)
        if message.state in {State.REJECTED, State.UNCERTAIN, State.EXPIRED}:
            why = f": {message.detail}" if message.detail else "."
            self._tell_agent(f"Your message to {message.to} ({message.id}) is {message.state}{why}")

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
