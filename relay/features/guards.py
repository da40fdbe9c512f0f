"""Records next to the session's socket which events are guarded, for hooks that no session answers."""

from __future__ import annotations

from relay.agents import hook_guards
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import SessionBegan
from relay.rules.events import GuardedEvents, RulesChanged
from relay.tasks import Tasks
from relay.terminal.events import Notify


class Guards:
    """Keeps the record of one session up to date. name: the agent's; socket: the session's."""

    def __init__(self, bus: EventBus, tasks: Tasks, *, name: str, socket: str) -> None:
        self._bus = bus
        self._tasks = tasks
        self._name = name
        self._socket = socket

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._tasks.queue("the note of the guards", self._write())

    @answers(RulesChanged)
    async def change(self, _: RulesChanged, __: object) -> None:
        await self._write()

    async def _write(self) -> None:
        guarded = await self._bus.gather(GuardedEvents())
        try:
            hook_guards.write(self._socket, self._name, guarded)
        except OSError as error:
            text = (
                f"cannot record which events have rules in {hook_guards.path_of(self._socket)}: "
                f"{error.strerror}. While no session answers, the previous record applies."
            )
            self._bus.publish(Notify(text, "warning"))
