"""Mail: waiting messages are typed in order, even after the ledger was unavailable."""

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
from relay.messaging.client import CurrentClient, MessagingClient
from relay.messaging.events import ClientOpened, InHand, MessageGiven, MessageStored
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
    """Return an agent that asks something, so its messages wait."""
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("Install? [Y/n] ", end="")
    wait_until(lambda: bob.state() == "prompting")
    return bob


def test_a_locked_ledger_delays_messages_and_changes_nothing_in_their_order(relay: Relay) -> None:
    bob = asking(relay)
    relay("send", "Bob", "first")
    relay("send", "Bob", "second")
    wait_until(lambda: states(relay) == ["stored"] * 2)
    other = sqlite3.connect(Home.from_env(relay.environment).ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    bob.say("\nNo answer; going on.")
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
    bob.say("\nNo answer; going on.")
    bob.receives("meant")
    assert [text for _, text in bob.texts()] == ["meant"]
    wait_until(lambda: states(relay) == ["rejected", "injected"])


def test_how_a_message_reached_its_receiver_is_written_down(relay: Relay) -> None:
    """The ledger, the sender's included, and the journal record it, with the evidence of its arrival."""
    bob = FakeAgent(relay, "Bob").wrap()
    relay("send", "Bob", "hello")
    wait_until(lambda: states(relay) == ["injected"])
    (message,) = messages(relay)
    assert (message["route"], message["role"]) == ("typed", "user")
    (entry,) = wait_until(lambda: [each for each in bob.events("injection") if each["id"] == message["id"]])
    assert (entry["route"], entry["role"], entry["verified"]) == ("typed", "user", "echo")


class Desk:
    """The mailbox and sender of an agent under a PTY, and their ledger.

    client: what the session currently has, or why it has none.
    """

    def __init__(
        self, place: Home, agent: PtyAgent, client: MessagingClient, group: asyncio.TaskGroup
    ) -> None:
        self.place = place
        self.agent = agent
        self.client: MessagingClient | RelayError = client
        self.told: list[str] = []
        self.received: list[events.Event] = []
        self.notices: list[Injection] = []
        self.bus = agent.bus
        self.tasks = Tasks(group, self.bus)
        journal = Journal(place.journal, "id", "Bob")
        identity = Identity("id", "Bob", "default", place.ledger.parent)
        self.mailbox = Mailbox(self.bus, self.tasks, journal, agent.view)
        for feature in (MessageSender(self.bus, journal, identity), self.mailbox, self):
            self.bus.add(feature)

    @answers(CurrentClient)
    async def current(self, _: CurrentClient, __: object) -> MessagingClient:
        if isinstance(self.client, RelayError):
            raise self.client
        return self.client

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        self.told.append(event.text)

    @handles(events.MessageReceived)
    def receive(self, event: events.MessageReceived) -> None:
        self.received.append(event)

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        if event.injection.kind == "notice":
            self.notices.append(event.injection)

    async def collect(self) -> None:
        """Start the session: it collects what waits."""
        self.bus.publish(SessionReady())
        await self.tasks.idle()

    async def look(self) -> None:
        """Make the mailbox look into the ledger, as it does periodically and whenever somebody asks."""
        await self.bus.ask(Describe(brief=False))

    async def stored(self, *messages: Message) -> None:
        """Make the client report what was stored."""
        for message in messages:
            self.bus.publish(MessageStored(message))
        await self.tasks.idle()

    async def send(self, to: str, body: str) -> Message:
        ((sent,),) = await self.bus.ask(SendMessage(OutgoingMessage(to, body)))
        return sent

    async def ledger(self, work: Callable[[Ledger], T]) -> T:
        """Do something in the ledger, as another process would."""
        return await in_ledger(self.place, work)

    async def arrive(self, *bodies: str, priority: Priority = Priority.NORMAL) -> list[Message]:
        """Put messages from Alice into the ledger."""

        def store(ledger: Ledger) -> list[Message]:
            for body in bodies:
                send(ledger, "default", "Alice", ["Bob"], body, priority=priority)
            parcels = ledger.outbox.claim("default", "Alice", lambda *_: None, len(bodies))
            return [message for parcel in parcels for message in ledger.inbox.store("default", parcel)]

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

    async def carry(self) -> list[str]:
        """Make the agent's hooks deliver what one reply can carry."""
        taken = await self.agent.injector.take(9_000)
        for injection in taken:
            await self.deliver(injection, Outcome(Result.INJECTED, role="system"))
        return [injection.text for injection in taken]


def at_desk(home: Path, tmp_path: Path, program: list[str], scene: Callable[[Desk], Awaitable[None]]) -> None:
    """Run `scene` with an agent that runs `program`."""
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()

    async def main() -> None:
        client = await MessagingClient.open(place, "default", "Bob", publish=lambda event: None)
        try:
            async with running(program, tmp_path) as agent, asyncio.TaskGroup() as group:
                desk = Desk(place, agent, client, group)
                await scene(desk)
                desk.tasks.cancel()
        finally:
            await client.close()

    asyncio.run(main())


DIALOG = fake("tui", "paste", "dialog")


def test_a_message_in_a_hooks_reply_is_settled_as_what_became_of_it(home: Path, tmp_path: Path) -> None:
    """Not delivered: it waits again. Delivered: injected, natively. Unknown: uncertain."""

    async def scene(desk: Desk) -> None:
        injector = desk.agent.injector
        await desk.arrive("one", "two")
        await desk.collect()
        taken = await injector.take(1_000)
        assert [each.text for each in taken] == ["one", "two"] and await desk.waiting() == []
        injector.put_back(taken)
        await desk.tasks.idle()
        assert await desk.waiting() == ["one", "two"]
        one, two = await injector.take(1_000)
        await desk.deliver(one, Outcome(Result.INJECTED, role="system"))
        await desk.deliver(two, Outcome(Result.UNCERTAIN, "it died"))
        assert await desk.states() == [("injected", "native", "system"), ("uncertain", "native", None)]
        assert await desk.waiting() == []

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_waits_is_collected_as_soon_as_the_ledger_can_be_read(home: Path, tmp_path: Path) -> None:
    """Later messages do not overtake what waits."""

    async def scene(desk: Desk) -> None:
        agent = desk.agent
        await desk.arrive("first")
        desk.alter("ALTER TABLE inbox RENAME TO away")
        await desk.collect()
        assert "no such table" in desk.told[-1]
        desk.alter("ALTER TABLE away RENAME TO inbox")
        await desk.stored(*await desk.arrive("second"))
        assert await agent.ended(2) == ["injected"] * 2
        await agent.until(lambda: "second" in agent.received())
        assert agent.received().index("first") < agent.received().index("second")
        assert len(desk.told) == 1
        await desk.tasks.idle()
        assert await desk.waiting() == []

    at_desk(home, tmp_path, fake("lines"), scene)


def test_of_many_that_wait_the_injector_has_a_window_and_every_urgent_one(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        bodies = [f"{n}" for n in range(3 * WINDOW)]
        await desk.arrive(*bodies)
        await desk.collect()
        injector = desk.agent.injector
        assert injector.pending == len(desk.received) == WINDOW
        await desk.stored(*await desk.arrive("later", "last"))
        await desk.stored(*await desk.arrive("now", "and this", priority=Priority.URGENT))
        assert injector.pending == WINDOW + 2
        carried: list[str] = []
        while texts := await desk.carry():
            carried += texts
            assert injector.pending <= WINDOW
        assert carried == ["now", "and this", *bodies, "later", "last"]
        assert len(desk.received) == len(carried)
        assert set(await desk.states()) == {("injected", "native", "system")}

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_nobody_told_of_is_found_in_its_order(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        await desk.arrive("before all")
        await desk.look()
        assert desk.agent.injector.pending == 0  # not before the session has started
        await desk.collect()
        await desk.arrive("behind its back", "and another")
        await desk.look()
        assert await desk.carry() == ["before all", "behind its back", "and another"]

    at_desk(home, tmp_path, DIALOG, scene)


async def questions(desk: Desk, depth: int) -> Message:
    """Put a message from Alice into the ledger, `depth` deep in a chain; make Carol known, too."""

    def store(ledger: Ledger) -> Message:
        for name in ("Alice", "Carol"):
            ledger.registry.register("default", name)
        send(ledger, "default", "Alice", ["Bob"], "question", depth=depth)
        (parcel,) = ledger.outbox.claim("default", "Alice", lambda *_: None, 1)
        ledger.inbox.store("default", parcel)
        return parcel.message

    return await desk.ledger(store)


def test_an_answer_to_what_came_in_a_hooks_reply_is_one_deeper(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        question = await questions(desk, 7)
        await desk.collect()
        assert await desk.carry() == ["question"]
        answer, other = await desk.send("alice", "answer"), await desk.send("Carol", "by the way")
        assert (answer.depth, answer.reply_to, answer.thread) == (8, question.id, question.id)
        assert (other.depth, other.reply_to, other.thread) == (8, None, None)
        desk.bus.publish(PromptSubmitted(by_user=True))
        fresh = await desk.send("Alice", "something else")
        assert (fresh.depth, fresh.reply_to) == (1, None)

    at_desk(home, tmp_path, DIALOG, scene)


def test_a_notice_that_rides_along_makes_no_answer_deeper(home: Path, tmp_path: Path) -> None:
    """Otherwise a notice about held messages would get the next chain held at its start."""

    async def scene(desk: Desk) -> None:
        await questions(desk, Limits().depth)
        await desk.collect()
        assert await desk.carry() == ["question"]
        held = await desk.send("Alice", "answer")
        (notice,) = desk.notices
        assert (held.state, notice.wakes) == (State.HELD, False)
        desk.bus.publish(PromptSubmitted(by_user=True))
        await desk.bus.ask(MayBegin(notice, begins=False))
        assert (await desk.send("Carol", "something else")).depth == 1

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_is_held_for_the_user_is_not_shown_to_them(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        for number in range(1000):
            if (await desk.send(names.PERSON, f"number {number}")).state is State.HELD:
                break
        assert f"Bob says to you: number {number - 1}" in desk.told
        assert f"Bob says to you: number {number}" not in desk.told
        assert any("messages to you are held" in text for text in desk.told)

    at_desk(home, tmp_path, DIALOG, scene)


def test_an_end_that_comes_at_once_is_not_missed(home: Path, tmp_path: Path) -> None:
    """A caller waiting for the outcome gets it even if it comes while the message is being sent."""

    async def scene(desk: Desk) -> None:
        await desk.ledger(lambda ledger: ledger.registry.register("default", "Alice"))
        ask = desk.bus.ask(SendMessage(OutgoingMessage(names.PERSON, "done"), wait=20))
        ((sent,),) = await asyncio.wait_for(ask, 20)
        assert sent.state is State.STORED  # the user's messages have arrived once stored

    at_desk(home, tmp_path, DIALOG, scene)


def test_an_end_that_the_ledger_did_not_take_is_noted_later(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        await desk.arrive("one")
        await desk.collect()
        (taken,) = await desk.agent.injector.take(1_000)
        desk.alter("ALTER TABLE inbox RENAME TO away")
        await desk.deliver(taken, Outcome(Result.INJECTED, role="system"))
        assert "is injected, and nobody learns it before" in desk.told[-1]
        await desk.look()
        desk.alter("ALTER TABLE away RENAME TO inbox")
        assert await desk.states() == [("stored", None, None)]
        await desk.look()
        assert await desk.states() == [("injected", "native", "system")]
        assert desk.agent.injector.pending == 0

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_was_given_while_there_was_no_bus_is_not_taken_for_what_a_dead_session_left(
    home: Path, tmp_path: Path
) -> None:
    async def scene(desk: Desk) -> None:
        (one,) = await desk.arrive("one")
        await desk.collect()
        (taken,) = await desk.agent.injector.take(1_000)
        desk.client = NameInUse("another host has the name.")
        await desk.deliver(taken, Outcome(Result.INJECTED, role="system"))
        in_hand = await desk.bus.gather(InHand())  # as the next client is told
        assert in_hand == [one.id]
        assert not await desk.ledger(lambda ledger: ledger.inbox.recover("default", "Bob", in_hand))

    at_desk(home, tmp_path, DIALOG, scene)


class Refuser:
    """A feature that refuses every delivery for now."""

    @answers(MayBegin)
    async def may_begin(self, _: MayBegin, __: object) -> None:
        raise RelayError("it is held.")


def test_a_message_that_is_refused_after_it_was_recorded_waits_again(home: Path, tmp_path: Path) -> None:
    """It may be dropped, and the next session gives it to the agent."""

    async def scene(desk: Desk) -> None:
        desk.bus.add(Refuser())
        one, two = await desk.arrive("one", "two")
        await desk.collect()
        assert await desk.carry() == []
        await desk.tasks.idle()
        assert (await desk.ledger(lambda ledger: ledger.drop(one.id))).state is State.STORED
        desk.agent.close()
        await desk.bus.ask(SessionClosed())
        assert not await desk.ledger(lambda ledger: ledger.inbox.recover("default", "Bob", ()))
        assert await desk.waiting() == [two.body]

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_is_cut_off_by_the_end_is_known_before_the_ledger_closes(home: Path, tmp_path: Path) -> None:
    """A message that was started, but of which nothing was typed, waits for the next session."""

    async def scene(desk: Desk) -> None:
        agent = desk.agent
        desk.agent.reserve = lambda: None  # type: ignore[method-assign]  # as if the terminal had gone
        await desk.arrive("one")
        await desk.collect()
        await agent.until(lambda: agent.typing)
        agent.close()
        await desk.bus.ask(SessionSettling())
        await desk.bus.ask(SessionClosed())
        assert await desk.states() == [("stored", None, None)] and await desk.waiting() == ["one"]

    at_desk(home, tmp_path, fake("lines"), scene)


def test_a_message_that_comes_while_the_ledger_is_read_is_looked_for_again(
    home: Path, tmp_path: Path
) -> None:
    """More may have been waiting than the window holds."""

    async def scene(desk: Desk) -> None:
        await desk.collect()
        client, has_read, go_on = (
            await desk.current(CurrentClient(wait=True), ()),
            asyncio.Event(),
            asyncio.Event(),
        )
        read = client.waiting

        async def slowly(limit: int) -> list[Message]:
            found = await read(limit)
            has_read.set()
            await go_on.wait()
            return found

        client.waiting = slowly  # type: ignore[method-assign, assignment]
        desk.mailbox._behind = True
        desk.mailbox._queue(desk.mailbox._taken_up())
        await has_read.wait()
        (late,) = await desk.arrive("late")
        desk.bus.publish(MessageStored(late))
        go_on.set()
        await desk.tasks.idle()
        assert await desk.carry() == ["late"]

    at_desk(home, tmp_path, DIALOG, scene)


def test_nothing_is_given_while_there_is_no_bus_and_nothing_twice(home: Path, tmp_path: Path) -> None:
    """There is none while the ledger cannot be reopened, or another host has the name."""

    async def scene(desk: Desk) -> None:
        await desk.arrive("one", "two")
        await desk.collect()
        one, two = await desk.agent.injector.take(1_000)
        client, desk.client = desk.client, NameInUse("another host has the name.")
        await desk.deliver(one, Outcome(Result.INJECTED, role="system"))
        desk.agent.injector.put_back([two])
        await desk.look()
        assert await desk.carry() == []
        desk.client = client
        desk.bus.publish(ClientOpened())
        await desk.tasks.idle()
        # A client does this when it opens:
        assert not await desk.ledger(lambda ledger: ledger.inbox.recover("default", "Bob"))
        assert await desk.states() == [("injected", "native", "system"), ("stored", None, None)]
        desk.agent.wait_for_retries()
        assert await desk.carry() == ["two"]
        assert await desk.states() == [("injected", "native", "system")] * 2

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_is_gone_from_the_ledger_is_not_given_any_more(home: Path, tmp_path: Path) -> None:
    """Nor is the agent told about a held message once it was released; the next one is reported again."""

    async def scene(desk: Desk) -> None:
        injector = desk.agent.injector
        dropped, _, typed = await desk.arrive("dropped", "kept", "typed")
        await desk.collect()
        await (await desk.current(CurrentClient(wait=True), ())).injecting(typed.id)
        await desk.ledger(lambda ledger: ledger.registry.register("default", "Alice"))
        await desk.ledger(lambda ledger: ledger.drop(dropped.id))
        await desk.look()
        assert injector.pending == 2
        await desk.look()

        async def flood() -> None:
            desk.bus.publish(MessageGiven(replace(typed, depth=Limits().depth), begins=True))
            await desk.send("Alice", "answer")

        async def release() -> None:
            await desk.ledger(lambda ledger: ledger.outbox.release(ledger.held()))

        await flood()
        await flood()
        assert (injector.pending, len(desk.notices)) == (3, 1)
        await release()
        await flood()  # the first notice is withdrawn, and another replaces it
        assert (injector.pending, len(desk.notices)) == (3, 2)
        await release()
        await desk.look()
        assert injector.pending == 2
        assert await desk.carry() == ["kept", "typed"]

    at_desk(home, tmp_path, DIALOG, scene)


def test_an_idle_receiver_is_woken_for_what_appears_in_the_ledger(relay: Relay) -> None:
    """A session may have been killed between storing a message and giving it to its agent."""
    bob = FakeAgent(relay, "Bob").wrap()
    relay("send", "--wait", "20", "Bob", "hello")
    with Ledger(Home.from_env(relay.environment).ledger) as ledger:
        send(ledger, "default", "Alice", ["Bob"], "behind its back")
        for parcel in ledger.outbox.claim("default", "Alice", lambda *_: None, 1):
            ledger.inbox.store("default", parcel)
    bob.receives("behind its back")
    wait_until(lambda: states(relay) == ["injected"] * 2)
