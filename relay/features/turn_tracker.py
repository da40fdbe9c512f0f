"""Follows the agent's turns: by its own hooks if they report, or else by its screen.

    HookReported ──────────────────────┐
    PromptSubmitted ─ AgentSaid ─ ready ┴─→ Turn ─→ TurnBegan, SourceChosen; texts to continue with

Output before the first turn is ignored: it may be an old conversation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from relay.agents.events import HookReported, RecordLost, TextRead, TurnRead, TurnShown
from relay.directives.events import AgentSaid, EarlierWords, SourceChosen
from relay.eventbus import EventBus, handles
from relay.hooks.apply import apply
from relay.hooks.events import AgentEnd
from relay.lifecycle import Identity
from relay.messaging.events import MessagesHeld
from relay.place import TERMINAL, TRANSCRIPT
from relay.rules.event import derived
from relay.rules.events import Consult
from relay.rules.turn_end import Ending, agent_end, decide_stop
from relay.state.continuations import Continuations
from relay.state.events import (
    FirstTurnBegan,
    HooksAlive,
    PromptSubmitted,
    StateChanged,
    StateJudged,
    TurnBegan,
    TurnDrawn,
)
from relay.state.readiness import Readiness
from relay.state.turn import Turn
from relay.tasks import Tasks

MAX_LINES = 2_000
"""Lines kept from the end of a turn on the screen."""


class TurnTracker:
    """Keeps `turn` up to date.

    session:  the identity that rules get.
    known:    relay has rules for the agent's screen; the screen of a plain program never shows a turn's end.
    hooked:   the agent's own hooks were set up.
    recorded: the agent has its own record, which can be read once its hooks are alive.
    named:    it has a record that is known without hooks (relay.features.own_record).
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        turn: Turn,
        continuations: Continuations,
        session: Identity,
        *,
        known: bool,
        hooked: bool,
        recorded: bool,
        named: bool,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._turn = turn
        self._continuations = continuations
        self._session = session
        self._known = known
        self._hooked = hooked
        self._recorded = recorded
        self._named = named
        self._drawn = _DrawnTurn()
        self._begun = not known
        self._source: tuple[str | None, bool] = first_source(known=known), False

    # By its hooks.

    @handles(HooksAlive)
    def alive(self, _: HooksAlive) -> None:
        self._choose()

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        if self._turn.take(event.event):
            self._bus.publish(TurnBegan())
        if self._turn.active:
            self._begin()

    @handles(TextRead)
    def recorded(self, event: TextRead) -> None:
        for text in event.texts:
            if not text.subagent:
                self._turn.say(text.text)

    # By its screen.

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        self._begin()
        begins = self._drawn.submitted()
        if self._turn.hooks.alive:
            return
        if event.by_user:
            self._turn.reset()
            begins = begins or not self._known
        if begins:
            self._bus.publish(TurnBegan())

    @handles(AgentSaid)
    def said(self, event: AgentSaid) -> None:
        self._drawn.said(event.lines)

    @handles(EarlierWords)
    def said_earlier(self, event: EarlierWords) -> None:
        for each in event.said:
            self._drawn.said(each.lines)

    @handles(StateJudged)
    def judged(self, event: StateJudged) -> None:
        """Begin the turn of an agent that shows work: its prompt may be one of its arguments."""
        verdict = event.verdict
        if verdict.state is Readiness.WORKING and verdict.rule and not verdict.draft:
            self._drawn.worked = True
            if not self._hooked:  # else hooks report it; starting up may look like work
                self._begin()

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        verdict = event.verdict
        if verdict is None or verdict.state not in {Readiness.READY, Readiness.FAILED}:
            return
        failed = verdict.state is Readiness.FAILED
        if self._turn.hooks.alive:
            began, worked = self._drawn.forget()
            if began is not None and worked and self._turn.hooks.lapse(began):
                self._bus.publish(HooksAlive(False))  # the screen has shown a whole turn without a report
            self._lapse(verdict.reason if failed else None)
        elif self._named:
            self._bus.publish(TurnShown(self._drawn.shown(over=not failed)))
        elif not failed and self._known:
            self._end()

    @handles(TurnRead)
    def read(self, _: TurnRead) -> None:
        if self._drawn.over:
            self._end()

    @handles(RecordLost)
    def lost(self, _: RecordLost) -> None:
        self._named = False
        self._choose()

    def _end(self) -> None:
        if (ended := self._drawn.ended()) is not None:
            self._bus.publish(TurnDrawn())
            self._tasks.queue(ended.name, self._may_continue(ended))

    @handles(TurnDrawn)
    def ended(self, _: TurnDrawn) -> None:
        """An earlier session may have seen it."""
        self._drawn.forget()

    @handles(MessagesHeld)
    def held(self, _: MessagesHeld) -> None:
        self._turn.hold()

    def _lapse(self, error: str | None) -> None:
        """End a turn whose end no hook reports: it was interrupted or, with an `error`, the model failed."""
        if not self._turn.active:
            return
        failed = None if error is None else agent_end(self._turn, error=error)
        self._turn.end(error)
        if failed is not None:
            self._tasks.queue(failed.name, self._tell(failed))

    async def _tell(self, failed: AgentEnd) -> None:
        results = await self._bus.gather(Consult(handlers=failed))
        apply(self._bus, results, event=failed.name)

    async def _may_continue(self, event: AgentEnd) -> None:
        """Ask rules and handlers if the agent should continue; if so, type their text."""
        ending = Ending.of(self._turn, self._continuations.most)
        last = event.last_assistant_message
        rules = derived(self._session, "Stop", last_assistant_message=last, **ending.facts())
        results = await self._bus.gather(Consult(rules, event, ending))
        decision = decide_stop(results, ending)
        match decision.outcome:
            case "refuse":
                self._continuations.refuse(decision.texts[0], ending.refusal)
            case "continue":
                self._continuations.by_prompt(decision.texts[-1])
                apply(self._bus, decision.given(results), event=event.name)

    # The source of its words.

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._bus.publish(FirstTurnBegan())
        self._choose()

    @handles(FirstTurnBegan)
    def began(self, _: FirstTurnBegan) -> None:
        """An earlier session may have seen it."""
        self._begun = True
        self._choose()

    def _choose(self) -> None:
        recorded = (self._recorded and self._turn.hooks.alive) or self._named
        kept = self._named and self._begun
        source = TRANSCRIPT if recorded else TERMINAL if self._begun else None
        if (source, kept) != self._source:
            self._source = source, kept
            self._bus.publish(SourceChosen(source, kept))


def first_source(*, known: bool) -> str | None:
    """Return the first source of an agent's words (relay.place): None for an agent that relay knows."""
    return None if known else TERMINAL


class _DrawnTurn:
    """A turn on the screen, from a submission until the agent is ready.

    worked: the screen has shown work. over: it shows that the agent is ready.
    """

    def __init__(self) -> None:
        self.worked = False
        self.over = False
        self._began: float | None = None
        self._lines: list[str] = []

    def submitted(self) -> bool:
        """Record a submission; return True if a turn begins with it."""
        self.over = False
        begins = self._began is None
        if begins:
            self._began = time.monotonic()
            self._lines.clear()
        return begins

    def forget(self) -> tuple[float | None, bool]:
        """Forget the turn, which somebody else reports; return its start time, if any, and `worked`."""
        began, self._began = self._began, None
        self._lines.clear()
        worked, self.worked = self.worked, False
        return began, worked

    def shown(self, *, over: bool) -> bool:
        """Note that the agent is ready or has failed; return True if it has worked in a turn."""
        worked, self.worked = self.worked and self._began is not None, False
        self.over = over
        return worked

    def said(self, lines: Sequence[str]) -> None:
        if self._began is not None:
            self._lines += lines
            del self._lines[:-MAX_LINES]

    def ended(self) -> AgentEnd | None:
        """End the turn; return its event, or None if none had begun."""
        if self._began is None or not self._lines:
            return None
        text = "\n".join(self._lines).strip()
        took = (time.monotonic() - self._began) * 1000
        self._began = None
        self._lines.clear()
        message = {"role": "assistant", "content": text}
        return AgentEnd(messages=(message,), last_assistant_message=text or None, duration_ms=took)
