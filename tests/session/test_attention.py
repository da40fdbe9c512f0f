"""Which of an agent's prompts are published, and with which text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from relay.agents.profile import Profile
from relay.eventbus import EventBus, handles
from relay.features import attention
from relay.features.attention import Attention
from relay.hooks.events import Prompting
from relay.messaging.events import AddItem, EndItem
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import StateChanged
from relay.state.readiness import PromptKind, Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.supervision.events import PhaseEntered
from relay.supervision.states import Phase

MENU = ("Do you want to proceed?", "❯ 1. Yes", "  2. No")
UNNUMBERED = ("● I remove it.", "  ┃  △ Permission", "  ┃", "  ┃  $ rm -r x", "  ┃  Once   Always   Reject")


class World:
    """The agent's terminal, its state, and a listener. later: its rows from the second look on."""

    def __init__(self, rows: tuple[str, ...] = (), later: tuple[str, ...] = ()) -> None:
        self.rows = rows
        self.later = later
        self.received: asyncio.Queue[Prompting] = asyncio.Queue()

    def screen_text(self) -> list[str]:
        rows, self.rows = self.rows, self.later
        return list(rows)

    def unfinished(self) -> str:
        return ""

    def background(self, x: int, y: int) -> int | None:
        return None

    def look(self) -> None:
        """Look again; nothing has changed."""

    @handles(Prompting)
    def prompting(self, event: Prompting) -> None:
        self.received.put_nowait(event)


class Items:
    """What is added to the inbox and ended there."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[AddItem | EndItem] = asyncio.Queue()

    @handles(AddItem, EndItem)
    def item(self, event: AddItem | EndItem) -> None:
        self._came.put_nowait(event)

    async def next(self) -> AddItem | EndItem:
        return await asyncio.wait_for(self._came.get(), 10)


def watching(world: World, bus: EventBus, folder: Path) -> Attention:
    """Return the feature that looks at the agent in `world`."""
    terminal, state = cast(AgentTerminal, world), cast(AgentState, world)
    journal = Journal(folder / "journal", "s", "Ann")
    return Attention(bus, journal, terminal, state, Profile("mine", Path("mine.toml")))


@pytest.mark.parametrize(
    ("rows", "later", "matched", "text"),
    [
        (MENU, MENU, (), "Do you want to proceed?\n1. Yes\n2. No"),
        ((), MENU, (), "Do you want to proceed?\n1. Yes\n2. No"),
        (UNNUMBERED, UNNUMBERED, ("┃  △ Permission",), "△ Permission\n$ rm -r x\nOnce   Always   Reject"),
        ((), (), (), "its hooks say that it asks"),
    ],
    ids=["drawn", "reported and then drawn", "without numbers", "only reported"],
)
def test_the_text_of_a_prompt_is_its_dialog_or_else_the_reason_for_the_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: tuple[str, ...],
    later: tuple[str, ...],
    matched: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.setattr(attention, "STABLE_FOR", 0.0)
    monkeypatch.setattr(attention, "DRAWN_WITHIN", 0.1)

    async def scene() -> None:
        bus, world = EventBus(), World(rows, later)
        bus.add(watching(world, bus, tmp_path))
        bus.add(world)
        why = "its hooks say that it asks"
        verdict = Verdict(Readiness.PROMPTING, why, kind=PromptKind.PERMISSION, lines=matched)
        bus.publish(StateChanged("ready", "prompting", verdict))
        assert await world.received.get() == Prompting(kind="permission", text=text)

    asyncio.run(scene())


def test_an_error_needs_the_user_unless_supervision_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "UNSUPERVISED", 0.0)
    failed = Verdict(Readiness.FAILED, "its hooks say that it failed: rate_limit")

    async def scene() -> None:
        bus, items = EventBus(), Items()
        bus.add(watching(World(), bus, tmp_path))
        bus.add(items)
        bus.publish(StateChanged("working", "failed", failed))
        assert await items.next() == AddItem("failed", failed.reason)
        bus.publish(PhaseEntered(Phase.WAITING, next_try=9e9))
        assert await items.next() == EndItem("failed")
        bus.publish(PhaseEntered(Phase.UP))
        assert await items.next() == AddItem("failed", failed.reason)
        bus.publish(StateChanged("failed", "ready", Verdict(Readiness.READY, "")))
        assert await items.next() == EndItem("failed")
        bus.publish(StateChanged("working", "failed", failed))
        bus.publish(PhaseEntered(Phase.HELD))
        assert [await items.next(), await items.next()] == [EndItem("failed")] * 2

    asyncio.run(scene())
