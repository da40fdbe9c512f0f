"""Follows the agent's turns, by whichever source tells of them: its own hooks where they speak, else its screen.

    HookReported ──────────────────────┐
    PromptSubmitted ─ AgentSaid ─ ready ┴─→ Turn ─→ TurnBegan, SourceChosen; what the agent goes on with

Until its first turn nothing that an agent draws is heard: it may be an old conversation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from relay.agents.events import HookReported, TextRead
from relay.directives.events import AgentSaid, SourceChosen
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
from relay.state.events import HooksAlive, PromptSubmitted, StateChanged, StateJudged, TurnBegan, TurnDrawn
from relay.state.readiness import Readiness
from relay.state.turn import Turn
from relay.tasks import Tasks

MAX_LINES = 2_000
"""Lines of one turn on the screen that are kept, the last ones."""


class TurnTracker:
    """Keeps `turn`.

    session:  for what rules are told.
    known:    relay knows the agent's states on its screen; of a plain program nothing shows where a turn ends.
    hooked:   the agent's own hooks were set up.
    recorded: what the agent says is in its own record, which can be read once its hooks are alive.
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
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._turn = turn
        self._continuations = continuations
        self._session = session
        self._known = known
        self._hooked = hooked
        self._recorded = recorded
        self._drawn = _DrawnTurn()
        self._begun = not known
        self._source: str | None = first_source(known=known)

    # What the agent's hooks tell.

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

    # What the screen tells.

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        self._begin()
        begins = self._drawn.submitted()
        if self._turn.hooks.alive:
            return
        if event.by_user:
            self._turn.begin_anew()
            begins = begins or not self._known
        if begins:
            self._bus.publish(TurnBegan())

    @handles(AgentSaid)
    def said(self, event: AgentSaid) -> None:
        self._drawn.said(event.lines)

    @handles(StateJudged)
    def judged(self, event: StateJudged) -> None:
        """An agent that works by its own rules was given a prompt in its arguments."""
        verdict = event.verdict
        if verdict.state is Readiness.WORKING and verdict.rule and not verdict.draft:
            self._drawn.works()
            if not self._hooked:  # hooks tell of it; what only starts may look like work
                self._begin()

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        verdict = event.verdict
        if verdict is None or verdict.state not in {Readiness.READY, Readiness.FAILED}:
            return
        failed = verdict.state is Readiness.FAILED
        if self._turn.hooks.alive:
            self._notice_silence()
            self._lapse(verdict.reason if failed else None)
        elif not failed:
            self._end_drawn_turn()

    @handles(MessagesHeld)
    def held(self, _: MessagesHeld) -> None:
        self._turn.hold()

    def _notice_silence(self) -> None:
        """Where the screen has shown a whole turn of which no hook told, the screen counts again."""
        began, worked = self._drawn.forget()
        if began is not None and worked and self._turn.hooks.lapse(began):
            self._bus.publish(HooksAlive(False))

    def _lapse(self, error: str | None) -> None:
        """The screen shows that the turn is over of which no hook told: the user has interrupted it, or, with
        an `error`, the model failed; then nobody goes on with it."""
        if not self._turn.active:
            return
        failed = None if error is None else agent_end(self._turn, error=error)
        self._turn.end(error)
        if failed is not None:
            self._tasks.queue(failed.name, self._consult(Consult(handlers=failed)))

    async def _consult(self, question: Consult) -> None:
        await self._bus.ask(question)

    def _end_drawn_turn(self) -> None:
        """The screen shows that a turn has ended of which no hooks tell."""
        event = self._drawn.ended() if self._known else None
        if event is not None:
            self._bus.publish(TurnDrawn())
            self._tasks.queue(event.name, self._go_on(event))

    async def _go_on(self, event: AgentEnd) -> None:
        """Let rules and handlers have the agent go on, which here means that a text is typed."""
        ending = Ending.of(self._turn, self._continuations.most)
        last = event.last_assistant_message
        rules = derived(self._session, "Stop", last_assistant_message=last, **ending.facts())
        answers = await self._bus.ask(Consult(rules, event, ending))
        results = [result for answer in answers for result in answer]
        decision = decide_stop(results, ending)
        match decision.outcome:
            case "refuse":
                self._continuations.refuse(decision.texts[0], ending.refusal)
            case "go_on":
                self._continuations.by_prompt(decision.texts[-1])
                apply(self._bus, decision.given(results), event=event.name)

    # Where the agent's words are taken from.

    def _begin(self) -> None:
        self._begun = True
        self._choose()

    def _choose(self) -> None:
        recorded = self._recorded and self._turn.hooks.alive
        source = TRANSCRIPT if recorded else TERMINAL if self._begun else None
        if source != self._source:
            self._source = source
            self._bus.publish(SourceChosen(source))


def first_source(*, known: bool) -> str | None:
    """Return where the words of an agent are taken from at first: of one that relay knows, from nowhere."""
    return None if known else TERMINAL


class _DrawnTurn:
    """What the screen shows between a submission and the moment at which the agent is ready again."""

    def __init__(self) -> None:
        self._worked = False  # the screen has shown work since the agent was ready
        self._began: float | None = None
        self._lines: list[str] = []

    def submitted(self) -> bool:
        """Note that something was submitted; return True if a turn begins with it."""
        begins = self._began is None
        if begins:
            self._began = time.monotonic()
            self._lines.clear()
        return begins

    def forget(self) -> tuple[float | None, bool]:
        """Forget the turn, of which others tell; return when it began and whether work was seen in it."""
        began, self._began = self._began, None
        worked, self._worked = self._worked, False
        return began, worked

    def works(self) -> None:
        """Note that the screen shows work."""
        self._worked = True

    def said(self, lines: Sequence[str]) -> None:
        if self._began is not None:
            self._lines += lines
            del self._lines[:-MAX_LINES]

    def ended(self) -> AgentEnd | None:
        """Return the event of a turn that has ended; None where none had begun."""
        if self._began is None or not self._lines:
            return None
        text = "\n".join(self._lines).strip()
        took = (time.monotonic() - self._began) * 1000
        self._began = None
        self._lines.clear()
        message = {"role": "assistant", "content": text}
        return AgentEnd(messages=(message,), last_assistant_message=text or None, duration_ms=took)
