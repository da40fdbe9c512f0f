"""Brings what supervision cannot decide to the user's attention: the terminal, the desktop, `escalate_to`.

`relay ps` shows the escalation, and `relay next` goes to it, until the agent gets a prompt or the user types.
"""

from __future__ import annotations

from typing import Any

from relay import names
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.hooks.commands import SendMessage
from relay.lifecycle import Describe, SessionBegan, SessionClosed
from relay.message import OutgoingMessage
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted
from relay.storage.journal import Journal
from relay.supervision.events import Escalate, HoldOver
from relay.supervision.notebook import Notebook
from relay.tasks import Tasks
from relay.terminal.events import KeysTyped, Notify, NotifyDesktop


class Alarm:
    """Escalates on behalf of the agent `name`. to: the receiver of messages; "" for none."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        terminal: AgentTerminal,
        notes: Notebook,
        *,
        name: str,
        to: str,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._terminal = terminal
        self._notes = notes
        self._name = name
        self._to = to
        self._standing = ""

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Continue with the escalation of an earlier session."""
        self._standing = str(self._notes.read().get("what", ""))

    @handles(PromptSubmitted, KeysTyped, HoldOver)
    def attended(self, _: object) -> None:
        if self._standing and not self._terminal.replaying:
            self._standing = ""
            self._notes.remove()

    @answers(Describe)
    async def describe(self, _: Describe, __: object) -> dict[str, Any] | None:
        return {"escalation": self._standing} if self._standing else None

    @answers(SessionClosed)
    async def close(self, event: SessionClosed, _: object) -> None:
        if event.ended:
            self._notes.remove()

    @handles(Escalate)
    def escalate(self, event: Escalate) -> None:
        self._standing = event.what.removeprefix(f"{self._name} ").rstrip(".")
        self._notes.write({"what": self._standing})
        text = f"{event.what} {event.how}".rstrip()
        self._journal.write("escalated", kind="supervision", text=text, to=self._to or None)
        self._bus.publish(Notify(text, "warning"))
        self._bus.publish(NotifyDesktop(event.what.rstrip("."), event.how))
        if self._to and not names.same(self._to, self._name):
            self._tasks.spawn(self._send(f"{text}\nThis needs the user."), "escalation")

    async def _send(self, text: str) -> None:
        try:
            await self._bus.ask(SendMessage(OutgoingMessage(self._to, text)))
        except RelayError as error:
            self._bus.publish(Notify(f"{self._to} was not notified that {self._name} needs you: {error}"))
