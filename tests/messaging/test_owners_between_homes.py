"""The owners of names on several hosts are announced, and mail in flight carries its owner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from clients import Agent, adopt, running

from ledgers import in_ledger, post
from relay.backoff import Backoff
from relay.errors import ReceiverEnded, UnknownRecipient
from relay.home import Home
from relay.message import State
from relay.messaging import client, publisher, transit
from relay.messaging.name_owners import Owner
from relay.transport import broker
from support import eventually


@pytest.fixture
def far(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()


@pytest.fixture
def third(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "third")}).ensure()


def agent(home: Home, there: Home, owner: Owner, name: str = "claude") -> Agent:
    """Return an agent of the home `there` on the embedded broker of `home`."""
    endpoint, own = broker.admit(home, "default", name)
    adopt(there, own)
    return Agent(there, name, url=f"mqtt://{endpoint.host}:{endpoint.port}", owner=owner)


async def has_owner(home: Home, owner: Owner, *, ended: bool = False) -> None:
    """Wait until `home` knows this owner of the name."""

    async def known() -> bool:
        return await in_ledger(home, lambda ledger: ledger.owners.of("default", "claude")) == (
            owner.id,
            ended,
        )

    await eventually(known)


FIRST, SECOND = Owner.of_run("1"), Owner.of_run("2")


def test_the_end_of_a_run_is_announced_to_other_hosts(home: Home, far: Home) -> None:
    """U2: its mail ends with it, and messages to its name are refused until another agent takes the name."""

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(agent(home, far, FIRST)) as first:
                await has_owner(home, FIRST)
                await alice.send("claude", "one")
                await first.receive()
                await alice.outcome(State.STORED)
                assert [each.to for each in await alice.send("*", "two")] == ["claude"]
                await first.receive()
                await first.client.end()
                rejected = await alice.outcome(State.REJECTED)
                assert (rejected.body, rejected.detail) == ("one", "claude has ended")
                assert (await alice.outcome(State.REJECTED)).body == "two"
            await has_owner(home, FIRST, ended=True)
            with pytest.raises(ReceiverEnded):
                await alice.send("claude", "three")
            with pytest.raises(UnknownRecipient, match="has no other agents"):
                await alice.send("*", "four")
            assert "claude" not in {each.name for each in await alice.client.roster()}
            async with running(agent(home, far, SECOND)) as second:
                await has_owner(home, SECOND)
                await alice.send("claude", "five")
                assert [each.body for each in await second.receive()] == ["five"]

    asyncio.run(scenario())


def test_a_killed_runs_mail_is_rejected_by_other_sessions_of_its_host(home: Home, far: Home) -> None:
    """U2: the run itself could not report anything."""

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(agent(home, far, FIRST)) as first:
                await has_owner(home, FIRST)
                await alice.send("claude", "one")
                await first.receive()
                await alice.outcome(State.STORED)
            async with running(agent(home, far, Owner.of_run("3"), "Bob")):
                rejected = await alice.outcome(State.REJECTED)
                assert (rejected.body, rejected.detail) == ("one", "claude has ended")

    asyncio.run(scenario())


def test_an_outcome_that_nobody_received_is_requested(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message used to stay *stored* forever if its sender's connection had ended by then."""
    monkeypatch.setattr(publisher, "LINGER", 2.0)
    monkeypatch.setattr(client, "SWEEP_EVERY", 0.5)
    monkeypatch.setattr(transit, "ASK", Backoff(1.0, 3600.0))

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(agent(home, far, FIRST)) as claude:
            await has_owner(home, FIRST)
            await alice.sees("claude")
            (sent,) = await in_ledger(home, lambda ledger: post(ledger, "default", "you", "claude", "hello"))
            alice.notify()
            (message,) = await claude.receive()

            async def is_now(wanted: State) -> bool:
                return (await in_ledger(home, lambda ledger: ledger.find(sent.id))).message.state is wanted

            await eventually(lambda: is_now(State.STORED))
            await eventually(lambda: not alice.client._proxies._active)
            await claude.inject(message)
            await eventually(lambda: is_now(State.INJECTED))

    asyncio.run(scenario())


def test_mail_for_a_run_that_vanished_expires_with_the_next_run(home: Home, far: Home) -> None:
    """U2."""

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(agent(home, far, FIRST)):
                await has_owner(home, FIRST)
            await alice.sees("claude", online=False)
            (sent,) = await alice.send("claude", "one")
            assert sent.state is State.QUEUED  # the run may be back in a moment
            async with running(agent(home, far, SECOND)) as second:
                expired = await alice.outcome(State.EXPIRED)
                assert (expired.id, expired.detail) == (sent.id, "claude has ended")
                await alice.send("claude", "two")
                assert [each.body for each in await second.receive()] == ["two"]
                assert await second.waiting() == ["two"]

    asyncio.run(scenario())


def test_a_folders_agent_gets_its_mail_whoever_had_its_name_in_between(
    home: Home, far: Home, third: Home
) -> None:
    """U2: this also holds on another host."""
    one, two = Owner.of_folder(Path("/one")), Owner.of_folder(Path("/two"))

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice:
            async with running(agent(home, far, one)):
                await has_owner(home, one)
            await alice.sees("claude", online=False)
            await alice.send("claude", "for one")
            async with running(agent(home, third, two)) as other:
                await has_owner(home, two)
                await alice.send("claude", "for two")
                (got,) = await other.receive()
                assert got.body == "for two"
                await other.inject(got)
                await alice.outcome(State.INJECTED)
                assert await other.waiting() == []
            await alice.sees("claude", online=False)
            async with running(agent(home, far, one)) as again:
                assert [each.body for each in await again.receive()] == ["for one"]

    asyncio.run(scenario())
