"""Nudges an agent, once, to continue an interrupted turn after its conversation is resumed.

TurnBegan ─→ noted ─→ TurnOver(well)
                └───→ the agent crashes, or the machine goes down ─→ the next SessionReady ─→ Inject

A turn that ended with an error is unfinished, too. If the agent's task has never arrived, the task is given
instead of the nudge. The nudge is withdrawn if the user submits a prompt first.
"""

from __future__ import annotations

import asyncio
import time

from relay.eventbus import EventBus, handles
from relay.injection.events import EarlierInjectionEnded, Inject, InjectionEnded, Withdraw
from relay.injection.injection import Injection, Result
from relay.lifecycle import Identity, SessionBegan, SessionReady
from relay.messaging.events import InHand
from relay.state.events import PromptSubmitted, TurnBegan, TurnOver
from relay.supervision.notebook import Notebook
from relay.supervision.records import Records
from relay.tasks import Tasks

TEXT = (
    "You were interrupted: your process ended in the middle of a turn, and this conversation was resumed. "
    "Continue where you stopped."
)


class InterruptedTurn:
    """Follows the turns of one agent, across its restarts.

    resumes: the agent was started to continue an earlier conversation. task: it has a first prompt.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        session: Identity,
        records: Records,
        notes: Notebook,
        *,
        resumes: bool,
        task: bool,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._session = session
        self._records = records
        self._notes = notes
        self._resumes = resumes
        self._task = task
        self._id = f"{session.id}-go-on"  # the same in all sessions of this agent
        self._unfinished = False
        self._owed = False

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        notes = self._notes.read()
        self._unfinished = bool(notes.get("unfinished"))
        if notes.get("life") == self._session.id:
            self._owed = notes.get("owed") == self._session.id
        else:
            self._unfinished = self._owed = self._unfinished and self._resumes
        self._note()

    @handles(SessionReady)
    def ready(self, _: SessionReady) -> None:
        if self._owed:
            self._tasks.spawn(self._give(), "the nudge after an interrupted turn")

    async def _give(self) -> None:
        if self._task:
            record = await asyncio.to_thread(self._records.get, self._session.team, self._session.name)
            if record is None or not record.task_given:
                return
        if self._owed and self._id not in await self._bus.gather(InHand()):
            self._bus.publish(Inject(Injection(self._id, TEXT, "", "nudge", time=time.time())))

    @handles(InjectionEnded, EarlierInjectionEnded)
    def given(self, event: InjectionEnded) -> None:
        if event.injection.id == self._id and event.outcome.result in {Result.INJECTED, Result.UNCERTAIN}:
            self._owed = False
            self._note()

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if self._owed and event.by_user:
            self._owed = False
            self._bus.publish(Withdraw(self._id))
            self._note()

    @handles(TurnBegan)
    def began(self, _: TurnBegan) -> None:
        self._unfinished = True
        self._note()

    @handles(TurnOver)
    def over(self, event: TurnOver) -> None:
        self._unfinished = not event.well
        self._note()

    def _note(self) -> None:
        life = self._session.id
        self._notes.write({"life": life, "unfinished": self._unfinished, "owed": life if self._owed else ""})
