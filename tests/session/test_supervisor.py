"""The pause before a restart, with a clock that the test controls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from relay.agents import catalog
from relay.agents.conversation import Conversation
from relay.agents.events import CurrentConversation
from relay.eventbus import EventBus, answers, handles
from relay.features import supervisor
from relay.features.supervisor import Supervisor
from relay.home import Home
from relay.lifecycle import Follower, Identity, Order, SessionBegan, StopRequested, WhatFollows
from relay.state.events import StateChanged
from relay.state.readiness import Readiness
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.supervision.events import PhaseEntered
from relay.supervision.policy import Supervision
from relay.supervision.records import AgentRecord, Records
from relay.supervision.states import Phase
from relay.supervision.succession import Succession
from relay.terminal.events import KeyChosen, Notify
from relay.terminal.shim_link import ShimLink

HOUR = 3600.0


class Shim:
    """The shim's end of the link. paused: called for each pause."""

    kept = True

    def __init__(self, paused: Callable[[], None]) -> None:
        self._paused = paused

    def pause(self, text: str) -> None:
        self._paused()


class Phases:
    def __init__(self) -> None:
        self.entered: list[Phase] = []

    @handles(PhaseEntered)
    def enter(self, event: PhaseEntered) -> None:
        self.entered.append(event.phase)


@pytest.mark.parametrize("asleep", [True, False])
def test_the_pause_ends_by_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asleep: bool
) -> None:
    """The loop's clock stops while the machine sleeps. A later stop still ends the agent."""
    monkeypatch.setattr(supervisor, "WALL_CHECK_EVERY", 0.01)
    home = Home.from_env({"RELAY_HOME": str(tmp_path)}).ensure()
    now = [1000.0]

    async def run() -> tuple[list[Any], list[Phase]]:
        bus, phases, records = EventBus(), Phases(), Records(home)
        progress = Progress(tmp_path / "progress.jsonl", resumed=False)
        session = Identity("s1", "Alice", "team", tmp_path)
        waiting = AgentRecord(
            "Alice", "team", session="s1", phase=Phase.WAITING, next_try=now[0] + (HOUR if asleep else 0.05)
        )
        records.change("team", "Alice", lambda _: waiting)

        def jump() -> None:
            now[0] += 2 * HOUR if asleep else -2 * HOUR

        def pause() -> None:
            bus.loop.call_later(0.02, jump)

        feature = Supervisor(
            bus,
            cast(ShimLink, Shim(pause)),
            Journal(home.journal, "s1", "Alice", bus, publishes=False),
            session,
            progress,
            records,
            Supervision(restart="always"),
            Succession(catalog.load("generic", home), ["true"], "auto", env=os.environ, directory=tmp_path),
            clock=lambda: now[0],
        )
        bus.add(feature)
        bus.add(phases)
        progress.notes += [{"note": "began", "at": 0.0}, {"note": "decided"}]  # by an earlier session
        bus.publish(SessionBegan())
        answers = await bus.ask_all(WhatFollows(1))
        bus.publish(StopRequested())
        await asyncio.sleep(0)
        return answers, phases.entered

    answers, entered = asyncio.run(asyncio.wait_for(run(), 60))
    assert answers == [Follower(None)]
    assert entered == [Phase.WAITING, Phase.STARTING, Phase.OFF]


def test_a_key_ends_one_pause(tmp_path: Path) -> None:
    """If the program is missing then, the agent waits until the next attempt is due."""
    home = Home.from_env({"RELAY_HOME": str(tmp_path)}).ensure()

    async def run() -> tuple[list[Any], list[Phase]]:
        bus, phases, events = EventBus(), Phases(), [KeyChosen("r"), KeyChosen("r"), StopRequested()]
        feature = Supervisor(
            bus,
            cast(ShimLink, Shim(lambda: bus.loop.call_soon(bus.publish, events.pop(0)))),
            Journal(home.journal, "s1", "Alice", bus, publishes=False),
            Identity("s1", "Alice", "team", tmp_path),
            Progress(tmp_path / "progress.jsonl", resumed=False),
            Records(home),
            Supervision(restart="always", backoff=HOUR, backoff_max=HOUR, max_restarts=9),
            Succession(
                catalog.load("generic", home), ["no-such-agent"], "auto", env=os.environ, directory=tmp_path
            ),
        )
        bus.add(feature)
        bus.add(phases)
        bus.publish(SessionBegan())
        answers = await bus.ask_all(WhatFollows(1))
        assert not events
        return answers, phases.entered

    answers, entered = asyncio.run(asyncio.wait_for(run(), 60))
    assert answers == []
    assert entered == [Phase.BACKOFF, Phase.BACKOFF, Phase.BACKOFF, Phase.OFF]


@pytest.mark.parametrize(("worked", "order"), [(True, ""), (True, "restart"), (True, "fresh"), (False, "")])
def test_a_lost_conversation_is_reported_once_the_agent_has_worked(
    tmp_path: Path, worked: bool, order: Order
) -> None:
    """Its transcript does not exist; the user who orders a new conversation knows."""
    home = Home.from_env({"RELAY_HOME": str(tmp_path)}).ensure()

    class Agent:
        def __init__(self) -> None:
            self.notices: list[str] = []

        @handles(Notify)
        def notify(self, event: Notify) -> None:
            self.notices.append(event.text)

        @answers(CurrentConversation)
        async def current(self, _: CurrentConversation, __: object) -> Conversation:
            return Conversation("claude", "first", tmp_path, tmp_path / "none.jsonl")

    async def run() -> list[str]:
        bus, agent = EventBus(), Agent()
        feature = Supervisor(
            bus,
            cast(ShimLink, Shim(lambda: None)),
            Journal(home.journal, "s1", "Alice", bus, publishes=False),
            Identity("s1", "Alice", "team", tmp_path),
            Progress(tmp_path / "progress.jsonl", resumed=False),
            Records(home),
            Supervision(restart="always", backoff=0.01),
            Succession(catalog.load("claude", home), ["true"], "auto", env=os.environ, directory=tmp_path),
        )
        bus.add(agent)
        bus.add(feature)
        bus.publish(SessionBegan())
        if worked:
            bus.publish(StateChanged(Readiness.WORKING, Readiness.READY))
        assert await bus.ask_all(WhatFollows(1, order)) == [Follower(None)]
        return agent.notices

    said = "Alice starts a new conversation: the last one cannot be resumed."
    expected = [said] if worked and order != "fresh" else []
    assert asyncio.run(asyncio.wait_for(run(), 60)) == expected
