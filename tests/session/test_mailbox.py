"""The mailbox: waiting messages are delivered once and in order, even after the ledger was unavailable."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from injection.ptyagent import PtyAgent, fake, running
from ledgers import in_ledger, send
from relay import names
from relay.errors import NameInUse, RelayError
from relay.eventbus import answers, handles
from relay.features.mailbox import WINDOW, Mailbox
from relay.features.sender import MessageSender
from relay.home import Home
from relay.hooks import events
from relay.hooks.commands import SendMessage
from relay.injection.events import Inject, MayBegin
from relay.injection.injection import Injection, Outcome, Result
from relay.lifecycle import Describe, Identity, SessionClosed, SessionReady, SessionSettling
from relay.message import Message, OutgoingMessage, Priority, State
from relay.messaging.client import MessagingClient
from relay.messaging.events import (
    ClientOpened,
    CurrentClient,
    InHand,
    MessageGiven,
    MessageStored,
    OutcomeReported,
)
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from relay.state.events import PromptSubmitted
from relay.storage.journal import Journal
from relay.tasks import Tasks
from relay.terminal.events import Notify
from session.fake_agent import FakeAgent, messages
from support import Relay, wait_until

T = TypeVar("T")


def states(relay: Relay) -> list[str]:
    return [message["state"] for message in messages(relay)]


def asking(relay: Relay) -> FakeAgent:
    """Return an agent that shows a prompt, so its messages wait."""
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("Install? [Y/n] ", end="")
    wait_until(lambda: bob.state() == "prompting")
    return bob


def test_a_locked_ledger_delays_messages_but_keeps_their_order(relay: Relay) -> None:
    bob = asking(relay)
    relay("send", "Bob", "first")
    relay("send", "Bob", "second")
    wait_until(lambda: states(relay) == ["stored"] * 2)
    other = sqlite3.connect(Home.from_env(relay.environment).ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    bob.say("\nNo answer; continuing.")
    bob.notice("another process keeps it locked")
    other.execute("ROLLBACK")
    other.close()
    bob.receives("second")
    assert [text for _, text in bob.texts()] == ["first", "second"]
    wait_until(lambda: states(relay) == ["injected"] * 2)
    assert len([e for e in bob.events("notice") if "keeps it locked" in e["text"]]) == 1


def test_a_message_that_is_dropped_while_it_waits_is_not_typed(relay: Relay) -> None:
    bob = asking(relay)
    relay("send", "Bob", "regretted")
    wait_until(lambda: states(relay) == ["stored"])
    assert "is given up" in relay("drop", messages(relay)[0]["id"]).stdout
    relay("send", "Bob", "meant")
    bob.say("\nNo answer; continuing.")
    bob.receives("meant")
    assert [text for _, text in bob.texts()] == ["meant"]
    wait_until(lambda: states(relay) == ["rejected", "injected"])


def test_the_route_and_role_of_a_message_are_recorded(relay: Relay) -> None:
    """Both are in the ledger and the journal; the journal also has the evidence of its arrival."""
    bob = FakeAgent(relay, "Bob").wrap()
    relay("send", "Bob", "hello")
    wait_until(lambda: states(relay) == ["injected"])
    (message,) = messages(relay)
    assert (message["route"], message["role"]) == ("typed", "user")
    (entry,) = wait_until(lambda: [each for each in bob.events("injection") if each["id"] == message["id"]])
    assert (entry["route"], entry["role"], entry["verified"]) == ("typed", "user", "echo")


class Rig:
    """The mailbox and sender of an agent under a PTY, and their ledger.

    client: what the session currently has, or why it has none.
    """

    def __init__(
        self, place: Home, agent: PtyAgent, client: MessagingClient, group: asyncio.TaskGroup
    ) -> None:
        self.place = place
        self.agent = agent
        self.client: MessagingClient | RelayError = client
        self.shown: list[str] = []
        self.received: list[events.Event] = []
        self.notices: list[Injection] = []
        self.bus = agent.bus
        self.tasks = Tasks(group, self.bus)
        journal = Journal(place.journal, "id", "Bob")
        identity = Identity("id", "Bob", "default", place.ledger.parent)
        self.mailbox = Mailbox(self.bus, self.tasks, journal, lambda: agent.view.verdict)
        for feature in (MessageSender(self.bus, journal, identity), self.mailbox, self):
            self.bus.add(feature)

    @answers(CurrentClient)
    async def current(self, _: CurrentClient, __: object) -> MessagingClient:
        if isinstance(self.client, RelayError):
            raise self.client
        return self.client

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        self.shown.append(event.text)

    @handles(events.MessageReceived)
    def receive(self, event: events.MessageReceived) -> None:
        self.received.append(event)

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        if event.injection.kind == "notice":
            self.notices.append(event.injection)

    async def collect(self) -> None:
        """Start the session, which collects the waiting messages."""
        self.bus.publish(SessionReady())
        await self.tasks.idle()

    async def check_ledger(self) -> None:
        """Make the mailbox read the ledger, as it does periodically and for each Describe."""
        await self.bus.ask(Describe(brief=False))

    async def stored(self, *messages: Message) -> None:
        """Make the client report messages as stored."""
        for message in messages:
            self.bus.publish(MessageStored(message))
        await self.tasks.idle()

    async def send(self, to: str, body: str) -> Message:
        ((sent,),) = await self.bus.ask(SendMessage(OutgoingMessage(to, body)))
        return sent

    async def ledger(self, work: Callable[[Ledger], T]) -> T:
        """Run `work` on the ledger, as another process would."""
        return await in_ledger(self.place, work)

    async def arrive(self, *bodies: str, priority: Priority = Priority.NORMAL) -> list[Message]:
        """Put messages from Alice into the ledger."""

        def store(ledger: Ledger) -> list[Message]:
            return [
                message
                for body in bodies
                for message in send(ledger, "default", "Alice", ["Bob"], body, priority=priority)
            ]

        return await self.ledger(store)

    async def states(self) -> list[tuple[str, str | None, str | None]]:
        entries = await self.ledger(lambda ledger: list(ledger.messages()))
        found = [entry.message for entry in entries if entry.message.to == "Bob"]
        return [(str(each.state), each.route, each.role) for each in found]

    async def waiting(self) -> list[str]:
        return await self.ledger(
            lambda ledger: [message.body for message in ledger.inbox.waiting("default", "Bob")]
        )

    def alter(self, statement: str) -> None:
        with sqlite3.connect(self.place.ledger) as other:
            other.execute(statement)
        other.close()

    async def deliver(self, injection: Injection, outcome: Outcome) -> None:
        self.agent.injector.delivered(injection, outcome)
        await self.tasks.idle()

    async def deliver_by_hook(self) -> list[str]:
        """Deliver what one hook reply can hold; return the texts."""
        taken = await self.agent.injector.take(9_000)
        for injection in taken:
            await self.deliver(injection, Outcome(Result.INJECTED, role="system"))
        return [injection.text for injection in taken]


def run_with_rig(
    home: Path, tmp_path: Path, program: list[str], scene: Callable[[Rig], Awaitable[None]]
) -> None:
    """Run `scene` with an agent that runs `program`."""
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()

    async def main() -> None:
        client = await MessagingClient.open(place, "default", "Bob", publish=lambda event: None)
        try:
            async with running(program, tmp_path) as agent, asyncio.TaskGroup() as group:
                rig = Rig(place, agent, client, group)
                await scene(rig)
                rig.tasks.cancel()
        finally:
            await client.close()

    asyncio.run(main())


DIALOG = fake("tui", "paste", "dialog")


def test_a_message_in_a_hook_reply_is_settled_by_its_outcome(home: Path, tmp_path: Path) -> None:
    """Not delivered: it waits again. Delivered: injected, by the native route. Unknown: uncertain."""

    async def scene(rig: Rig) -> None:
        injector = rig.agent.injector
        await rig.arrive("one", "two")
        await rig.collect()
        taken = await injector.take(1_000)
        assert [each.text for each in taken] == ["one", "two"] and await rig.waiting() == []
        injector.put_back(taken)
        await rig.tasks.idle()
        assert await rig.waiting() == ["one", "two"]
        one, two = await injector.take(1_000)
        await rig.deliver(one, Outcome(Result.INJECTED, role="system"))
        await rig.deliver(two, Outcome(Result.UNCERTAIN, "it died"))
        assert await rig.states() == [("injected", "native", "system"), ("uncertain", "native", None)]
        assert await rig.waiting() == []

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_waiting_messages_are_collected_once_the_ledger_is_readable(home: Path, tmp_path: Path) -> None:
    """Later messages do not overtake the waiting ones."""

    async def scene(rig: Rig) -> None:
        agent = rig.agent
        await rig.arrive("first")
        rig.alter("ALTER TABLE messages RENAME TO away")
        await rig.collect()
        assert "no such table" in rig.shown[-1]
        rig.alter("ALTER TABLE away RENAME TO messages")
        await rig.stored(*await rig.arrive("second"))
        assert await agent.ended(2) == ["injected"] * 2
        await agent.until(lambda: "second" in agent.received())
        assert agent.received().index("first") < agent.received().index("second")
        assert len(rig.shown) == 1
        await rig.tasks.idle()
        assert await rig.waiting() == []

    run_with_rig(home, tmp_path, fake("lines"), scene)


def test_the_injector_holds_a_window_of_messages_and_all_urgent_ones(home: Path, tmp_path: Path) -> None:
    async def scene(rig: Rig) -> None:
        bodies = [f"{n}" for n in range(3 * WINDOW)]
        await rig.arrive(*bodies)
        await rig.collect()
        injector = rig.agent.injector
        assert injector.pending == len(rig.received) == WINDOW
        await rig.stored(*await rig.arrive("later", "last"))
        await rig.stored(*await rig.arrive("now", "and this", priority=Priority.URGENT))
        assert injector.pending == WINDOW + 2
        delivered: list[str] = []
        while texts := await rig.deliver_by_hook():
            delivered += texts
            assert injector.pending <= WINDOW
        assert delivered == ["now", "and this", *bodies, "later", "last"]
        assert len(rig.received) == len(delivered)
        assert set(await rig.states()) == {("injected", "native", "system")}

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_unannounced_messages_are_found_in_order(home: Path, tmp_path: Path) -> None:
    async def scene(rig: Rig) -> None:
        await rig.arrive("before all")
        await rig.check_ledger()
        assert rig.agent.injector.pending == 0  # not before the session has started
        await rig.collect()
        await rig.arrive("unannounced", "and another")
        await rig.check_ledger()
        assert await rig.deliver_by_hook() == ["before all", "unannounced", "and another"]

    run_with_rig(home, tmp_path, DIALOG, scene)


async def send_question(rig: Rig, depth: int) -> Message:
    """Put a message from Alice, `depth` deep in a chain, into the ledger; register Carol as well."""

    def store(ledger: Ledger) -> Message:
        for name in ("Alice", "Carol"):
            ledger.registry.register("default", name)
        (question,) = send(ledger, "default", "Alice", ["Bob"], "question", depth=depth)
        return question

    return await rig.ledger(store)


def test_an_answer_to_a_message_from_a_hook_reply_is_one_deeper(home: Path, tmp_path: Path) -> None:
    async def scene(rig: Rig) -> None:
        question = await send_question(rig, 7)
        await rig.collect()
        assert await rig.deliver_by_hook() == ["question"]
        answer, other = await rig.send("alice", "answer"), await rig.send("Carol", "by the way")
        assert (answer.depth, answer.reply_to, answer.thread) == (8, question.id, question.id)
        assert (other.depth, other.reply_to, other.thread) == (8, None, None)
        rig.bus.publish(PromptSubmitted(by_user=True))
        fresh = await rig.send("Alice", "something else")
        assert (fresh.depth, fresh.reply_to) == (1, None)

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_a_notice_makes_no_answer_deeper(home: Path, tmp_path: Path) -> None:
    """Otherwise a notice about held messages would get the next chain held from its start."""

    async def scene(rig: Rig) -> None:
        await send_question(rig, Limits().depth)
        await rig.collect()
        assert await rig.deliver_by_hook() == ["question"]
        held = await rig.send("Alice", "answer")
        (notice,) = rig.notices
        assert (held.state, notice.wakes) == (State.HELD, False)
        rig.bus.publish(PromptSubmitted(by_user=True))
        await rig.bus.ask(MayBegin(notice, begins=False))
        assert (await rig.send("Carol", "something else")).depth == 1

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_a_held_message_to_the_user_is_not_shown(home: Path, tmp_path: Path) -> None:
    async def scene(rig: Rig) -> None:
        for number in range(1000):
            if (await rig.send(names.PERSON, f"number {number}")).state is State.HELD:
                break
        assert f"Bob says to you: number {number - 1}" in rig.shown
        assert f"Bob says to you: number {number}" not in rig.shown
        assert any("messages to you are held" in text for text in rig.shown)

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_an_immediate_outcome_is_not_missed(home: Path, tmp_path: Path) -> None:
    """A caller that waits for the outcome gets it even if it is known while the message is being sent."""

    async def scene(rig: Rig) -> None:
        await rig.ledger(lambda ledger: ledger.registry.register("default", "Alice"))
        ask = rig.bus.ask(SendMessage(OutgoingMessage(names.PERSON, "done"), wait=20))
        ((sent,),) = await asyncio.wait_for(ask, 20)
        assert sent.state is State.STORED  # for messages to the user this state is final

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_an_outcome_that_could_not_be_written_is_written_later(home: Path, tmp_path: Path) -> None:
    async def scene(rig: Rig) -> None:
        await rig.arrive("one")
        await rig.collect()
        (taken,) = await rig.agent.injector.take(1_000)
        rig.alter("ALTER TABLE messages RENAME TO away")
        await rig.deliver(taken, Outcome(Result.INJECTED, role="system"))
        assert "is injected, and nobody learns it before" in rig.shown[-1]
        await rig.check_ledger()
        rig.alter("ALTER TABLE away RENAME TO messages")
        assert await rig.states() == [("stored", None, None)]
        await rig.check_ledger()
        assert await rig.states() == [("injected", "native", "system")]
        assert rig.agent.injector.pending == 0

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_a_message_delivered_while_off_the_bus_is_not_recovered_as_abandoned(
    home: Path, tmp_path: Path
) -> None:
    async def scene(rig: Rig) -> None:
        (one,) = await rig.arrive("one")
        await rig.collect()
        (taken,) = await rig.agent.injector.take(1_000)
        rig.client = NameInUse("another host has the name.")
        await rig.deliver(taken, Outcome(Result.INJECTED, role="system"))
        in_hand = await rig.bus.gather(InHand())  # as reported to the next client
        assert in_hand == [one.id]
        assert not await rig.ledger(lambda ledger: ledger.inbox.recover("default", "Bob", in_hand))

    run_with_rig(home, tmp_path, DIALOG, scene)


class RefuseAll:
    """A feature that refuses every delivery for now."""

    @answers(MayBegin)
    async def may_begin(self, _: MayBegin, __: object) -> None:
        raise RelayError("it is held.")


def test_a_message_that_is_refused_after_it_was_recorded_waits_again(home: Path, tmp_path: Path) -> None:
    """It can be dropped, and the next session delivers it."""

    async def scene(rig: Rig) -> None:
        rig.bus.add(RefuseAll())
        one, two = await rig.arrive("one", "two")
        await rig.collect()
        assert await rig.deliver_by_hook() == []
        await rig.tasks.idle()
        assert (await rig.ledger(lambda ledger: ledger.drop(one.id))).state is State.STORED
        rig.agent.close()
        await rig.bus.ask(SessionClosed())
        assert not await rig.ledger(lambda ledger: ledger.inbox.recover("default", "Bob", ()))
        assert await rig.waiting() == [two.body]

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_a_message_cut_off_by_the_end_is_settled_before_the_ledger_closes(home: Path, tmp_path: Path) -> None:
    """A message of which nothing was typed yet waits for the next session."""

    async def scene(rig: Rig) -> None:
        agent = rig.agent
        rig.agent.reserve = lambda: None  # type: ignore[method-assign]  # as if the terminal had gone
        await rig.arrive("one")
        await rig.collect()
        await agent.until(lambda: agent.typing)
        agent.close()
        await rig.bus.ask(SessionSettling())
        await rig.bus.ask(SessionClosed())
        assert await rig.states() == [("stored", None, None)] and await rig.waiting() == ["one"]

    run_with_rig(home, tmp_path, fake("lines"), scene)


def test_a_message_stored_while_the_ledger_is_read_is_found(home: Path, tmp_path: Path) -> None:
    """There may have been more messages than the window holds."""

    async def scene(rig: Rig) -> None:
        await rig.collect()
        client, has_read, may_continue = (
            await rig.current(CurrentClient(wait=True), ()),
            asyncio.Event(),
            asyncio.Event(),
        )
        read = client.waiting

        async def slowly(limit: int) -> list[Message]:
            found = await read(limit)
            has_read.set()
            await may_continue.wait()
            return found

        client.waiting = slowly  # type: ignore[method-assign, assignment]
        rig.mailbox._behind = True
        rig.mailbox._queue(rig.mailbox._taken_up())
        await has_read.wait()
        (late,) = await rig.arrive("late")
        rig.bus.publish(MessageStored(late))
        may_continue.set()
        await rig.tasks.idle()
        assert await rig.deliver_by_hook() == ["late"]

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_nothing_is_delivered_while_off_the_bus_and_nothing_twice(home: Path, tmp_path: Path) -> None:
    """The bus is missing while the ledger cannot be reopened, or another host has the name."""

    async def scene(rig: Rig) -> None:
        await rig.arrive("one", "two")
        await rig.collect()
        one, two = await rig.agent.injector.take(1_000)
        client, rig.client = rig.client, NameInUse("another host has the name.")
        await rig.deliver(one, Outcome(Result.INJECTED, role="system"))
        rig.agent.injector.put_back([two])
        await rig.check_ledger()
        assert await rig.deliver_by_hook() == []
        rig.client = client
        rig.bus.publish(ClientOpened())
        await rig.tasks.idle()
        # A client does this when it opens:
        assert not await rig.ledger(lambda ledger: ledger.inbox.recover("default", "Bob"))
        assert await rig.states() == [("injected", "native", "system"), ("stored", None, None)]
        rig.agent.wait_for_retries()
        assert await rig.deliver_by_hook() == ["two"]
        assert await rig.states() == [("injected", "native", "system")] * 2

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_a_message_dropped_from_the_ledger_is_not_delivered(home: Path, tmp_path: Path) -> None:
    """Nor is the notice about a held message after its release; the next held message gets a new notice."""

    async def scene(rig: Rig) -> None:
        injector = rig.agent.injector
        dropped, _, typed = await rig.arrive("dropped", "kept", "typed")
        await rig.collect()
        await (await rig.current(CurrentClient(wait=True), ())).injecting(typed.id)
        await rig.ledger(lambda ledger: ledger.registry.register("default", "Alice"))
        await rig.ledger(lambda ledger: ledger.drop(dropped.id))
        await rig.check_ledger()
        assert injector.pending == 2
        await rig.check_ledger()

        async def flood() -> None:
            rig.bus.publish(MessageGiven(replace(typed, depth=Limits().depth), begins=True))
            await rig.send("Alice", "answer")

        async def release() -> None:
            await rig.ledger(lambda ledger: ledger.outbox.release(ledger.held()))
            for each in await rig.ledger(lambda ledger: ledger.outbox.outcomes("default", "Bob")):
                rig.bus.publish(OutcomeReported(each))

        await flood()
        await flood()
        assert (injector.pending, len(rig.notices)) == (3, 1)
        await release()
        await flood()  # the first notice is withdrawn, and another replaces it
        assert (injector.pending, len(rig.notices)) == (3, 2)
        await release()
        await rig.check_ledger()
        assert injector.pending == 2
        assert await rig.deliver_by_hook() == ["kept", "typed"]

    run_with_rig(home, tmp_path, DIALOG, scene)


def test_an_idle_receiver_is_woken_for_an_unannounced_message(relay: Relay) -> None:
    """A session may have been killed between storing a message and delivering it."""
    bob = FakeAgent(relay, "Bob").wrap()
    relay("send", "--wait", "20", "Bob", "hello")
    with Ledger(Home.from_env(relay.environment).ledger) as ledger:
        send(ledger, "default", "Alice", ["Bob"], "unannounced")
    bob.receives("unannounced")
    wait_until(lambda: states(relay) == ["injected"] * 2)
