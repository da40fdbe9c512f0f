"""Supervises the agent: decides what happens after it ends, and waits until that is due.

AgentExited ─ ... ─ WhatFollows ─→ decide ─┬→ over: done, failed, off
                                           └→ PhaseEntered, a pause ─→ Follower
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Literal

from relay.agents.conversation import Conversation
from relay.agents.events import CurrentConversation, LastFailure
from relay.dataclass import replace
from relay.directives.events import SessionResumed
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Follower, Identity, SessionBegan, StopRequested, WhatFollows
from relay.messaging.events import AddItem
from relay.state.events import StateChanged
from relay.state.readiness import Readiness
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.supervision.accounts import AccountHold
from relay.supervision.events import AccountHeld, EndAgent, Escalate, PhaseEntered
from relay.supervision.policy import Supervision
from relay.supervision.records import Records
from relay.supervision.restart import AgentExit, RestartDecision, RestartHistory, decide, span
from relay.supervision.states import PAUSED, Phase
from relay.supervision.succession import Succession
from relay.terminal.events import KeyChosen, KeysTyped, Notify
from relay.terminal.shim_link import ShimLink

EXPECTED = 10.0
"""Seconds before an agent's end in which keys or words that end it make the end expected."""

WALL_CHECK_EVERY = 5.0
"""Seconds between two checks of the wall clock, and of an account that is held."""

NEWS = 600.0
"""Seconds for which the failure of an unsupervised agent is news."""

NO_PROGRAM = 127
"""The exit code of a command whose program does not exist (POSIX, 2.8.2)."""

_ENDING_KEYS = (b"\x03", b"\x04")  # Ctrl-C, Ctrl-D
_ENDING_WORDS = (b"/exit", b"/quit", b"/bye", b"exit", b"quit")
_KEPT = 64  # bytes of what was typed last


class Supervisor:
    """Decides what follows one agent."""

    def __init__(
        self,
        bus: EventBus,
        shim: ShimLink,
        journal: Journal,
        session: Identity,
        progress: Progress,
        records: Records,
        policy: Supervision,
        succession: Succession,
        *,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._bus = bus
        self._shim = shim
        self._journal = journal
        self._session = session
        self._life = _Life(progress, clock)
        self._records = records
        self._policy = policy
        self._succession = succession
        self._clock = clock
        self._chance = chance
        self._order: asyncio.Future[str] = bus.loop.create_future()
        self._starting = False  # the decision was to start another agent

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._life.begin()
        if (ending := self._life.ending) is not None:
            self._bus.publish(ending)  # an earlier session has begun it

    @handles(EndAgent)
    def ending(self, event: EndAgent) -> None:
        self._life.end(event)

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        if (event.before, event.after) == (Readiness.WORKING, Readiness.READY):
            self._life.worked()

    @handles(SessionResumed)
    def resumed(self, event: SessionResumed) -> None:
        if event.keys:
            self._life.typed(event.keys)

    @handles(KeysTyped)
    def typed(self, event: KeysTyped) -> None:
        self._life.typed(event.data)

    @handles(StopRequested)
    def stopping(self, event: StopRequested) -> None:
        self._say(event.order or "stop")
        if self._starting and not event.order:  # the shim no longer starts it
            self._starting = False
            self._enter(PhaseEntered(Phase.OFF, "stopped", history=RestartHistory()))

    @handles(KeyChosen)
    def chosen(self, event: KeyChosen) -> None:
        if event.key == "q":
            self._bus.publish(StopRequested())
        else:
            self._say("due")

    def _say(self, order: str) -> None:
        if not self._order.done():
            self._order.set_result(order)

    @answers(WhatFollows)
    async def what_follows(self, question: WhatFollows, _: object) -> Follower | None:
        """Decide what follows, and return the next agent once it is due; None if none follows."""
        code, order = question.code, str(question.order)
        conversation = next(iter(await self._bus.ask_all(CurrentConversation())), None)
        command = None
        if not order:
            new = not self._life.decided
            decision = await self._decide(code)
            if not decision.pauses:
                await self._tell_end(decision, conversation)
                return None
            command = await self._succession.resumed(conversation)
            if self._succession.required and command is None:
                decision = replace(
                    decision, phase=Phase.HELD, at=None, note="there is no known conversation to resume"
                )
                self._enter(PhaseEntered.decided(decision, code))
            if new and decision.phase is Phase.HELD and not await self._account():
                self._escalate(
                    f"{decision.reason}, and is held: {decision.note}",
                    "`relay restart {}` starts a new one.",
                    "held",
                )
            order = await self._pause(decision, code)
            while order == "due" and (program := self._succession.missing(command)):
                decision = self._missing(program, decision.history)
                if not decision.pauses:
                    return None
                order = await self._pause(decision, code)
            if order == "stop":
                self._enter(PhaseEntered(Phase.OFF, "stopped", code, history=RestartHistory()))
                return None
        if order in {"restart", "resume"}:
            command = await self._succession.resumed(conversation, asked=order == "resume")
        elif order == "fresh":
            command = None
        if command is None and order != "fresh" and self._life.worked_once and self._succession.resumes:
            text = f"{self._session.name} starts a new conversation: the last one cannot be resumed."
            self._bus.publish(Notify(text, "warning"))
        self._starting = True
        self._enter(PhaseEntered(Phase.STARTING))
        return Follower(command or self._succession.fresh, resumes=command is not None)

    async def _tell_end(self, decision: RestartDecision, conversation: Conversation | None) -> None:
        """Tell the user how an agent that nothing starts again has failed, and how to continue."""
        past = decision.history.restarts or decision.history.waits  # then it is escalated
        if decision.phase is Phase.FAILED and not past and self._succession.converses:
            name, can = self._session.name, await self._succession.resumed(conversation, asked=True)
            how = f" `relay resume {name}` continues its conversation." if can is not None else ""
            self._bus.publish(Notify(f"{name} {decision.reason}.{how}", listed=True))

    def _missing(self, program: str, history: RestartHistory) -> RestartDecision:
        """Return the decision for an agent whose program does not exist now."""
        ended = AgentExit(NO_PROGRAM, why=f"cannot be started: there is no program {program!r}")
        decision = decide(self._policy, ended, history, self._clock(), self._chance)
        self._decided(decision, NO_PROGRAM)
        return decision

    def _decided(self, decision: RestartDecision, code: int) -> None:
        self._enter(PhaseEntered.decided(decision, code))
        if decision.phase is not Phase.FAILED:
            return
        if decision.history.restarts or decision.history.waits:
            starts = "up" if self._policy.fleet else "resume"
            self._escalate(
                f"{decision.reason}. It will not be restarted again",
                f"`relay {starts} {{}}` starts it.",
                "failed",
            )
        else:  # a user who is attached sees it
            lasts = NEWS if self._policy.restart == "no" else None
            self._bus.publish(AddItem("failed", decision.reason, self._shim.state.attached, lasts))

    def _escalate(self, what: str, how: str, kind: Literal["held", "failed"]) -> None:
        name = self._session.name
        self._bus.publish(Escalate(f"{name} {what}.", how.format(name), kind))

    async def _pause(self, decision: RestartDecision, code: int) -> str:
        """Wait until the next agent is due, and its account is not held.

        Return what ended the wait: the user's order, or "due".
        """
        self._shim.pause(f"{decision.reason}; {decision.note}.")
        held, told = await self._account(), None
        # The user's fix applies to all agents of the account.
        until = self._clock() if held and decision.phase is Phase.HELD else decision.at
        order = await self._wait(until)
        while order is None and (held := await self._account()):
            if held != told:
                told, phase = held, Phase.HELD if held.until is None else Phase.WAITING
                self._enter(PhaseEntered(phase, decision.reason, code, held.until, str(held)))
                self._shim.pause(f"{decision.reason}; {held}.")
            order = await self._wait(self._clock() + WALL_CHECK_EVERY)
        return order or "due"

    async def _account(self) -> AccountHold | None:
        """Return the hold of the agent's account; None if it is not held."""
        return next(iter(await self._bus.ask_all(AccountHeld())), None)

    async def _wait(self, until: float | None) -> str | None:
        """Return the user's order; None if none comes by `until` (seconds since the epoch).

        An order to go on, "due", counts once: if that is not possible now, the next wait is not over at once.
        """
        left = math.inf if until is None else until - self._clock()
        # The wall clock runs while the machine sleeps; if it is set back, the loop's clock ends the wait.
        while left > 0 and (until is None or self._clock() < until) and not self._order.done():
            look = min(left, WALL_CHECK_EVERY)
            await asyncio.wait({self._order}, timeout=look)
            left -= look
        if not self._order.done():
            return None
        order = self._order.result()
        if order == "due":
            self._order = self._bus.loop.create_future()
        return order

    async def _decide(self, code: int) -> RestartDecision:
        """Return the decision: an earlier session's if this one continues in the pause that followed it."""
        session, now = self._session, self._clock()
        supervised = self._policy.restart != "no"
        record = (
            await asyncio.to_thread(self._records.get, session.team, session.name) if supervised else None
        )
        if self._life.decided and record is not None and record.phase in PAUSED:
            left = "" if record.next_try is None else f"going on in {span(record.next_try - now)}"
            note, history = left or record.note, record.history
            resumed = RestartDecision(record.phase, record.reason, record.next_try, note, history)
            self._bus.publish(PhaseEntered.decided(resumed, code))
            return resumed
        # The shim remembers a stop that was requested from an earlier session.
        asked = supervised and not self._shim.kept
        asked = asked or (self._order.done() and self._order.result() == "stop")
        failure = next(iter(await self._bus.ask_all(LastFailure())), None)
        ended = self._life.ended(code, by_user=asked)
        if failure is not None:
            ended = replace(ended, failure=failure.cls, reset_at=failure.reset_at)
        decision = decide(
            self._policy, ended, record.history if record else RestartHistory(), now, self._chance
        )
        if (ending := self._life.ending) is not None and asked:
            decision = RestartDecision(ending.phase, ending.reason)
        self._life.decide()
        self._decided(decision, code)
        return decision

    def _enter(self, event: PhaseEntered) -> None:
        more = {"code": event.exit_code, "next_try": event.next_try}
        self._journal.write("phase", phase=str(event.phase), reason=event.reason or None, **more)
        self._bus.publish(event)


class _Life:
    """One run of the agent, across its sessions: when it began, whether it has worked, the last keys.

    ending:  supervision's order to end the agent; None if there is none.
    decided: an earlier session has decided what follows its end.
    """

    def __init__(self, progress: Progress, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._clock = clock
        self._began = clock()
        self._worked = self.decided = False
        self.ending: EndAgent | None = None
        self._keys, self._keys_at = b"", 0.0

    def begin(self) -> None:
        notes = self._progress.notes
        began = [note["at"] for note in notes if note["note"] == "began"]
        if began:
            self._began = float(began[0])
        else:
            self._progress.note("began", at=self._began)
        self._worked = any(note["note"] == "worked" for note in notes)
        self.decided = any(note["note"] == "decided" for note in notes)
        for note in notes:
            if note["note"] == "ending":
                self.ending = EndAgent(Phase(note["phase"]), note["reason"])

    def end(self, order: EndAgent) -> None:
        if self.ending is None:
            self.ending = order
            self._progress.note("ending", phase=str(order.phase), reason=order.reason)

    def decide(self) -> None:
        self._progress.note("decided")

    @property
    def worked_once(self) -> bool:
        return self._worked

    def worked(self) -> None:
        if not self._worked:
            self._worked = True
            self._progress.note("worked")

    def typed(self, keys: bytes) -> None:
        self._keys, self._keys_at = (self._keys + keys)[-_KEPT:], self._clock()

    def ended(self, code: int, *, by_user: bool) -> AgentExit:
        now = self._clock()
        recent = now - self._keys_at <= EXPECTED
        line = self._keys.replace(b"\n", b"\r").rstrip(b"\r").rpartition(b"\r")[2].strip()
        keys = any(key in self._keys for key in _ENDING_KEYS)
        expected = recent and (keys or line in _ENDING_WORDS)
        return AgentExit(code, now - self._began, self._worked, by_user, expected)
