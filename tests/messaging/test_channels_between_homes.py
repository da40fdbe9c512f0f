"""Channels between two homes on one broker: membership is announced, and lasts while a member is away."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from clients import Agent, running

from ledgers import in_ledger, post, states
from relay.home import Home
from relay.message import State
from relay.messaging import client
from relay.messaging.channels import CATCH_UP
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import Owner
from relay.messaging.presence_tracker import Heard, PresenceTracker
from relay.storage.writer import Writer
from relay.transport import broker
from relay.transport.presence import MAX_CHANNELS, Presence
from support import eventually


@pytest.fixture
def far(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()


def url(home: Home, name: str) -> str:
    """Return the URL of the embedded broker of `home`, for an agent of another home."""
    endpoint, own = broker.admit(home, "default", name)
    return f"mqtt://{quote(own.user, safe='')}:{own.password}@{endpoint.host}:{endpoint.port}"


async def in_channels(home: Home, *channels: str) -> None:
    """Wait until the ledger of `home` has Bob in exactly these channels."""

    async def reached() -> bool:
        return await in_ledger(home, lambda ledger: ledger.channels.of("default", "Bob")) == [*channels]

    await eventually(reached)


def test_memberships_are_announced_and_an_absent_member_gets_its_messages(home: Home, far: Home) -> None:
    async def scenario() -> None:
        bobs_url = url(home, "Bob")
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(far, "Bob", url=bobs_url)) as bob:
                assert await bob.client.join("Ops") and not await bob.client.join("ops")
                await in_channels(home, "Ops")
                await alice.send("#ops", "one")
                (got,) = await bob.receive()
                assert (got.to, got.body, got.channel) == ("Bob", "one", "Ops")
                await bob.inject(got)
                await alice.outcome(State.INJECTED)
                await bob.client.join("dev")
                await bob.client.leave("ops")
                await in_channels(home, "dev")
            await alice.sees("Bob", online=False)
            await alice.send("#dev", "two")

            def change(there: Ledger) -> None:  # while its session is not running
                there.channels.join("default", "late", "Bob")
                there.channels.leave("default", "dev", "Bob")

            await in_ledger(far, change)
            async with running(Agent(far, "Bob", url=bobs_url)) as bob:
                assert [m.body for m in await bob.receive()] == ["two"]
                await in_channels(home, "late")

    asyncio.run(scenario())


def test_a_wills_channels_count_only_where_nothing_newer_is_known(home: Home) -> None:
    """The will was written at the connection; the member may have joined another channel since."""

    async def scenario() -> None:
        ledger = Writer(Ledger, home.ledger)
        tracker = PresenceTracker(home, ledger, "", "default", "Alice", "here")

        async def announce(online: bool, channels: list[str], *, retained: bool = False) -> list[str]:
            announced = Presence("Bob", online, time.time(), "1", home="far", channels=tuple(channels))
            await tracker.hear(Heard(announced, retained, 0.0))
            return await ledger.run(lambda ledger: ledger.channels.of("default", "Bob"))

        assert await announce(False, ["ops"], retained=True) == ["ops"]
        assert await announce(True, ["dev", "ops"]) == ["dev", "ops"]
        assert await announce(False, ["ops"]) == ["dev", "ops"]
        assert await announce(True, []) == []
        await asyncio.to_thread(ledger.close)

    asyncio.run(scenario())


def test_repeated_announcements_add_no_rows(home: Home) -> None:
    """Channels and owner are new in each announcement."""

    async def scenario() -> None:
        ledger = Writer(Ledger, home.ledger)
        tracker = PresenceTracker(home, ledger, "", "default", "Alice", "here")

        async def rows() -> list[int]:
            tables = ("members", "owners", "presences", "registry")
            counts = [f"(SELECT count(*) FROM {table})" for table in tables]
            return list((await ledger.run(lambda ledger: ledger.rows(f"SELECT {', '.join(counts)}")))[0])

        for turn in range(20):
            channels = tuple(f"{turn}-{number}" for number in range(MAX_CHANNELS))
            owner = Owner.of_folder(Path(f"/{turn}"))
            announced = Presence("Bob", True, 0.0, "1", home="far", channels=channels, owner=owner.id)
            await tracker.hear(Heard(announced, False, 0.0))
            assert await rows() == [MAX_CHANNELS, 1, 1, 1]
        await tracker.hear(Heard(replace(announced, channels=()), False, 0.0))
        assert await rows() == [0, 1, 1, 1]
        await asyncio.to_thread(ledger.close)

    asyncio.run(scenario())


def test_an_absent_members_oldest_messages_expire_and_the_rest_arrive_in_order(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(client, "SWEEP_EVERY", 0.05)
        texts = [f"number {n}" for n in range(CATCH_UP + 7)]
        async with running(Agent(home, "Alice")) as alice:
            async with running(Agent(home, "Bob")) as bob:
                await bob.client.join("ops")
                for text in texts:  # a busy member that is online misses nothing
                    await alice.send("#ops", text)
                assert [m.body for m in await bob.receive(len(texts))] == texts
                for message in await bob.client.waiting():
                    await bob.inject(message)
            await alice.sees("Bob", online=False)
            for text in texts:
                await alice.send("#ops", text)

            async def left_out() -> bool:
                return (await states(home)).count(State.EXPIRED) == 7

            await eventually(left_out)
            async with running(Agent(home, "Bob")) as bob:
                assert [m.body for m in await bob.receive(CATCH_UP)] == texts[7:]
                assert len(await bob.waiting()) == CATCH_UP

    asyncio.run(scenario())


def test_a_returning_member_immediately_gets_what_the_user_sent(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user has no session: others in the home publish, and notice that the member is back."""
    monkeypatch.setattr(client, "SWEEP_EVERY", 3600.0)

    async def scenario() -> None:
        bobs_url = url(home, "Bob")
        async with running(Agent(home, "Alice")) as alice:

            async def send_as_user(text: str) -> None:
                await in_ledger(home, lambda ledger: post(ledger, "default", "you", "#ops", text))
                alice.notify()

            async with running(Agent(far, "Bob", url=bobs_url)) as bob:
                await bob.client.join("ops")
                await alice.sees("Bob")
                await in_channels(home, "ops")
                await send_as_user("one")
                (one,) = await bob.receive()
                assert one.body == "one"
                await bob.inject(one)
            await alice.sees("Bob", online=False)
            await send_as_user("two")
            async with running(Agent(far, "Bob", url=bobs_url)) as bob:
                assert [m.body for m in await bob.receive()] == ["two"]

    asyncio.run(scenario())


def test_a_message_dropped_at_the_receiver_is_reported_to_a_remote_sender(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A separate process drops it; the receiver's session finds the receipt at its next sweep."""
    monkeypatch.setattr(client, "SWEEP_EVERY", 0.05)

    async def scenario() -> None:
        async with (
            running(Agent(home, "Alice")) as alice,
            running(Agent(far, "Bob", url=url(home, "Bob"))) as bob,
        ):
            await alice.sees("Bob")
            (sent,) = await alice.send("Bob", "never mind")
            await bob.receive()
            await alice.outcome(State.STORED)
            for _ in range(3):  # by then its receipt is recorded, and Bob has looked for another one
                await bob.client.channels()
            await in_ledger(far, lambda ledger: ledger.drop(sent.id))
            assert (await alice.outcome(State.REJECTED)).id == sent.id

    asyncio.run(scenario())
