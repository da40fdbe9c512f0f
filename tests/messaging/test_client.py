"""Messages from one agent to another, with real clients and the real embedded broker."""

from __future__ import annotations

import asyncio
import threading

import pytest
from clients import Agent, register, running

from ledgers import counted, in_ledger, locked, post
from relay.control.claiming import claim
from relay.home import Home
from relay.message import State
from relay.messaging import client, ledger, publisher
from relay.messaging.client import MessagingClient
from relay.messaging.ledger import Ledger
from relay.messaging.presence_tracker import PresenceTracker
from relay.messaging.publisher import ProxyPublishers, Publisher
from relay.messaging.receiver import Receiver
from relay.messaging.transit import Transit
from relay.storage.writer import Writer
from relay.transport import presence
from relay.transport.connector import Connector
from relay.transport.mqtt import ConnectionLost, MqttTransport
from support import PATIENCE, eventually


def test_a_message_is_delivered_and_its_sender_notified(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            (sent,) = await alice.send("bob", "hello\nthere ✓")
            assert (sent.to, sent.state) == ("Bob", State.STORED)
            (got,) = await bob.receive()
            assert (got.id, got.sender, got.to, got.body) == (sent.id, "Alice", "Bob", "hello\nthere ✓")
            assert [m.id for m in (await bob.client.waiting())] == [sent.id]
            await bob.inject(got)
            assert (await alice.outcome(State.INJECTED)).id == sent.id
            assert (await bob.client.waiting()) == []
            assert bob.messages.empty()

    asyncio.run(scenario())


def test_a_client_ends_whose_connection_is_lost_at_the_same_time(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def receive(self: Receiver, transport: MqttTransport) -> None:
        await lost.wait()
        raise ConnectionLost("The broker has gone.")

    monkeypatch.setattr(Receiver, "run", receive)
    lost = asyncio.Event()

    async def scenario() -> None:
        for steps in range(4):
            lost.clear()
            agent = Agent(home, "Alice")
            task = asyncio.create_task((await agent.open()).run())
            await agent.status("connected")
            lost.set()
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE)
            assert task.cancelled(), steps

    asyncio.run(scenario())


def test_a_burst_arrives_completely_and_in_order(home: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")) as bob:
            for number in range(200):
                await alice.send("Bob", f"message {number}")
            assert [m.body for m in await bob.receive(200)] == [f"message {n}" for n in range(200)]

    asyncio.run(scenario())


def test_concurrent_sends_share_commits_and_keep_their_order(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = counted(monkeypatch)

    async def scenario() -> None:
        await register(home, "Bob")
        async with running(Agent(home, "Alice"), connected=False) as alice:
            bodies = [str(number) for number in range(200)]
            commits()
            await asyncio.gather(*(alice.send("Bob", body) for body in bodies))
            assert commits() < 50
            assert [message.body for message in await alice.ledger()] == bodies

    asyncio.run(scenario())


def test_a_locked_ledger_delays_sending_but_not_the_event_loop(home: Home) -> None:
    async def scenario() -> None:
        await register(home, "Bob")
        async with running(Agent(home, "Alice")) as alice:
            with locked(home.ledger):
                sending = asyncio.create_task(alice.send("Bob", "hello"))
                for _ in range(1000):  # turns of the event loop, however long they take
                    await asyncio.sleep(0)
                assert not sending.done()
            (sent,) = await sending
            assert [message.id for message in await alice.ledger()] == [sent.id]

    asyncio.run(scenario())


def test_a_cancelled_send_is_still_committed(home: Home) -> None:
    async def scenario() -> None:
        await register(home, "Bob")
        async with running(Agent(home, "Alice"), connected=False) as alice:
            sending = asyncio.create_task(alice.send("Bob", "hello"))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            await alice.client.waiting()
            assert [message.body for message in await alice.ledger()] == ["hello"]

    asyncio.run(scenario())


@pytest.mark.parametrize(("here", "end"), [(True, State.REJECTED), (False, State.EXPIRED)])
def test_a_bell_reports_what_another_process_did_to_a_message(
    home: Home, monkeypatch: pytest.MonkeyPatch, here: bool, end: State
) -> None:
    """`relay drop` relies on this; the next sweep of the ledger may be 15 s away."""
    monkeypatch.setattr(client, "SWEEP_EVERY", 3_600.0)
    monkeypatch.setattr(presence, "HEARTBEAT", 3_600.0)

    async def scenario() -> None:
        await register(home, "Bob", here=here)
        async with running(Agent(home, "Alice")) as alice:
            for _ in range(3):  # a single one might be reported anyway, as the client announces itself
                (waiting,) = await alice.send("Bob", "never mind")
                await in_ledger(home, lambda ledger, id=waiting.id: ledger.drop(id))  # type: ignore[misc]
                alice.notify()
                assert (await alice.outcome(end)).id == waiting.id

    asyncio.run(scenario())


def test_a_long_running_client_prunes_old_settled_messages(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SWEEP_EVERY", 0.02)

    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Alice")) as alice:
            await alice.send("Bob", "hello")
            (message,) = await bob.receive(1)
            await bob.client.settle(message.id, State.INJECTED)
            await alice.outcome(State.INJECTED)
            monkeypatch.setattr(ledger, "KEEP_DAYS", 0.0)
            monkeypatch.setattr(client, "PRUNE_EVERY", 0.0)

            async def forgotten() -> bool:
                return not await alice.ledger()

            await eventually(forgotten)

    asyncio.run(scenario())


def test_a_message_to_a_starting_agent_waits_for_its_session(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()
    there = PresenceTracker.there

    def check(tracker: PresenceTracker, ledger: Ledger, name: str) -> bool:
        refused.set()
        return there(tracker, ledger, name)

    monkeypatch.setattr(PresenceTracker, "there", check)

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            shim = claim(home, "default", "Bob")
            sending = asyncio.create_task(alice.send("bob", "hello"))
            await eventually(lambda: refused.is_set() or sending.done())
            async with running(Agent(home, "Bob")) as bob:
                (sent,) = await sending
                assert [message.id for message in await bob.receive()] == [sent.id]
            shim.release()

    asyncio.run(scenario())


def test_a_message_half_typed_into_a_running_agent_is_left_to_its_next_session(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's session was killed; its shim starts another one, which finds out what was typed."""
    monkeypatch.setattr(client, "SWEEP_EVERY", 0.02)
    shim = claim(home, "default", "Bob")

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Dan")) as dan, running(Agent(home, "Bob")) as bob:
                for agent in (bob, dan):
                    await alice.send(agent.name, "half typed")
                    (message,) = await agent.receive(1)
                    await agent.client.injecting(message.id)
            assert (await alice.outcome(State.UNCERTAIN)).to == "Dan"  # has no shim
            assert [each.to for each in await alice.ledger() if each.state is State.STORED] == ["Bob"]
            shim.release()
            assert (await alice.outcome(State.UNCERTAIN)).to == "Bob"

    asyncio.run(scenario())


def test_a_message_in_hand_is_not_mistaken_for_one_left_by_a_dead_session(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in hand across clients, too, as after an error of the ledger."""
    # While Bob has no client, a sweep by Alice, or his goodbye to her, would mark all his texts as left by a
    # dead session: so Alice's client ends first.
    monkeypatch.setattr(client, "SWEEP_EVERY", 3_600.0)

    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Alice")) as alice:
            for body in ("in hand", "left"):
                await alice.send("Bob", body)
            in_hand, left = await bob.receive(2)
            await bob.client.injecting(in_hand.id)
            await bob.client.injecting(left.id)
        reopened = await MessagingClient.open(
            home, "default", "Bob", publish=bob.publish, in_hand=[in_hand.id]
        )
        monkeypatch.setattr(client, "SWEEP_EVERY", 0.05)
        async with running(Agent(home, "Alice")) as alice:
            assert (await alice.outcome(State.UNCERTAIN)).id == left.id
            await reopened.settle(in_hand.id, State.INJECTED)
            assert (await alice.outcome(State.INJECTED)).id == in_hand.id
            await reopened.close()

    asyncio.run(scenario())


def test_a_client_can_be_cancelled_while_it_records_a_failed_publish(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to raise an exception group (Python 3.11.0 to 3.11.3 or so), which ended the session."""

    async def scenario() -> None:
        loop, recording, resume = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def hindered(*_: object) -> None:
            loop.call_soon_threadsafe(recording.set)
            resume.wait()

        async def lost(*_: object) -> None:
            raise ConnectionLost("gone")

        monkeypatch.setattr(Transit, "hindered", hindered)
        monkeypatch.setattr(Publisher, "run", lost)
        await register(home, "Bob", here=False)
        await in_ledger(home, lambda ledger: post(ledger, "default", "you", "Bob", "hello"))
        writer = Writer(Ledger, home.ledger)
        working = asyncio.create_task(ProxyPublishers(home, writer, "default", Connector(home), "").run())
        await recording.wait()
        working.cancel()
        try:
            with pytest.raises(asyncio.CancelledError):
                await working
        finally:
            resume.set()
            await asyncio.to_thread(writer.close)

    asyncio.run(scenario())


def test_a_message_queued_as_its_senders_connection_ends_is_published_immediately(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to wait for the next look into the ledger, some 15 seconds later."""
    monkeypatch.setattr(publisher, "LINGER", 0.0)

    async def scenario() -> None:
        reopened, connections = asyncio.Event(), 0

        async def carry(*_: object) -> str:
            nonlocal connections
            connections += 1
            if connections == 1:
                return ""  # the connection ends, and the message below remains
            reopened.set()
            return await asyncio.Future()

        monkeypatch.setattr(ProxyPublishers, "_carry", carry)
        await register(home, "Bob", here=False)
        await in_ledger(home, lambda ledger: post(ledger, "default", "you", "Bob", "hello"))
        writer = Writer(Ledger, home.ledger)
        working = asyncio.create_task(ProxyPublishers(home, writer, "default", Connector(home), "").run())
        try:
            async with asyncio.timeout(PATIENCE):
                await reopened.wait()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await asyncio.to_thread(writer.close)

    asyncio.run(scenario())
