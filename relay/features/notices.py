"""Keeps notices to the user in the journal, and in the inbox until somebody has seen them; turns relay's own
faults into notices.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from relay.clock import TICK
from relay.eventbus import EventBus, HandlerFailed, answers, handles
from relay.lifecycle import Describe, SessionBegan, SessionSettling
from relay.messaging.events import AddItem, EndItem
from relay.messaging.user_inbox import NOTICE_DAYS
from relay.storage.journal import Journal, WritingFailed
from relay.tasks import TaskFailed
from relay.terminal.events import (
    AttachmentChanged,
    MistakeFound,
    Notify,
    ReadingFailed,
    TerminalLost,
    WithdrawNotice,
)
from relay.terminal.shim_link import ShimLink

MISTAKE = "internal error in relay"
"""The beginning of the notice that one of relay's own handlers has failed."""

UNSEEN = 1.0
"""Seconds after which a notice that no terminal has shown goes into the inbox."""

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
        journal: Journal,
        shim: ShimLink,
        first: tuple[str, ...],
        *,
        mistakes: tuple[str, ...] = (),
        told: frozenset[str] = frozenset(),
        noticed: frozenset[str] = frozenset(),
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._shim = shim
        self._first = first
        self._mistakes_in_force = list(mistakes)
        self._told = told
        self._noticed = noticed
        self._mistakes: set[str] = set()
        self._new: dict[str, Notify] = {}  # by the line that the shim shows, if it can
        self._unseen: dict[str, str] = {}  # the items of those that it could not show
        self._look: asyncio.TimerHandle | None = None

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        for text in self._mistakes_in_force:
            self._bus.publish(AddItem("configuration", text, quiet=text in self._told))
        for text in self._first:
            notice = Notify(text, listed=text in self._mistakes_in_force)
            if text in self._noticed:
                continue
            if text in self._told:
                self._note(notice)
            else:
                self._bus.publish(notice)

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"configuration": self._mistakes_in_force}

    @handles(MistakeFound)
    def found(self, event: MistakeFound) -> None:
        self._mistakes_in_force.append(event.text)
        self._bus.publish(AddItem("configuration", event.text))

    @handles(WithdrawNotice)
    def mended(self, event: WithdrawNotice) -> None:
        self._mistakes_in_force = [text for text in self._mistakes_in_force if text != event.text]
        self._bus.publish(EndItem("configuration", event.text))

    @handles(Notify)
    def keep(self, event: Notify) -> None:
        if event.keep:
            self._note(event)
            if not event.listed:
                self._new[event.shown] = event
                self._look_in(UNSEEN)

    def _note(self, event: Notify) -> None:
        self._journal.write("notice", text=event.line, level=event.level, source=event.source or None)

    def _look_in(self, seconds: float) -> None:
        if self._look is None:
            self._look = self._bus.loop.call_later(seconds, self._look_at_unseen)

    def _look_at_unseen(self) -> None:
        """Put notices that no terminal has shown into the inbox, and take those that one has out again."""
        self._look = None
        pending, lasts = self._shim.notices(), NOTICE_DAYS * 86400.0
        for line, notice in self._new.items():
            if line in pending:
                self._unseen[line] = notice.line
                self._bus.publish(AddItem("notice", notice.line, notice.level == "info", lasts))
        self._new.clear()
        for line in self._unseen.keys() - pending:
            self._bus.publish(EndItem("notice", self._unseen.pop(line)))
        if self._unseen and self._shim.state.attached:
            self._look_in(TICK)

    @handles(AttachmentChanged)
    def attached(self, _: AttachmentChanged) -> None:
        if self._unseen:
            self._look_in(UNSEEN)

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

    @answers(SessionSettling)
    async def settle(self, _: SessionSettling, __: object) -> None:
        """Look for the last time: the agent's terminal was given back, with what it had not shown."""
        if self._new or self._unseen:
            self._look_at_unseen()
