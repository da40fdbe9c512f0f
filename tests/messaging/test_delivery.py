"""Delivery while the receiver, the sender or the broker is away, hangs or dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from clients import Agent, abroad, register, running, send_as_user

from ledgers import in_ledger, post
from relay import names
from relay.backoff import Backoff
from relay.errors import MessageRefused, NameInUse, UnknownRecipient
from relay.home import Home
from relay.message import MAX_BODY, State
from relay.messaging import client, publisher
from relay.messaging.ledger import Ledger
from relay.messaging.transit import WINDOW
from relay.transport import broker, topics
from relay.transport.mqtt import MqttTransport
from support import LONG, eventually


@contextlib.asynccontextmanager
async def hung(home: Home) -> AsyncIterator[None]:
    """Stop the home's broker with SIGSTOP for a block."""
    status = await asyncio.to_thread(broker.status, home)
    assert status is not None
    assert status.pid is not None
    os.kill(status.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # on a slow machine, it has been replaced
            os.kill(status.pid, signal.SIGCONT)


def test_mail_waits_for_an_absent_agent(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            for number in range(20):
                await alice.send("Bob", f"while away {number}")
            async with running(Agent(home, "Bob")) as bob:
                expected = [f"while away {number}" for number in range(20)]
                assert [m.body for m in await bob.receive(20)] == expected
                assert await bob.waiting() == expected
        assert bob.messages.empty()

    asyncio.run(scenario())


def test_stored_mail_is_waiting_after_a_restart(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")) as bob:
                await alice.send("Bob", "later")
                await bob.receive()
            async with running(Agent(home, "Bob")) as restarted:
                assert await restarted.waiting() == ["later"]
                await restarted.inject((await restarted.client.waiting())[0])
                await alice.outcome(State.INJECTED)

    asyncio.run(scenario())


def test_within_a_home_only_one_copy_of_a_message_passes_through_the_broker(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages and outcomes are in the shared ledger; the copy is for programs outside."""
    monkeypatch.setattr(client, "SWEEP_EVERY", 3600.0)
    monkeypatch.setattr(publisher, "RETRY", Backoff(3600.0, 3600.0))
    published: list[str] = []
    for name in ("publish", "send"):
        original = getattr(MqttTransport, name)

        def counted(*arguments: Any, original: Any = original, **named: Any) -> Any:
            if "/inbox/" in arguments[1]:
                published.append(arguments[1])
            return original(*arguments, **named)

        monkeypatch.setattr(MqttTransport, name, counted)

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            await eventually(lambda: alice.knows("Bob"))
            for number in range(WINDOW + 20):
                await alice.send("Bob", str(number))
            for message in await bob.receive(WINDOW + 20):
                await bob.inject(message)
            for _ in range(WINDOW + 20):
                await alice.outcome(State.INJECTED)
            await eventually(lambda: len(published) >= WINDOW + 20)
        assert published == [topics.inbox("default", "Bob", "Alice")] * (WINDOW + 20)

    asyncio.run(scenario())


def test_an_ended_agents_mail_is_published_by_another(home: Home) -> None:
    async def scenario() -> None:
        gone = Agent(home, "Gone")
        async with running(await abroad(home, "Bob")) as bob, running(Agent(home, "Carol")) as carol:
            await carol.sees("Bob")
            await gone.open()
            await gone.send("Bob", "my last words")
            await gone.client.close()
            carol.notify()
            (message,) = await bob.receive()
            assert (message.sender, message.body) == ("Gone", "my last words")

    asyncio.run(scenario())


def test_a_users_message_is_published_by_a_session_and_its_outcome_recorded(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(await abroad(home, "Bob")) as bob:
            await alice.sees("Bob")

            async def send_as_user(text: str) -> None:
                await in_ledger(home, lambda ledger: post(ledger, "default", names.PERSON, "bob", text))
                alice.notify()

            await send_as_user("from the keyboard")
            (message,) = await bob.receive()
            assert message.sender == names.PERSON
            await bob.inject(message)
            await alice.all_are(State.INJECTED)
            await send_as_user("again")  # on the same connection
            assert (await bob.receive())[0].body == "again"

    asyncio.run(scenario())


def test_a_users_message_reaches_an_agent_of_the_home_and_its_outcome_is_recorded(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob:
            await send_as_user(home, "Bob", "from the keyboard")
            (message,) = await bob.receive()
            assert message.sender == names.PERSON
            await bob.inject(message)
            assert [each.state for each in await bob.ledger()] == [State.INJECTED]

    asyncio.run(scenario())


def test_a_message_to_the_user_is_stored_in_the_ledger(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            await alice.send(names.PERSON, "done")
            (message,) = await alice.ledger()
            assert (message.to, message.body, message.state) == (names.PERSON, "done", State.STORED)

    asyncio.run(scenario())


def test_a_broadcast_reaches_every_other_online_agent(home: Home) -> None:
    """R47, U2: a broadcast reaches every online agent except its sender, each as a separate message."""

    async def scenario() -> None:
        await register(home, "Away")
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(home, "Bob")) as bob,
            running(Agent(home, "Carol")) as carol,
            running(Agent(home, "Dan", team="other")) as dan,
        ):
            sent = await alice.send("*", "hello all")
            assert [m.to for m in sent] == ["Bob", "Carol"]
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
        ("", "hi", UnknownRecipient, "has no agent called"),
        ("Bob", " \n", MessageRefused, "empty"),
        ("Bob", "x" * (MAX_BODY + 1), MessageRefused, "65537 bytes; the limit is 65536"),
        ("Bob", "语" * 22000, MessageRefused, "66000 bytes"),
        ("Bob", "\udcff", MessageRefused, "not UTF-8"),
        ("alice", "hi", MessageRefused, "is the sender"),
        ("#general", "hi", UnknownRecipient, "is in #general"),
    ],
)
def test_an_invalid_message_is_rejected_with_the_reason(
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


def test_a_message_without_a_receiver_is_rejected(home: Home) -> None:
    with Ledger(home.ledger) as ledger:
        ledger.registry.register("default", "Alice")
        with pytest.raises(UnknownRecipient, match="has no other agents"):
            post(ledger, "default", "Alice", "*", "hello")
        with pytest.raises(UnknownRecipient, match="The team has no agents"):
            post(ledger, "default", "Alice", "Bob", "hello")


def test_a_name_can_be_on_the_bus_only_once(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")):
            with pytest.raises(NameInUse, match="already on the bus"):
                await Agent(home, "alice").open()

    asyncio.run(scenario())


def test_a_killed_broker_loses_no_message(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(await abroad(home, "Bob")) as bob:
            await alice.sees("Bob")
            expected = []
            for round_ in range(3):
                for number in range(30):
                    expected.append(f"{round_}.{number}")
                    await alice.send("Bob", expected[-1])
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
                await bob.inject(message)
            await alice.all_are(State.INJECTED)

    asyncio.run(scenario())


def test_a_stopped_broker_is_restarted_on_demand(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(await abroad(home, "Bob")) as bob:
            await alice.sees("Bob")
            assert await asyncio.to_thread(broker.stop, home)
            await alice.send("Bob", "over the next broker")
            assert [m.body for m in await bob.receive()] == ["over the next broker"]

    asyncio.run(scenario())


def test_a_hung_broker_only_delays_messages(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(await abroad(home, "Bob")) as bob:
            await alice.sees("Bob")
            async with hung(home):
                for number in range(100):
                    await alice.send("Bob", str(number))
                assert len(await alice.ledger()) == 100
            assert [m.body for m in await bob.receive(100)] == [str(number) for number in range(100)]

    asyncio.run(scenario())


def test_more_messages_than_are_in_flight_wait_and_arrive_in_order(home: Home) -> None:
    count = 1000 if LONG else WINDOW + 50

    async def scenario() -> None:
        await register(home, "Bob", here=False)
        async with running(Agent(home, "Alice"), connected=False) as alice:
            sent = [str(number) for number in range(count)]
            await asyncio.gather(*(alice.send("Bob", body) for body in sent))
            async with running(await abroad(home, "Bob")) as bob:
                got = await bob.receive(count // 2)
            async with running(await abroad(home, "Bob")) as restarted:

                async def all_there() -> bool:
                    return len(await restarted.waiting()) == count

                await eventually(all_there)
                assert await restarted.waiting() == sent
        assert [m.body for m in got] == sent[: count // 2]

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["one home", "two homes"])
def test_mail_for_an_absent_agent_never_fills_the_broker(
    home: Home, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A broker whose store is full accepts nothing, not even a login."""
    monkeypatch.setattr(broker, "_MAX_STORE", 1 << 20)

    async def scenario() -> None:
        first, second = [
            await abroad(home, "Bob") if place == "two homes" else Agent(home, "Bob") for _ in range(2)
        ]
        async with running(Agent(home, "Alice")) as alice:
            async with running(first):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            large = [f"{number} {'x' * 60_000}" for number in range(40)]
            for body in large:
                await alice.send("Bob", body)
            async with running(Agent(home, "Carol")) as carol:
                await alice.send("Carol", "hello")
                assert [m.body for m in await carol.receive()] == ["hello"]
            async with running(second) as bob:
                assert [m.body for m in await bob.receive(40)] == large

    asyncio.run(scenario())


RECEIVER = """
import asyncio, sys
from relay.messaging.client import MessagingClient
from relay.messaging.events import MessageStored
from relay.home import Home

async def main():
    async def typing(message):
        await client.injecting(message.id)
        print(message.id, flush=True)   # and now it is killed
    def publish(event):
        if isinstance(event, MessageStored):
            tasks.append(asyncio.ensure_future(typing(event.message)))
    tasks = []
    client = await MessagingClient.open(Home.from_env(), "default", "Bob", publish=publish)
    await client.run()

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
                (sent,) = await alice.send("Bob", "half typed")
                assert receiver.stdout is not None
                assert (await receiver.stdout.readline()).decode().strip() == sent.id
            finally:
                receiver.kill()
                await receiver.wait()
            # The broker publishes his will; then a session of his home checks what he left.
            assert (await alice.outcome(State.UNCERTAIN)).id == sent.id
            async with running(Agent(home, "Bob")) as bob:
                assert (await bob.client.waiting()) == []
                assert bob.messages.empty()

    asyncio.run(scenario())


def test_a_goodbye_shows_an_agent_as_offline(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")):
                await alice.sees("Bob")
            await alice.sees("Bob", online=False)
            await alice.sees("Alice")

    asyncio.run(scenario())


def test_two_homes_on_one_broker_exchange_messages_and_receipts(home: Home) -> None:
    """The sender's ledger learns outcomes only from receipts. For Bob, the broker is an external one."""

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(await abroad(home, "Bob")) as bob:
            await alice.sees("Bob")
            await bob.sees("Alice")
            (sent,) = await alice.send("Bob", "from afar")
            (got,) = await bob.receive()
            assert got.id == sent.id
            await alice.outcome(State.STORED)
            await bob.client.injecting(got.id)
            await bob.client.settle(got.id, State.REJECTED, "it is a shell")
            outcome = await alice.outcome(State.REJECTED)
            assert outcome.detail == "it is a shell"
            await bob.send("Alice", "and back")
            assert (await alice.receive())[0].body == "and back"

    asyncio.run(scenario())
