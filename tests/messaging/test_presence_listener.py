"""One session of a home listens for presence on behalf of all, and another takes over when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from clients import Agent, register, running

from relay.home import Home
from relay.message import State
from relay.messaging import client, presence_listener
from relay.messaging.presence_tracker import Heard, PresenceTracker
from relay.messaging.receiver import Receiver
from relay.transport import broker, presence, topics
from relay.transport.arrivals import Inbound
from relay.transport.presence import Presence
from support import eventually

COUNT = 25

PROGRAM = """
import asyncio, sys
from relay.home import Home
from relay.messaging.client import MessagingClient
from relay.messaging.events import StatusReported

async def main(name, url):
    def publish(event):
        if isinstance(event, StatusReported):
            print(event.text, flush=True)
    home = Home.from_env()
    client = await MessagingClient.open(home, "default", name, broker_url=url or None, publish=publish)
    await client.run()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def far(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()


def url(home: Home, name: str, team: str = "default") -> str:
    """Return the URL of the embedded broker of `home`, for an agent of another home."""
    endpoint, own = broker.admit(home, team, name)
    return f"mqtt://{quote(own.user, safe='')}:{own.password}@{endpoint.host}:{endpoint.port}"


@contextlib.asynccontextmanager
async def process(home: Home, name: str, url: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `name` of `home` in a separate process, connected, for the block; then kill it."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, name, url),
        env={**os.environ, "RELAY_HOME": str(Path(home.state_dir).parent)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        while not (await started.stdout.readline()).startswith(b"connected"):
            assert started.returncode is None
        yield started
    finally:
        # Not Process.kill, which might reap a killed process before asyncio's thread does.
        with contextlib.suppress(ProcessLookupError):
            os.kill(started.pid, signal.SIGKILL)
        await started.communicate()


def listens(agent: Agent) -> bool:
    return agent.client._listener.listening


def test_a_large_home_receives_each_announcement_only_a_few_times(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When every agent listened, it took 112,298 announcements until 250 agents knew each other."""
    received: Counter[str] = Counter()
    original = Receiver._hear

    def counted(self: Receiver, inbound: Inbound, level: str) -> None:
        received[level] += 1
        original(self, inbound, level)

    monkeypatch.setattr(Receiver, "_hear", counted)
    monkeypatch.setattr(presence_listener, "REQUEST_AGAIN_AFTER", 0.1)

    async def scenario() -> None:
        agents = [Agent(home, f"agent-{number}") for number in range(COUNT)]
        async with contextlib.AsyncExitStack() as stack:
            for agent in agents:
                await stack.enter_async_context(running(agent))
            for agent in (agents[0], agents[-1]):
                for other in agents:
                    await eventually(lambda agent=agent, other=other: agent.knows(other.name))
            assert [listens(agent) for agent in agents] == [True] + [False] * (COUNT - 1)
        assert sum(received.values()) <= 5 * COUNT

    asyncio.run(scenario())


def test_a_flood_of_announcements_is_rarely_written_and_the_last_one_counts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One agent's announcements could keep the ledger of the whole home busy."""
    written: Counter[str] = Counter()
    original = PresenceTracker.hear

    async def counted(self: PresenceTracker, *batch: Heard) -> bool:
        written.update(each.presence.name for each in batch)
        return await original(self, *batch)

    monkeypatch.setattr(PresenceTracker, "hear", counted)

    async def flood(alice: Agent) -> None:
        await eventually(lambda: written["Alice"] > 0)
        for number in range(1000):
            announced = Presence("Mallory", True, 0.0, f"{number:04}", home=f"h{number}")
            alice.client._listener.hear(announced, retained=False)
            await asyncio.sleep(0)

    async def scenario() -> None:
        every = presence_listener.WRITE_EVERY
        monkeypatch.setattr(presence_listener, "WRITE_EVERY", 3600.0)
        async with running(Agent(home, "Alice")) as alice:
            await flood(alice)
            assert written["Mallory"] == 0, "nothing is written until WRITE_EVERY has passed"
        written.clear()
        monkeypatch.setattr(presence_listener, "WRITE_EVERY", every)
        async with running(Agent(home, "Alice")) as alice:
            await flood(alice)

            async def last() -> bool:
                roster = {each.name: each for each in await alice.client.roster()}
                return "Mallory" in roster and roster["Mallory"].boot == "0999"

            await eventually(last)

    asyncio.run(scenario())


def test_another_session_takes_over_when_the_listener_is_killed(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a listener may hang."""
    monkeypatch.setattr(presence_listener, "LISTENER_CHECK_EVERY", 0.1)
    monkeypatch.setattr(presence_listener, "HANGS", 3600.0)

    async def scenario() -> None:
        async with process(home, "Bob") as bob, running(Agent(home, "Alice")) as alice:
            await eventually(lambda: alice.knows("Bob"))
            assert not listens(alice)
            bob.kill()
            await bob.wait()
            await eventually(lambda: listens(alice))
            async with running(Agent(far, "Carol", url=url(home, "Carol"))):
                await alice.sees("Carol")
            await alice.sees("Carol", online=False)
            await alice.sees("Bob", online=False)
            assert not await alice.knows("Bob")

    asyncio.run(scenario())


def test_another_session_takes_over_when_the_listener_hangs(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_listener, "LISTENER_CHECK_EVERY", 0.1)
    monkeypatch.setattr(presence_listener, "HANGS", 6.0)

    async def scenario() -> None:
        async with process(home, "Bob") as bob, running(Agent(home, "Alice")) as alice:
            await eventually(lambda: alice.knows("Bob"))
            assert not listens(alice)
            bob.send_signal(signal.SIGSTOP)
            await eventually(lambda: listens(alice))
            async with running(Agent(far, "Carol", url=url(home, "Carol"))):
                await alice.sees("Carol")

    asyncio.run(scenario())


@pytest.mark.parametrize("was_here", [False, True])
def test_a_sender_that_is_not_the_listener_sends_as_soon_as_its_receiver_appears(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch, was_here: bool
) -> None:
    monkeypatch.setattr(client, "SWEEP_EVERY", 3600.0)

    async def scenario() -> None:
        await register(home, "Carol", here=was_here)
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Alice")) as alice:
            await alice.send("Carol", "hello")
            assert (listens(bob), listens(alice)) == (True, False)
            async with running(Agent(far, "Carol", url=url(home, "Carol"))) as carol:
                assert [message.body for message in await carol.receive()] == ["hello"]
                await alice.outcome(State.STORED)

    asyncio.run(scenario())


def test_a_remote_agents_arrival_departure_and_death_are_seen(home: Home, far: Home) -> None:
    """A session that is not the listener sees the goodbye and the will that the listener receives."""

    async def scenario() -> None:
        async with running(Agent(home, "Bob")), running(Agent(home, "Alice")) as alice:
            async with running(Agent(far, "Carol", url=url(home, "Carol"))):
                await alice.sees("Carol")
            await alice.sees("Carol", online=False)
            async with process(far, "Carol", url(home, "Carol")) as carol:
                await alice.sees("Carol")
                carol.kill()
                await alice.sees("Carol", online=False)

    asyncio.run(scenario())


def test_each_team_of_a_home_has_its_own_listener_and_roster(home: Home) -> None:
    async def scenario() -> None:
        teams = [[Agent(home, name, team=team) for name in ("one", "two")] for team in ("red", "blue")]
        async with contextlib.AsyncExitStack() as stack:
            for agents in teams:
                for agent in agents:
                    await stack.enter_async_context(running(agent))
            async with running(Agent(home, "Extra", team="red")):
                for agents in teams:
                    assert [listens(agent) for agent in agents] == [True, False]
                    for agent in agents:
                        await eventually(lambda agent=agent: agent.knows("one"))
                        await eventually(lambda agent=agent: agent.knows("two"))
                await eventually(lambda: teams[0][1].knows("Extra"))
                assert [each.name for each in await teams[1][1].client.roster()] == ["one", "two"]

    asyncio.run(scenario())


def test_a_single_name_can_be_looked_up(home: Home, far: Home) -> None:
    async def scenario() -> None:
        await register(home, "Dave")
        async with running(Agent(home, "Alice")) as alice, running(Agent(home, "Bob")):
            async with running(Agent(far, "Carol", url=url(home, "Carol"))):
                await alice.sees("Carol")
                found = {name: await alice.client.roster(name) for name in ("BOB", "Carol", "Dave", "Eve")}
            everybody = {each.name: each for each in await alice.client.roster()}
        shown = {asked: [(each.name, each.online) for each in members] for asked, members in found.items()}
        assert shown == {
            "BOB": [("Bob", True)],
            "Carol": [("Carol", True)],
            "Dave": [("Dave", False)],
            "Eve": [],
        }
        assert sorted(everybody) == ["Alice", "Bob", "Carol", "Dave"]

    asyncio.run(scenario())


def test_all_agents_are_announced_again_after_the_broker_is_killed(home: Home, far: Home) -> None:
    async def scenario() -> None:
        async with running(Agent(home, "Bob")) as bob, running(Agent(home, "Alice")) as alice:
            await eventually(lambda: alice.knows("Bob"))
            before = {each.name: each.boot for each in await alice.client.roster()}
            running_broker = broker.status(home)
            assert running_broker is not None
            os.kill(running_broker.pid, signal.SIGKILL)

            async def announced_again() -> bool:
                now = await alice.client.roster()
                return all(each.online and each.boot != before[each.name] for each in now)

            await eventually(announced_again)
            assert listens(alice) != listens(bob)
            async with running(Agent(far, "Carol", url=url(home, "Carol"))):
                await alice.sees("Carol")
                await bob.sees("Carol")

    asyncio.run(scenario())


def test_an_announcement_that_a_new_listener_missed_is_requested_again(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fell between the retained announcements and the live ones, so the listener asks again."""
    monkeypatch.setattr(presence, "HEARTBEAT", 3600.0)
    monkeypatch.setattr(presence_listener, "REQUEST_AGAIN_AFTER", 1.0)
    original, missed = Receiver._hear, []

    def miss_the_first(self: Receiver, inbound: Inbound, level: str) -> None:
        if self.name == "Alice" and level == "bob" and not inbound.retained:
            missed.append(inbound.payload)
        else:
            original(self, inbound, level)

    monkeypatch.setattr(Receiver, "_hear", miss_the_first)

    async def scenario() -> None:
        async with running(Agent(home, "Alice")) as alice, running(Agent(far, "Bob", url=url(home, "Bob"))):
            await eventually(lambda: alice.knows("Bob"))
            assert missed

    asyncio.run(scenario())


def test_a_former_listener_no_longer_receives_all_announcements(
    home: Home, far: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A persistent session includes subscriptions; only the listener needs those to other agents."""
    received: Counter[str] = Counter()
    original = Receiver._hear

    def counted(self: Receiver, inbound: Inbound, level: str) -> None:
        received[self.name] += level != topics.level(self.name)
        original(self, inbound, level)

    monkeypatch.setattr(Receiver, "_hear", counted)

    async def scenario() -> None:
        async with running(Agent(home, "Alice", url=url(far, "Alice"))) as alice:
            await eventually(lambda: alice.client.informed)
            assert listens(alice)
        async with (
            running(Agent(home, "Bob", url=url(far, "Bob"))) as bob,
            running(Agent(home, "Alice", url=url(far, "Alice"))) as alice,
        ):
            assert listens(bob) and not listens(alice)
            await eventually(lambda: alice.knows("Alice"))
            received.clear()
            async with running(Agent(home, "Carol", url=url(far, "Carol"))):
                await eventually(lambda: alice.knows("Carol"))
            await eventually(lambda: received["Bob"])
            assert received["Alice"] == 0

    asyncio.run(scenario())
