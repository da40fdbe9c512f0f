"""An escalation remains in the inbox until the agent gets a prompt, or the user types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.eventbus import answers
from relay.features.attention import Alarm
from relay.hooks.commands import SendMessage
from relay.lifecycle import SessionBegan
from relay.messaging.events import AddItem, EndItem
from relay.state.events import PromptSubmitted, TurnBegan
from relay.storage.journal import Journal
from relay.supervision.events import Escalate, HoldOver
from relay.terminal.events import KeysTyped, Notify
from supervision.world import World

IDLE = Escalate("Alice has been idle for 60 s.", "Give it a prompt.")


class Alarmed(World):
    """A session with an Alarm. sent: the messages to `escalate_to`."""

    def __init__(self, folder: Path, *, to: str = "") -> None:
        super().__init__(folder)
        self.sent: list[tuple[str, str]] = []
        journal = Journal(self.home.ensure().state / "events.jsonl", "s1", "Alice")
        self.bus.add(Alarm(self.bus, self.tasks, journal, name="Alice", escalate_to=to))
        self.bus.add(self)
        self.bus.publish(SessionBegan())

    @answers(SendMessage)
    async def send(self, question: SendMessage, _: object) -> Any:
        self.sent.append((question.message.to, question.message.body))


def test_an_escalation_reaches_the_user_the_inbox_and_the_lead(tmp_path: Path) -> None:
    alice = Alarmed(tmp_path, to="Lead")
    alice.bus.publish(IDLE)
    text = "Alice has been idle for 60 s. Give it a prompt."
    assert alice.of(Notify) == [Notify(text, "warning", listed=True)]
    assert alice.of(AddItem) == [AddItem("escalation", text)]
    assert alice.sent == [("Lead", f"{text}\nThis needs the user.")]


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(
    ("event", "over"),
    [
        (PromptSubmitted(by_user=False), True),
        (PromptSubmitted(by_user=True), True),
        (KeysTyped(b"x", 1), True),
        (HoldOver(), True),
        (TurnBegan(), False),
    ],
)
def test_an_escalation_ends_once_it_is_handled(tmp_path: Path, event: Any, over: bool, earlier: bool) -> None:
    """Also one of an earlier session."""
    alice = Alarmed(tmp_path)
    if not earlier:
        alice.bus.publish(IDLE)
    for _ in range(2):
        alice.bus.publish(event)
        assert alice.of(EndItem) == [EndItem("escalation")] * over
    alice.bus.publish(IDLE)
    alice.bus.publish(event)
    assert alice.of(EndItem) == [EndItem("escalation")] * (2 * over)
