"""Keeps notices to the user in the journal, and turns relay's own faults into notices."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from relay import desktop_notification
from relay.eventbus import EventBus, HandlerFailed, answers, handles
from relay.lifecycle import Describe, SessionBegan, SessionSettling
from relay.storage.journal import Journal, WritingFailed
from relay.tasks import TaskFailed, Tasks
from relay.terminal.events import (
    MistakeFound,
    Notify,
    NotifyDesktop,
    ReadingFailed,
    TerminalLost,
    WithdrawNotice,
)

MISTAKE = "internal error in relay"
"""The beginning of the notice that one of relay's own handlers has failed."""

LAST_WORDS = 3.0
"""Seconds that an ending session waits for the desktop: its last notification says how the agent ended."""

_log = logging.getLogger(__name__)


class Notices:
    """The notices of one session.

    first: notices from before the session began. mistakes: those about the configuration in force.
    told: those of `first` that the user has seen already.
    noticed: those that the agent's last session began with; they are not repeated.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        first: tuple[str, ...],
        *,
        mistakes: tuple[str, ...] = (),
        told: frozenset[str] = frozenset(),
        noticed: frozenset[str] = frozenset(),
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._first = first
        self._mistakes_in_force = list(mistakes)
        self._told = told
        self._noticed = noticed
        self._mistakes: set[str] = set()
        self._showing: set[asyncio.Task[None]] = set()

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        for text in self._first:
            if text in self._noticed:
                continue
            if text in self._told:
                self.keep(Notify(text))
            else:
                self._bus.publish(Notify(text))

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"configuration": self._mistakes_in_force}

    @handles(MistakeFound)
    def found(self, event: MistakeFound) -> None:
        self._mistakes_in_force.append(event.text)

    @handles(WithdrawNotice)
    def mended(self, event: WithdrawNotice) -> None:
        self._mistakes_in_force = [text for text in self._mistakes_in_force if text != event.text]

    @handles(Notify)
    def keep(self, event: Notify) -> None:
        if event.keep:
            self._journal.write("notice", text=event.line, level=event.level, source=event.source or None)

    @handles(TaskFailed)
    def task_failed(self, event: TaskFailed) -> None:
        self._bus.publish(Notify(event.text))

    @handles(HandlerFailed)
    def handler_failed(self, event: HandlerFailed) -> None:
        if event.error not in self._mistakes:  # the notice of the last failure may have caused it
            self._mistakes.add(event.error)
            self._bus.publish(Notify(f"{MISTAKE}, which keeps running: {event.error}. See session.log."))

    @handles(WritingFailed)
    def writing_failed(self, event: WritingFailed) -> None:
        _log.error(event.text)
        self._bus.publish(Notify(event.text, keep=False))

    @handles(ReadingFailed)
    def reading_failed(self, event: ReadingFailed) -> None:
        why = f"reading the agent's output failed ({event.reason})"
        lost = "relay no longer sees its directives, and types nothing into it"
        self._bus.publish(Notify(f"{why}. The agent keeps running; {lost} until `relay restart`."))

    @handles(TerminalLost)
    def lost(self, event: TerminalLost) -> None:
        self._journal.write("terminal_lost", what=event.what)

    @handles(NotifyDesktop)
    def desktop(self, event: NotifyDesktop) -> None:
        task = self._tasks.spawn(self._show(event.title, event.text), "a notification")
        self._showing.add(task)
        task.add_done_callback(self._showing.discard)

    @answers(SessionSettling)
    async def settle(self, _: SessionSettling, __: object) -> None:
        if self._showing:
            await asyncio.wait(self._showing, timeout=LAST_WORDS)

    async def _show(self, title: str, text: str) -> None:
        if why := await desktop_notification.notify(title, text):
            self._journal.write("notification", shown=False, reason=why)
