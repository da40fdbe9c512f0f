"""Brings what supervision cannot decide to the user's attention: the terminal, the desktop, `escalate_to`."""

from __future__ import annotations

from relay import names
from relay.errors import RelayError
from relay.eventbus import EventBus, handles
from relay.hooks.commands import SendMessage
from relay.message import OutgoingMessage
from relay.storage.journal import Journal
from relay.supervision.events import Escalate
from relay.tasks import Tasks
from relay.terminal.events import Notify, NotifyDesktop


class Alarm:
    """Escalates in the name of the agent `name`. to: the receiver of messages; "" for none."""

    def __init__(self, bus: EventBus, tasks: Tasks, journal: Journal, *, name: str, to: str) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._name = name
        self._to = to

    @handles(Escalate)
    def escalate(self, event: Escalate) -> None:
        text = f"{event.what} {event.how}".rstrip()
        self._journal.write("escalated", kind="supervision", text=text, to=self._to or None)
        self._bus.publish(Notify(text, "warning"))
        self._bus.publish(NotifyDesktop(event.what.rstrip("."), event.how))
        if self._to and not names.same(self._to, self._name):
            self._tasks.spawn(self._send(f"{text}\nThis needs a person."), "escalation")

    async def _send(self, text: str) -> None:
        try:
            await self._bus.ask(SendMessage(OutgoingMessage(self._to, text)))
        except RelayError as error:
            self._bus.publish(Notify(f"{self._to} was not told that {self._name} needs you: {error}"))
