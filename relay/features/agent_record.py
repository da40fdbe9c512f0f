"""Keeps the agent's record (relay.supervision.records) up to date, and reports it to `relay ps`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from relay.agents.events import ConversationChanged
from relay.dataclass import replace
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import EarlierInjectionEnded, InjectionEnded
from relay.injection.injection import Result
from relay.lifecycle import Describe, SessionBegan, SessionClosed, StopRequested
from relay.state.events import StateChanged
from relay.state.readiness import Readiness
from relay.supervision.events import PhaseEntered
from relay.supervision.records import AgentRecord, Records
from relay.supervision.states import PAUSED, Phase
from relay.terminal.events import Notify

Change = Callable[[AgentRecord], AgentRecord]


class AgentRecordWriter:
    """The record of one agent. first: its content when a session begins with a new agent.

    resumes: the agent continues an earlier conversation.
    """

    def __init__(
        self,
        bus: EventBus,
        records: Records,
        first: AgentRecord,
        *,
        resumes: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._records = records
        self._record = first
        self._resumes = resumes
        self._clock = clock
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._warned = False

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._record = first = replace(self._record, phase=Phase.STARTING, at=self._clock())

        def begun(before: AgentRecord) -> AgentRecord:
            if before.session == first.session:
                return before
            given = self._resumes and before.task_given
            conversation = before.conversation if self._resumes else None
            starting = replace(first, task_given=given, conversation=conversation)
            if not first.restarts:
                return replace(starting, scheduled=first.at)
            code, history, scheduled = before.exit_code, before.history, before.scheduled
            return replace(starting, exit_code=code, history=history, scheduled=scheduled)

        self._change(begun)

    @handles(StateChanged)
    def ready(self, event: StateChanged) -> None:
        if event.after == Readiness.READY and self._record.phase is Phase.STARTING:
            self._enter(PhaseEntered(Phase.UP))

    @handles(StopRequested)
    def stopping(self, event: StopRequested) -> None:
        if event.by_user and not event.order:
            self._record = replace(self._record, wanted="down", by="stop")
            self._change(lambda record: replace(record, wanted="down", by="stop"))

    @handles(InjectionEnded, EarlierInjectionEnded)
    def given(self, event: InjectionEnded) -> None:
        if event.injection.kind == "task" and event.outcome.result in {Result.INJECTED, Result.UNCERTAIN}:
            self._change(lambda record: replace(record, task_given=True))

    @handles(ConversationChanged)
    def conversation(self, event: ConversationChanged) -> None:
        known = None if event.conversation is None else event.conversation.to_json()
        self._change(lambda record: replace(record, conversation=known))

    @handles(PhaseEntered)
    def entered(self, event: PhaseEntered) -> None:
        self._enter(event)

    def _enter(self, event: PhaseEntered) -> None:
        now = self._clock()

        def enter(record: AgentRecord) -> AgentRecord:
            code = record.exit_code if event.exit_code is None else event.exit_code
            history = record.history if event.history is None else event.history
            more = {"exit_code": code, "history": history}
            return record.enter(
                event.phase, now, event.reason, next_try=event.next_try, note=event.note, **more
            )

        self._record = enter(self._record)
        self._change(enter)

    def _change(self, change: Change) -> None:
        self._changes.put_nowait(change)

    async def run(self) -> None:
        """Write each change, off the event loop."""
        while True:
            change = await self._changes.get()
            try:
                await asyncio.to_thread(self._write, change)
            except RelayError as error:
                if not self._warned:
                    self._warned = True
                    self._bus.publish(Notify(f"{error} `relay ps -a` may show an old state.", "warning"))
            finally:
                self._changes.task_done()

    def _write(self, change: Change) -> None:
        first = self._record
        self._records.change(first.team, first.name, change)

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        await self._changes.join()

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        record = self._record
        if record.phase not in PAUSED:
            return {"wanted": record.wanted, "parent": record.parent} if question.brief else None
        ended = f"it {record.reason}; {record.note}" if record.note else f"it {record.reason}"
        told = {"exit_code": record.exit_code, "next_try": record.next_try, "wanted": record.wanted}
        if question.brief:
            more = {"reason": record.reason, "parent": record.parent}
            return {"state": str(record.phase), "since": record.at, **more, **told}
        return {"state": str(record.phase), "reason": ended, **told}
