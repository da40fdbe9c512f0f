"""Messages within a home need no broker; programs outside get a copy of each, and can send, too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from clients import Agent, abroad, running, send_as_user

from ledgers import in_ledger, send
from relay import names
from relay.cli.main import dispatch
from relay.control.claiming import claim
from relay.errors import NameInUse
from relay.home import Home
from relay.message import Message, State
from relay.messaging import client as messaging_client
from relay.messaging.envelope import Envelope, Receipt, decode, encode
from relay.messaging.name_owners import Owner
from relay.messaging.receiver import Receiver
from relay.messaging.runaway import Limits
from relay.transport import broker, presence, topics
from relay.transport.arrivals import Inbound
from support import PATIENCE, eventually

OWNER = Owner.of_folder(Path("/project"))
"""Bob's, wherever he runs."""


@contextlib.asynccontextmanager
async def program(home: Home, name: str) -> AsyncIterator[aiomqtt.Client]:
    """Yield a plain MQTT client with the credentials of `name`, connected to the broker of `home`."""
    endpoint, own = await asyncio.to_thread(broker.admit, home, "default", name)
    identifier = f"program-{secrets.token_hex(8)}"
    async with aiomqtt.Client(
        endpoint.host, endpoint.port, username=own.user, password=own.password, identifier=identifier
    ) as client:
        yield client


async def received(client: aiomqtt.Client, count: int = 1) -> list[Envelope | Receipt]:
    """Return the next payloads that reach a program, decoded, as any receiver checks them."""
    found = []
    async with asyncio.timeout(PATIENCE):
        async for each in client.messages:
            topic = topics.parse(str(each.topic))
            assert isinstance(topic, topics.InboxTopic)
            assert isinstance(each.payload, bytes)
            assert not each.retain
            found.append(decode(each.payload, topic))
            if len(found) == count:
                break
    return found


async def pid_of_broker(home: Home) -> int:
    status = await asyncio.to_thread(broker.status, home)
    assert status is not None
    assert status.pid is not None
    return status.pid


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def copies(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the ids of the copies that each agent is going to receive, in order."""
    found: dict[str, list[str]] = {}
    hand_over = Receiver._hand_over

    def noted(self: Receiver, inbound: Inbound, topic: topics.InboxTopic) -> Any:
        item = decode(inbound.payload, topic)
        if isinstance(item, Envelope) and item.sequence == 0:
            found.setdefault(self.name, []).append(item.message.id)
        return hand_over(self, inbound, topic)

    monkeypatch.setattr(Receiver, "_hand_over", noted)
    return found


async def exchange(alice: Agent, bob: Agent, count: int) -> list[Message]:
    """Check that `count` messages arrive, in order and once, and that their outcomes come back."""
    sent = [(await alice.send("Bob", body))[0] for body in numbers(count)]
    assert {each.state for each in sent} == {State.STORED}
    got = await bob.receive(count)
    assert [each.id for each in got] == [each.id for each in sent]
    for message in got:
        await bob.inject(message)
        assert (await alice.outcome(State.INJECTED)).id == message.id
    assert bob.messages.empty()
    assert alice.outcomes.empty()
    return sent


# Without a broker.


def test_messages_arrive_while_the_broker_hangs_and_not_again_afterwards(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = copies(monkeypatch)

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            pid = await pid_of_broker(home)
            os.kill(pid, signal.SIGSTOP)
            try:
                await exchange(alice, bob, 50)
            finally:
                with contextlib.suppress(ProcessLookupError):  # on a slow machine, it has been replaced
                    os.kill(pid, signal.SIGCONT)
            later: set[str] = set()

            async def a_later_copy_arrives() -> bool:  # behind those of the messages above
                (sent,) = await alice.send("Bob", "later")
                later.add(sent.id)
                assert [each.id for each in await bob.receive()] == [sent.id]
                return bool(later & {*copied.get("Bob", [])})

            await eventually(a_later_copy_arrives)
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_messages_arrive_after_the_broker_was_killed_for_good(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            monkeypatch.setattr(broker, "binary", lambda: Path("/bin/false"))
            os.kill(await pid_of_broker(home), signal.SIGKILL)
            for agent in (alice, bob):
                await agent.status("the broker could not be started")
            await exchange(alice, bob, 50)
            assert not alice.client.connected

    asyncio.run(scenario())


def test_messages_arrive_if_no_broker_can_be_started(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to an agent that starts later, and from the user."""
    monkeypatch.setattr(broker, "binary", lambda: Path("/bin/false"))

    async def scenario() -> None:
        async with running(Agent(home, "Alice"), connected=False) as alice:
            await alice.status("the broker could not be started")
            async with running(Agent(home, "Bob"), connected=False) as bob:
                await exchange(alice, bob, 10)
                await send_as_user(home, "Bob", "from the keyboard")
                (message,) = await bob.receive()
                assert (message.sender, message.body) == (names.PERSON, "from the keyboard")
                await bob.inject(message)
            await alice.send("Bob", "while away")
            async with running(Agent(home, "Bob"), connected=False) as bob:
                assert [each.body for each in await bob.receive()] == ["while away"]

    asyncio.run(scenario())


def test_messages_arrive_if_an_external_broker_is_unreachable(home: Home) -> None:
    async def scenario() -> None:
        url = "mqtt://127.0.0.1:1"
        alice, bob = Agent(home, "Alice", url=url), Agent(home, "Bob", url=url)
        async with running(alice, connected=False), running(bob, connected=False):
            await alice.status("no connection to the broker")
            await exchange(alice, bob, 10)

    asyncio.run(scenario())


def test_messages_arrive_while_the_broker_is_replaced_again_and_again(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            for _ in range(3):
                os.kill(await pid_of_broker(home), signal.SIGKILL)
                await exchange(alice, bob, 20)
                for agent in (alice, bob):
                    await eventually(lambda agent=agent: agent.client.connected)
                await exchange(alice, bob, 1)

    asyncio.run(scenario())


def test_a_receiver_that_restarts_gets_what_is_stored_once_and_in_order(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")) as bob:
                for body in numbers(5):
                    await alice.send("Bob", body)
                first, second, *_ = await bob.receive(5)
                for message in (first, second):
                    await bob.inject(message)
            for body in ("5", "6"):
                await alice.send("Bob", body)
            async with running(Agent(home, "Bob")) as bob:
                await alice.send("Bob", "7")
                assert [each.body for each in await bob.receive(6)] == numbers(8)[2:]
                assert await bob.waiting() == numbers(8)[2:]
                assert bob.messages.empty()

    asyncio.run(scenario())


# Programs outside.


def test_a_program_that_listens_gets_each_message_of_an_agent_once(home: Home) -> None:
    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(home, "Bob")) as bob,
            program(home, "Bob") as outside,
        ):
            await outside.subscribe(topics.inbox_filter("default", "Bob"), 1)
            sent = await exchange(alice, bob, 20)
            sent += await alice.send("*", "to all", thread="news")
            found = await received(outside, 21)
        assert [each.message.id for each in found if isinstance(each, Envelope)] == [each.id for each in sent]
        last = found[-1]
        assert isinstance(last, Envelope)
        assert (last.message.sender, last.message.to, last.message.body, last.message.thread) == (
            *("Alice", "Bob"),
            *("to all", "news"),
        )
        assert last.sequence == 0

    asyncio.run(scenario())


def test_a_program_that_listens_gets_each_message_of_the_user_once(home: Home) -> None:
    """The user has no session: one session of the home publishes the copies, however many there are."""

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(home, "Bob")) as bob,
            program(home, "Bob") as outside,
        ):
            await outside.subscribe(topics.inbox_filter("default", "Bob"), 1)
            for number in ("1", "2", "3"):
                await send_as_user(home, "Bob", number)
                for agent in (alice, bob):  # `relay send` makes one do this
                    agent.notify()
                (copy,) = await received(outside)
                assert isinstance(copy, Envelope)
                assert (copy.message.sender, copy.message.body) == (names.PERSON, number)
            assert [each.body for each in await bob.receive(3)] == ["1", "2", "3"]
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_a_released_message_is_copied_when_it_is_stored(home: Home) -> None:
    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(home, "Bob")) as bob,
            program(home, "Bob") as outside,
        ):
            await outside.subscribe(topics.inbox_filter("default", "Bob"), 1)
            alice.client._limits = type(alice.client._limits)(depth=8)
            (held,) = await alice.send("Bob", "held", depth=9)
            assert held.state is State.HELD
            (behind,) = await alice.send("Bob", "behind it")
            await in_ledger(home, lambda ledger: ledger.outbox.release([behind.id, held.id]))
            for agent in (alice, bob):
                agent.notify()
            found = await received(outside, 2)
            copied = [each.message.id for each in found if isinstance(each, Envelope)]
            assert copied == [each.id for each in await bob.receive(2)] == [held.id, behind.id]

    asyncio.run(scenario())


def parcel(sender: str, sequence: int, *, body: str = "hello", home: str | None = None) -> bytes:
    message = Message(f"{sender}-{sequence}-{body.replace(' ', '-')}", sender, "Bob", body, 1.0)
    return encode(Envelope(message, "program", sequence, sequence, home=home))


def test_a_program_can_send_as_another_home_and_gets_receipts(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, program(home, "Script") as script:
            await script.subscribe(topics.inbox_filter("default", "Script"), 1)
            topic = topics.inbox("default", "Bob", "Script")
            for number in (1, 2, 2):
                await script.publish(topic, parcel("Script", number), qos=1)
            first, second = await bob.receive(2)
            assert [each.id for each in (first, second)] == ["Script-1-hello", "Script-2-hello"]
            states: set[tuple[str, State]] = set()

            async def reported(*expected: tuple[str, State]) -> None:
                while not {*expected} <= states:
                    (receipt,) = await received(script)
                    assert isinstance(receipt, Receipt)
                    states.add((receipt.id, receipt.state))

            await reported((first.id, State.STORED), (second.id, State.STORED))
            await bob.inject(first)
            await reported((first.id, State.INJECTED))
            assert bob.messages.empty()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["one home", "two homes"])
@pytest.mark.parametrize("claims", ["any home", "the receiver's home", "another home"])
def test_a_copy_is_never_stored_whichever_home_it_names(home: Home, place: str, claims: str) -> None:
    """A forged one, too."""

    async def scenario() -> None:
        receiver = Agent(home, "Bob") if place == "one home" else await abroad(home, "Bob")
        async with running(receiver) as bob, program(home, "Mallory") as mallory:
            origin = await in_ledger(bob.home, lambda ledger: ledger.origin)
            target = {"any home": None, "the receiver's home": origin, "another home": "0123456789abcdef"}
            topic = topics.inbox("default", "Bob", "Mallory")

            for number in range(10):
                forged = parcel("Mallory", 0, body=f"forged {number}", home=target[claims])
                await mallory.publish(topic, json.dumps(json.loads(forged)).encode(), qos=1)
                await mallory.publish(topic, forged, qos=1)
            await mallory.publish(topic, parcel("Mallory", 1, body="genuine"), qos=1)
            assert [each.body for each in await bob.receive()] == ["genuine"]
            assert [each.body for each in await bob.ledger()] == ["genuine"]
            assert bob.messages.empty()
            assert bob.ignored == 0

    asyncio.run(scenario())


def test_a_forged_copy_of_a_waiting_message_changes_nothing(home: Home) -> None:
    """It has the id of a message that Bob has, but another text."""

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(home, "Bob")) as bob,
            program(home, "Mallory") as mallory,
        ):
            (sent,) = await alice.send("Bob", "genuine")
            await bob.receive()
            topic = topics.inbox("default", "Bob", "Mallory")
            for sequence in (0, 1):
                message = Message(sent.id, "Mallory", "Bob", "forged", 1.0)
                await mallory.publish(topic, encode(Envelope(message, "program", sequence, sequence)), qos=1)
            await eventually(lambda: bob.ignored == 1)  # the second one is no copy
            assert [(each.id, each.body) for each in await bob.client.waiting()] == [(sent.id, "genuine")]
            assert [each.body for each in await bob.ledger()] == ["genuine"]
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_a_message_that_the_user_releases_or_retries_arrives_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These commands ring the receiver's bell; it does not wait for its next periodic look."""
    monkeypatch.setattr(messaging_client, "SWEEP_EVERY", 1e6)
    monkeypatch.setattr(presence, "HEARTBEAT", 3600.0)  # an announcement leads to a look
    monkeypatch.setenv("RELAY_HOME", str(home.state.parent))

    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob:
            limits = Limits(depth=1)
            (held,) = await in_ledger(
                home, lambda ledger: send(ledger, "default", "Alice", ["Bob"], "x", limits=limits, depth=2)
            )
            assert held.state is State.HELD
            await asyncio.to_thread(dispatch, ["release", held.id])
            assert [each.id for each in await bob.receive()] == [held.id]
            await bob.client.settle(held.id, State.REJECTED)
            await asyncio.to_thread(dispatch, ["retry", held.id])
            assert [each.body for each in await bob.receive()] == ["x"]

    asyncio.run(scenario())


# Receivers that move.


def test_waiting_messages_follow_their_receiver_to_another_home_and_back(home: Home) -> None:
    """Each arrives once, in order, and its outcome comes back."""

    async def injected(agent: Agent, bodies: list[str]) -> None:
        got = await agent.receive(len(bodies))
        assert [each.body for each in got] == bodies
        for message in got:
            await agent.inject(message)

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:

            async def reported(bodies: list[str]) -> None:
                assert [(await alice.outcome(State.INJECTED)).body for _ in bodies] == bodies

            async with running(Agent(home, "Bob", owner=OWNER)) as bob:
                await alice.send("Bob", "here")
                await injected(bob, ["here"])
                await reported(["here"])
                for body in ("0", "1"):
                    await alice.send("Bob", body)
                await bob.receive(2)
            await alice.sees("Bob", online=False)
            await alice.send("Bob", "2")
            async with running(await abroad(home, "Bob", owner=OWNER)) as bob:
                await injected(bob, numbers(3))
                await reported(numbers(3))
                assert (await alice.send("Bob", "3"))[0].state is State.QUEUED
                await injected(bob, ["3"])
                await reported(["3"])
                assert bob.messages.empty()
            await alice.sees("Bob", online=False)
            for body in ("4", "5"):
                assert (await alice.send("Bob", body))[0].state is State.QUEUED
            async with running(Agent(home, "Bob", owner=OWNER)) as bob:
                await alice.send("Bob", "6")
                await injected(bob, ["4", "5", "6"])
                await reported(["4", "5", "6"])
                (local,) = await alice.send("Bob", "7")
                assert local.state is State.STORED
                await injected(bob, ["7"])
                await reported(["7"])
                assert bob.messages.empty()
        assert [each.state for each in await alice.ledger()] == [State.INJECTED] * 9

    asyncio.run(scenario())


def test_messages_reach_the_agent_elsewhere_after_one_of_its_name_was_refused_here(home: Home) -> None:
    """For all of them the broker is an external one, so only it knows who has the name."""
    near = Home.from_env({"RELAY_HOME": str(home.state.parent.parent / "near")}).ensure()

    async def scenario() -> None:
        bob = await abroad(home, "Bob")
        alice = Agent(near, "Alice", url=(await abroad(home, "Alice")).url)
        async with running(bob), running(alice):
            await alice.sees("Bob")
            for body in ("0", "1"):
                refused = Agent(near, "Bob", url=bob.url)
                client = await refused.open()
                await alice.send("Bob", body)
                with pytest.raises(NameInUse):
                    await client.run()
                await alice.send("Bob", f"{body} again")
                assert [each.body for each in await bob.receive(2)] == [body, f"{body} again"]
                assert refused.messages.empty()
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_a_refused_agent_that_lives_on_keeps_no_messages(home: Home) -> None:
    """It was opened before its home knew of the other agent, so it counted as the one of that name."""
    near = Home.from_env({"RELAY_HOME": str(home.state.parent.parent / "near")}).ensure()

    async def scenario() -> None:
        bob = await abroad(home, "Bob")
        alice = Agent(near, "Alice", url=(await abroad(home, "Alice")).url)
        shim = claim(near, "default", "Bob")
        refused = await Agent(near, "Bob", url=bob.url).open()
        async with running(bob), running(alice):
            await eventually(lambda: alice.knows("Bob"))
            assert (await alice.send("Bob", "0"))[0].state is State.STORED
            with pytest.raises(NameInUse):
                await refused.run()
            assert (await alice.send("Bob", "1"))[0].state is State.QUEUED
            assert [each.body for each in await bob.receive(2)] == ["0", "1"]
        shim.release()

    asyncio.run(scenario())


def test_an_outcome_is_reported_once_whatever_becomes_of_the_senders_session(home: Home) -> None:
    async def scenario() -> None:
        alice = Agent(home, "Alice")
        async with running(Agent(home, "Bob")) as bob:
            for body in ("before", "after"):
                async with running(alice):
                    await alice.send("Bob", body)
                    await bob.inject(*await bob.receive())
                    assert (await alice.outcome(State.INJECTED)).body == body

    asyncio.run(scenario())
