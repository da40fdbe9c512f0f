"""Mail: what waits in the ledger is typed in its order, also after the ledger could not be used."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from pathlib import Path

from injection.ptyagent import fake, running
from relay.bus.courier import Courier
from relay.bus.ledger import Ledger
from relay.bus.message import Message
from relay.home import Home
from relay.injection.injection import Injection, Outcome, Result
from relay.journal import Journal
from relay.session.mail import Mail
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


def notice(text: str, *, wakes: bool) -> Injection:
    return Injection(text, text, "relay", "notice", wakes)


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


def test_a_message_in_a_hooks_reply_is_settled_as_what_became_of_it(home: Path, tmp_path: Path) -> None:
    """Not passed on: it waits again. Passed on: it is injected, natively. Neither is known: uncertain."""
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()

    async def main() -> None:
        courier = Courier(place, "default", "Bob", on_message=print, on_outcome=print, on_status=print)
        async with running(fake("tui", "paste", "dialog"), tmp_path) as agent:
            mail = Mail(
                courier,
                agent.injector,
                deque(),
                Journal(place.journal, "id", "Bob", print),
                fire=lambda event: None,
                tell_agent=notice,
                tell_person=print,
                tell_held=print,
            )
            agent.begin, agent.end_of = mail.typing, mail.typed
            with Ledger(place.ledger) as ledger:
                for body in ("one", "two"):
                    ledger.outbox.send("default", "Alice", ["Bob"], body)
                for parcel in ledger.outbox.claim("default", "Alice", lambda *_: None, 2):
                    ledger.inbox.store("default", parcel)
            mail.collect()
            taken = agent.injector.take(1_000)
            assert [each.text for each in taken] == ["one", "two"] and courier.waiting() == []
            agent.injector.put_back(taken)
            assert [message.body for message in courier.waiting()] == ["one", "two"]
            one, two = agent.injector.take(1_000)
            agent.injector.delivered(one, Outcome(Result.INJECTED, role="system"))
            agent.injector.delivered(two, Outcome(Result.UNCERTAIN, "it died"))
            with Ledger(place.ledger) as ledger:
                known = [entry.message for entry in ledger.messages()]
            assert [(each.state, each.route, each.role) for each in known] == [
                ("injected", "native", "system"),
                ("uncertain", "native", None),
            ]
            assert courier.waiting() == []

    asyncio.run(main())


def test_what_waits_is_collected_as_soon_as_the_ledger_can_be_read(home: Path, tmp_path: Path) -> None:
    """What comes meanwhile does not overtake it."""
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()
    told: list[str] = []

    def arrive(body: str) -> Message:
        with Ledger(place.ledger) as ledger:
            ledger.outbox.send("default", "Alice", ["Bob"], body)
            (parcel,) = ledger.outbox.claim("default", "Alice", lambda *_: None, 1)
            (message,) = ledger.inbox.store("default", parcel)
        return message

    def alter(statement: str) -> None:
        with sqlite3.connect(place.ledger) as other:
            other.execute(statement)
        other.close()

    async def main() -> None:
        courier = Courier(place, "default", "Bob", on_message=print, on_outcome=print, on_status=told.append)
        async with running(fake("lines"), tmp_path) as agent:
            mail = Mail(
                courier,
                agent.injector,
                deque(),
                Journal(place.journal, "id", "Bob", told.append),
                fire=lambda event: None,
                tell_agent=notice,
                tell_person=told.append,
                tell_held=told.append,
            )
            agent.begin, agent.end_of = mail.typing, mail.typed
            arrive("first")
            alter("ALTER TABLE inbox RENAME TO away")
            mail.collect()
            assert "no such table" in told[-1]
            alter("ALTER TABLE away RENAME TO inbox")
            mail.arrived(arrive("second"))
            assert await agent.ended(2) == ["injected"] * 2
            await agent.until(lambda: "second" in agent.received())
            assert agent.received().index("first") < agent.received().index("second")
            assert len(told) == 1
            assert courier.waiting() == []

    asyncio.run(main())
