"""Delivery when somebody is away or dies: receiver, sender, broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
from couriers import Agent, eventually, running

from relay import names
from relay.errors import MessageRefused, NameInUse, UnknownRecipient
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.messaging.message import MAX_BODY, State
from relay.messaging.posting import post
from relay.transport import broker, nats


def test_mail_waits_for_an_agent_that_is_away(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            for number in range(20):
                alice.courier.send("Bob", f"while away {number}")
            bob = Agent(home, "Bob")
            assert bob.courier.waiting() == []
            async with running(bob):
                expected = [f"while away {number}" for number in range(20)]
                assert [m.body for m in await bob.receive(20)] == expected
                assert [m.body for m in bob.courier.waiting()] == expected
        assert bob.messages.empty()

    asyncio.run(scenario())


def test_mail_that_was_stored_and_not_typed_is_there_at_the_next_start(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")) as bob:
                alice.courier.send("Bob", "later")
                await bob.receive()
            again = Agent(home, "Bob")
            async with running(again):
                assert [m.body for m in again.courier.waiting()] == ["later"]
                again.inject(again.courier.waiting()[0])
                await alice.outcome(State.INJECTED)

    asyncio.run(scenario())


def test_mail_of_an_agent_that_has_ended_is_carried_by_another(home: Home) -> None:
    async def scenario() -> None:
        gone = Agent(home, "Gone")
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Carol")) as carol:
            gone.courier.send("Bob", "my last words")
            carol.courier.drain()
            (message,) = await bob.receive()
            assert (message.sender, message.body) == ("Gone", "my last words")
        gone.courier._ledger.close()

    asyncio.run(scenario())


def test_the_persons_message_is_carried_by_a_session_and_its_end_is_known(home: Home) -> None:
    async def scenario() -> None:
        with Ledger(home.ledger) as ledger:
            async with running(Agent(home, "Bob")) as bob:
                (sent,) = post(ledger, "default", names.PERSON, "bob", "from the keyboard")
                bob.courier.drain()
                (message,) = await bob.receive()
                assert message.sender == names.PERSON
                bob.inject(message)
                assert ledger.find(sent.id).message.state is State.INJECTED
                # A second one rides on the same connection.
                post(ledger, "default", names.PERSON, "bob", "again")
                bob.courier.drain()
                assert (await bob.receive())[0].body == "again"

    asyncio.run(scenario())


def test_what_an_agent_says_to_the_person_is_in_the_ledger(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            alice.courier.send(names.PERSON, "done")
            (entry,) = alice.courier._ledger.messages(to=names.PERSON)
            assert (entry.message.body, entry.message.state) == ("done", State.STORED)

    asyncio.run(scenario())


def test_everybody_is_everybody_else(home: Home) -> None:
    """R47: a broadcast reaches every known agent but its sender, each on its own account."""

    async def scenario() -> None:
        away = Agent(home, "Away")
        away.courier._ledger.close()
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(home, "Bob")) as bob,
            running(Agent(home, "Carol")) as carol,
            running(Agent(home, "Dan", team="other")) as dan,
        ):
            sent = alice.courier.send("*", "hello all")
            assert [m.to for m in sent] == ["Away", "Bob", "Carol"]
            for agent in (bob, carol):
                assert [m.body for m in await agent.receive()] == ["hello all"]
            assert alice.messages.empty()
            assert dan.messages.empty()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("to", "body", "error", "words"),
    [
        ("Bbo", "hi", UnknownRecipient, "Did you mean Bob?"),
        ("Zacharias", "hi", UnknownRecipient, "There is Bob"),
        ("", "hi", UnknownRecipient, "nobody in team"),
        ("Bob", " \n", MessageRefused, "empty"),
        ("Bob", "x" * (MAX_BODY + 1), MessageRefused, "65537 bytes, and 65536 are allowed"),
        ("Bob", "语" * 22000, MessageRefused, "66000 bytes"),
        ("Bob", "\udcff", MessageRefused, "not UTF-8"),
        ("alice", "hi", MessageRefused, "the sender itself"),
        ("#general", "hi", UnknownRecipient, "is in #general"),
    ],
)
def test_what_cannot_be_sent_is_said(
    home: Home, to: str, body: str, error: type[Exception], words: str
) -> None:
    with Ledger(home.ledger) as ledger:
        for name in ("Alice", "Bob"):
            ledger.registry.register("default", name)
        with pytest.raises(error, match=words) as caught:
            post(ledger, "default", "Alice", to, body)
        assert ledger.messages() == []
        if to == "Bbo":
            assert isinstance(caught.value, UnknownRecipient)
            assert caught.value.suggestion == "Bob"


def test_nobody_to_send_to_is_said(home: Home) -> None:
    with Ledger(home.ledger) as ledger:
        ledger.registry.register("default", "Alice")
        with pytest.raises(UnknownRecipient, match="nobody else is in team"):
            post(ledger, "default", "Alice", "*", "hello")
        with pytest.raises(UnknownRecipient, match="Nobody was ever in it"):
            post(ledger, "default", "Alice", "Bob", "hello")


def test_a_name_is_on_the_bus_once(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")):
            with pytest.raises(NameInUse, match="on the bus already"):
                await Agent(home, "alice").courier.run()

    asyncio.run(scenario())


def test_a_killed_broker_loses_no_message(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            expected = []
            for round_ in range(3):
                for number in range(30):
                    expected.append(f"{round_}.{number}")
                    alice.courier.send("Bob", expected[-1])
                    if number == 10 * round_:
                        status = await asyncio.to_thread(broker.status, home)
                        if status is not None and status.pid is not None:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(status.pid, signal.SIGKILL)
                        await asyncio.sleep(0)
            got = await bob.receive(len(expected))
            assert [m.body for m in got] == expected
            assert bob.messages.empty()
            for message in got:
                bob.inject(message)
            ledger = alice.courier._ledger
            await eventually(lambda: all(e.message.state is State.INJECTED for e in ledger.messages()))

    asyncio.run(scenario())


def test_a_stopped_broker_is_started_again_by_whoever_needs_it(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            assert await asyncio.to_thread(broker.stop, home)
            alice.courier.send("Bob", "over the next broker")
            assert [m.body for m in await bob.receive()] == ["over the next broker"]

    asyncio.run(scenario())


def test_a_broker_that_hangs_delays_messages_and_nothing_else(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            status = await asyncio.to_thread(broker.status, home)
            assert status is not None
            assert status.pid is not None
            os.kill(status.pid, signal.SIGSTOP)
            try:
                for number in range(100):
                    alice.courier.send("Bob", str(number))
                ledger = alice.courier._ledger
                assert len(ledger.messages()) == 100
                assert bob.messages.empty()
            finally:
                os.kill(status.pid, signal.SIGCONT)
            assert [m.body for m in await bob.receive(100)] == [str(number) for number in range(100)]

    asyncio.run(scenario())


def test_thousands_of_messages_wait_and_arrive_in_order(home: Home) -> None:
    async def scenario() -> None:
        with Ledger(home.ledger) as ledger:
            ledger.registry.register("default", "Bob")
        alice = Agent(home, "Alice")
        for number in range(1000):
            alice.courier.send("Bob", str(number))
        async with running(alice):
            async with running(Agent(home, "Bob")) as bob:
                got = await bob.receive(400)
            async with running(Agent(home, "Bob")) as again:
                await eventually(lambda: len(again.courier.waiting()) == 1000)
                waiting = again.courier.waiting()
        assert [m.body for m in got] == [str(number) for number in range(400)]
        assert [m.body for m in waiting] == [str(number) for number in range(1000)]

    asyncio.run(scenario())


def test_what_waits_for_somebody_away_never_fills_the_broker(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose store is full takes nothing more from anybody, not even a login."""
    monkeypatch.setattr(nats, "_MAX_STORE", 1 << 20)

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            large = [f"{number} {'x' * 60_000}" for number in range(40)]
            for body in large:
                alice.courier.send("Bob", body)
            async with running(Agent(home, "Carol")) as carol:
                alice.courier.send("Carol", "hello")
                assert [m.body for m in await carol.receive()] == ["hello"]
            async with running(Agent(home, "Bob")) as bob:
                assert [m.body for m in await bob.receive(40)] == large

    asyncio.run(scenario())


RECEIVER = """
import asyncio, sys
from relay.messaging.client import Courier
from relay.home import Home

async def main():
    def typing(message):
        courier.injecting(message.id)
        print(message.id, flush=True)   # and now it is killed
    courier = Courier(Home.from_env(), "default", "Bob", on_message=typing,
                      on_outcome=print, on_status=lambda text: None)
    await courier.run()

asyncio.run(main())
"""


def test_a_receiver_that_dies_while_typing_leaves_an_uncertain_message(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            receiver = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", RECEIVER),
                env={**os.environ, "RELAY_HOME": str(Path(home.state_dir).parent)},
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                await alice.sees("Bob")
                (sent,) = alice.courier.send("Bob", "half typed")
                assert receiver.stdout is not None
                assert (await receiver.stdout.readline()).decode().strip() == sent.id
            finally:
                receiver.kill()
                await receiver.wait()
            # His will, which the broker publishes, has a session of his home look after what he left.
            assert (await alice.outcome(State.UNCERTAIN)).id == sent.id
            async with running(Agent(home, "Bob")) as bob:
                assert bob.courier.waiting() == []
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_goodbyes_and_killed_agents_are_seen(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            await alice.sees("Alice")

    asyncio.run(scenario())


def test_two_homes_on_one_broker_reach_each_other(home: Home, tmp_path: Path) -> None:
    """The sender's ledger learns of the end by receipts alone; the broker is an external one by its URL."""

    async def scenario() -> None:
        far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()
        endpoint, _ = await asyncio.to_thread(broker.admit, home, "default", "Bob")
        bobs = await asyncio.to_thread(broker.credentials, home, "default", "Bob")
        url = f"mqtt://{bobs.user.replace('/', '%2F')}:{bobs.password}@127.0.0.1:{endpoint.port}"
        async with running(Agent(home, "Alice")) as alice, running(Agent(far, "Bob", url=url)) as bob:
            await alice.sees("Bob")
            await bob.sees("Alice")
            (sent,) = alice.courier.send("Bob", "from afar")
            (got,) = await bob.receive()
            assert got.id == sent.id
            await alice.outcome(State.STORED)
            bob.courier.injecting(got.id)
            bob.courier.settle(got.id, State.REJECTED, "it is a shell")
            outcome = await alice.outcome(State.REJECTED)
            assert outcome.detail == "it is a shell"
            bob.courier.send("Alice", "and back")
            assert (await alice.receive())[0].body == "and back"

    asyncio.run(scenario())
