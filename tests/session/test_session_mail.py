"""Mail: what waits in the ledger is typed in its order, also after the ledger could not be used."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from injection.ptyagent import PtyAgent, fake, running
from relay import names
from relay.errors import NameInUse
from relay.home import Home
from relay.hooks import events
from relay.injection.injection import Injection, Outcome, Result
from relay.messaging.client import Courier
from relay.messaging.ledger import Ledger
from relay.messaging.message import Message, Priority, State
from relay.messaging.runaway import Limits
from relay.session.absent import NoBus
from relay.session.mail import WINDOW, Mail
from relay.storage.journal import Journal
from session.puppet import Puppet, messages
from support import Relay, wait_until


def states(relay: Relay) -> list[str]:
    return [message["state"] for message in messages(relay)]


def asking(relay: Relay) -> Puppet:
    """An agent that asks something, so that what comes for it waits."""
    bob = Puppet(relay, "Bob").wrap()
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
    bob.told("another process keeps it locked")
    other.execute("ROLLBACK")
    other.close()
    bob.hears("second")
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
    bob.hears("meant")
    assert [text for _, text in bob.texts()] == ["meant"]
    wait_until(lambda: states(relay) == ["rejected", "injected"])


def test_how_a_message_reached_its_receiver_is_written_down(relay: Relay) -> None:
    """In the ledger, the sender's included, and in the journal with what showed that it arrived."""
    bob = Puppet(relay, "Bob").wrap()
    relay("send", "Bob", "hello")
    wait_until(lambda: states(relay) == ["injected"])
    (message,) = messages(relay)
    assert (message["route"], message["role"]) == ("typed", "user")
    (entry,) = (each for each in bob.events("injection") if each["id"] == message["id"])
    assert (entry["route"], entry["role"], entry["verified"]) == ("typed", "user", "echo")


class Desk:
    """Mail of an agent under a PTY, and the ledger behind it."""

    def __init__(self, place: Home, agent: PtyAgent) -> None:
        self.place = place
        self.agent = agent
        self.told: list[str] = []
        self.courier = Courier(
            place, "default", "Bob", on_message=print, on_outcome=print, on_status=self.told.append
        )
        self.received: list[events.Event] = []
        self.notices: list[Injection] = []
        self.mail = Mail(
            self.courier,
            agent.injector,
            deque(),
            Journal(place.journal, "id", "Bob", self.told.append),
            fire=self.received.append,
            tell_agent=self._tell_agent,
            tell_person=self.told.append,
            tell_held=self.told.append,
        )
        agent.begin, agent.end_of = self.mail.typing, self.mail.typed

    def _tell_agent(self, text: str, *, wakes: bool) -> Injection:
        self.notices.append(Injection(text, text, "relay", "notice", wakes))
        return self.notices[-1]

    def arrive(self, *bodies: str, priority: Priority = Priority.NORMAL) -> list[Message]:
        """Have them in the ledger, as another process would."""
        with Ledger(self.place.ledger) as ledger:
            for body in bodies:
                ledger.outbox.send("default", "Alice", ["Bob"], body, priority=priority)
            parcels = ledger.outbox.claim("default", "Alice", lambda *_: None, len(bodies))
            return [message for parcel in parcels for message in ledger.inbox.store("default", parcel)]

    def states(self) -> list[tuple[str, str | None, str | None]]:
        with Ledger(self.place.ledger) as ledger:
            found = [entry.message for entry in ledger.messages()]
        return [(str(each.state), each.route, each.role) for each in found]

    def alter(self, statement: str) -> None:
        with sqlite3.connect(self.place.ledger) as other:
            other.execute(statement)
        other.close()

    def carry(self) -> list[str]:
        """Have the agent's hooks pass on what one reply takes."""
        taken = self.agent.injector.take(9_000)
        for injection in taken:
            self.agent.injector.delivered(injection, Outcome(Result.INJECTED, role="system"))
        return [injection.text for injection in taken]


def at_desk(home: Path, tmp_path: Path, program: list[str], scene: Callable[[Desk], Awaitable[None]]) -> None:
    """Run `scene` with an agent that runs `program`."""
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()

    async def main() -> None:
        async with running(program, tmp_path) as agent:
            await scene(Desk(place, agent))

    asyncio.run(main())


DIALOG = fake("tui", "paste", "dialog")


def test_a_message_in_a_hooks_reply_is_settled_as_what_became_of_it(home: Path, tmp_path: Path) -> None:
    """Not passed on: it waits again. Passed on: it is injected, natively. Neither is known: uncertain."""

    async def scene(desk: Desk) -> None:
        injector, courier = desk.agent.injector, desk.courier
        desk.arrive("one", "two")
        desk.mail.collect()
        taken = injector.take(1_000)
        assert [each.text for each in taken] == ["one", "two"] and courier.waiting() == []
        injector.put_back(taken)
        assert [message.body for message in courier.waiting()] == ["one", "two"]
        one, two = injector.take(1_000)
        injector.delivered(one, Outcome(Result.INJECTED, role="system"))
        injector.delivered(two, Outcome(Result.UNCERTAIN, "it died"))
        assert desk.states() == [("injected", "native", "system"), ("uncertain", "native", None)]
        assert courier.waiting() == []

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_waits_is_collected_as_soon_as_the_ledger_can_be_read(home: Path, tmp_path: Path) -> None:
    """What comes meanwhile does not overtake it."""

    async def scene(desk: Desk) -> None:
        agent = desk.agent
        desk.arrive("first")
        desk.alter("ALTER TABLE inbox RENAME TO away")
        desk.mail.collect()
        assert "no such table" in desk.told[-1]
        desk.alter("ALTER TABLE away RENAME TO inbox")
        (second,) = desk.arrive("second")
        desk.mail.arrived(second)
        assert await agent.ended(2) == ["injected"] * 2
        await agent.until(lambda: "second" in agent.received())
        assert agent.received().index("first") < agent.received().index("second")
        assert len(desk.told) == 1
        assert desk.courier.waiting() == []

    at_desk(home, tmp_path, fake("lines"), scene)


def test_of_many_that_wait_the_injector_has_a_window_and_every_urgent_one(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        bodies = [f"{n}" for n in range(3 * WINDOW)]
        desk.arrive(*bodies)
        desk.mail.collect()
        injector = desk.agent.injector
        assert injector.pending == len(desk.received) == WINDOW
        for message in desk.arrive("later", "last"):
            desk.mail.arrived(message)
        for message in desk.arrive("now", "and this", priority=Priority.URGENT):
            desk.mail.arrived(message)
        assert injector.pending == WINDOW + 2
        carried: list[str] = []
        while texts := desk.carry():
            carried += texts
            assert injector.pending <= WINDOW
        assert carried == ["now", "and this", *bodies, "later", "last"]
        assert len(desk.received) == len(carried)
        assert set(desk.states()) == {("injected", "native", "system")}

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_nobody_told_of_is_found_in_its_order(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.mail.look()
        assert desk.agent.injector.pending == 0  # not before the session has begun
        desk.mail.collect()
        desk.arrive("behind its back", "and another")
        desk.mail.look()
        assert desk.carry() == ["behind its back", "and another"]
        desk.arrive("forgotten")
        for message in desk.arrive("told of"):
            desk.mail.arrived(message)
        assert desk.carry() == ["forgotten", "told of"]

    at_desk(home, tmp_path, DIALOG, scene)


def test_an_answer_to_what_came_in_a_hooks_reply_is_one_deeper(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        with Ledger(desk.place.ledger) as ledger:
            for name in ("Alice", "Carol"):
                ledger.registry.register("default", name)
            ledger.outbox.send("default", "Alice", ["Bob"], "question", depth=7)
            (parcel,) = ledger.outbox.claim("default", "Alice", lambda *_: None, 1)
            ledger.inbox.store("default", parcel)
        desk.mail.collect()
        assert desk.carry() == ["question"]
        (answer,) = desk.mail.send("alice", "answer")
        (other,) = desk.mail.send("Carol", "by the way")
        assert (answer.depth, answer.reply_to, answer.thread) == (8, parcel.message.id, parcel.message.id)
        assert (other.depth, other.reply_to, other.thread) == (8, None, None)
        desk.mail.person_spoke()
        (fresh,) = desk.mail.send("Alice", "something else")
        assert (fresh.depth, fresh.reply_to) == (1, None)

    at_desk(home, tmp_path, DIALOG, scene)


def test_a_notice_that_rides_along_makes_no_answer_deeper(home: Path, tmp_path: Path) -> None:
    """Else one that tells of what is held would have the next chain held at its beginning."""

    async def scene(desk: Desk) -> None:
        with Ledger(desk.place.ledger) as ledger:
            for name in ("Alice", "Carol"):
                ledger.registry.register("default", name)
            ledger.outbox.send("default", "Alice", ["Bob"], "question", depth=Limits().depth)
            (parcel,) = ledger.outbox.claim("default", "Alice", lambda *_: None, 1)
            ledger.inbox.store("default", parcel)
        desk.mail.collect()
        assert desk.carry() == ["question"]
        (held,) = desk.mail.send("Alice", "answer")
        (notice,) = desk.notices
        assert (held.state, notice.wakes) == (State.HELD, False)
        desk.mail.person_spoke()
        desk.mail.typing(notice)
        (fresh,) = desk.mail.send("Carol", "something else")
        assert fresh.depth == 1

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_is_held_for_the_person_is_not_shown_to_them(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        for number in range(1000):
            (sent,) = desk.mail.send(names.PERSON, f"number {number}")
            if sent.state is State.HELD:
                break
        assert f"Bob says to you: number {number - 1}" in desk.told
        assert f"Bob says to you: number {number}" not in desk.told
        assert any("messages to you are held" in text for text in desk.told)

    at_desk(home, tmp_path, DIALOG, scene)


def test_an_end_that_the_ledger_did_not_take_is_noted_later(home: Path, tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.arrive("one")
        desk.mail.collect()
        (taken,) = desk.agent.injector.take(1_000)
        desk.alter("ALTER TABLE inbox RENAME TO away")
        desk.agent.injector.delivered(taken, Outcome(Result.INJECTED, role="system"))
        assert "is injected, and nobody learns it before" in desk.told[-1]
        desk.mail.look()
        desk.alter("ALTER TABLE away RENAME TO inbox")
        assert desk.states() == [("stored", None, None)]
        desk.mail.look()
        assert desk.states() == [("injected", "native", "system")]
        assert desk.agent.injector.pending == 0

    at_desk(home, tmp_path, DIALOG, scene)


def test_nothing_is_given_while_there_is_no_bus_and_nothing_twice(home: Path, tmp_path: Path) -> None:
    """As while the ledger cannot be opened again, or another host has the name."""

    async def scene(desk: Desk) -> None:
        desk.arrive("one", "two")
        desk.mail.collect()
        one, two = desk.agent.injector.take(1_000)
        desk.mail.use(NoBus(NameInUse("another host has the name.")))
        desk.agent.injector.delivered(one, Outcome(Result.INJECTED, role="system"))
        desk.agent.injector.put_back([two])
        desk.mail.look()
        assert desk.carry() == []
        desk.mail.use(desk.courier)
        with Ledger(desk.place.ledger) as ledger:
            assert not ledger.inbox.recover("default", "Bob")  # as the courier does when it begins
        assert desk.states() == [("injected", "native", "system"), ("stored", None, None)]
        desk.agent.injector._clock = lambda: float("inf")
        assert desk.carry() == ["two"]
        assert desk.states() == [("injected", "native", "system")] * 2

    at_desk(home, tmp_path, DIALOG, scene)


def test_what_is_gone_from_the_ledger_is_not_given_any_more(home: Path, tmp_path: Path) -> None:
    """Nor is the agent told that something is held once it was released; what is held next is told again."""

    async def scene(desk: Desk) -> None:
        injector = desk.agent.injector
        dropped, _, typed = desk.arrive("dropped", "kept", "typed")
        desk.mail.collect()
        desk.courier.injecting(typed.id)
        with Ledger(desk.place.ledger) as ledger:
            ledger.registry.register("default", "Alice")
            ledger.drop(dropped.id)
            desk.mail.look()
            assert injector.pending == 2
            desk.mail.look()

            def flood() -> None:
                desk.mail._chain.given(Limits().depth, begins=True)
                desk.mail.send("Alice", "answer")

            flood()
            flood()
            notices = len(desk.notices)
            assert notices == 1
            injector.submit(desk.notices[0])
            assert injector.pending == 3
            ledger.outbox.release(ledger.held())
            flood()
            assert (injector.pending, len(desk.notices)) == (2, 2)
            injector.submit(desk.notices[1])
            ledger.outbox.release(ledger.held())
            desk.mail.look()
            assert injector.pending == 2
        assert desk.carry() == ["kept", "typed"]

    at_desk(home, tmp_path, DIALOG, scene)


def test_an_idle_receiver_is_woken_for_what_appears_in_the_ledger(relay: Relay) -> None:
    """As after a session that was killed between storing a message and giving it to its agent."""
    bob = Puppet(relay, "Bob").wrap()
    relay("send", "--wait", "20", "Bob", "hello")
    with Ledger(Home.from_env(relay.environment).ledger) as ledger:
        ledger.outbox.send("default", "Alice", ["Bob"], "behind its back")
        for parcel in ledger.outbox.claim("default", "Alice", lambda *_: None, 1):
            ledger.inbox.store("default", parcel)
    bob.hears("behind its back")
    wait_until(lambda: states(relay) == ["injected"] * 2)
