"""Which of an agent's prompts are published, and with which text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from relay.eventbus import EventBus, handles
from relay.features import attention
from relay.features.attention import Attention
from relay.hooks.events import Prompting
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import StateChanged
from relay.state.readiness import PromptKind, Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal


class World:
    """The agent's terminal, its state, and a listener."""

    def __init__(self, *rows: str) -> None:
        self.rows = rows
        self.received: asyncio.Queue[Prompting] = asyncio.Queue()

    def screen_text(self) -> list[str]:
        return list(self.rows)

    def unfinished(self) -> str:
        return ""

    def look(self) -> None:
        """Look again; nothing has changed."""

    @handles(Prompting)
    def prompting(self, event: Prompting) -> None:
        self.received.put_nowait(event)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (("Do you want to proceed?", "❯ 1. Yes", "  2. No"), "Do you want to proceed?\n1. Yes\n2. No"),
        ((), "its hooks say that it asks"),
    ],
    ids=["drawn", "reported"],
)
def test_the_text_of_a_prompt_is_its_dialog_or_else_the_reason_for_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[str, ...], text: str
) -> None:
    monkeypatch.setattr(attention, "STABLE_FOR", 0.0)

    async def scene() -> None:
        bus, world = EventBus(), World(*rows)
        terminal, state = cast(AgentTerminal, world), cast(AgentState, world)
        bus.add(Attention(bus, Journal(tmp_path / "journal", "s", "Ann"), terminal, state))
        bus.add(world)
        verdict = Verdict(Readiness.PROMPTING, "its hooks say that it asks", kind=PromptKind.PERMISSION)
        bus.publish(StateChanged("ready", "prompting", verdict))
        assert await world.received.get() == Prompting(kind="permission", text=text)

    asyncio.run(scene())
