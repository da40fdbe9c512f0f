"""Limits unattended work: turns and time without the user, tokens, dollars.

    turns, time   since the user's last input: held at the bound
    tokens, cost  of the run: a warning at 80 %; at 100 % nothing more is given to the agent, and it is
                  held at the end of its turn

When the user releases the agent, it may spend the same amount again.
"""

from __future__ import annotations

import asyncio

from relay.agents.events import UsageChanged
from relay.clock import WallClock
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import MayBegin
from relay.lifecycle import SessionBegan, SessionClosed
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted, StateChanged, TurnBegan
from relay.state.readiness import Readiness
from relay.supervision.events import Escalate, Hold, HoldOver
from relay.supervision.notebook import Notebook
from relay.supervision.policy import Supervision
from relay.supervision.restart import span
from relay.terminal.events import AgentExited

WARN = 0.8
"""The fraction of a cap at which the user is warned."""


class Bounds:
    """The bounds of the agent `name`.

    life:  the id of its session: the reported usage starts at 0 in each run of the agent.
    known: relay can tell the turns of such an agent; otherwise it counts prompts.
    """

    def __init__(
        self,
        bus: EventBus,
        terminal: AgentTerminal,
        policy: Supervision,
        notes: Notebook,
        *,
        name: str,
        life: str,
        known: bool,
        clock: WallClock | None = None,
    ) -> None:
        self._bus = bus
        self._terminal = terminal
        self._policy = policy
        self._notes = notes
        self._name = name
        self._life = life
        self._known = known
        self._clock = clock or WallClock()
        self._alone = _Alone(0, self._clock.now())
        self._spending = {"tokens": _Cap(policy.max_tokens), "cost": _Cap(policy.max_cost)}
        self._resting = False  # its turn is over
        self._timer: asyncio.TimerHandle | None = None

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Continue from the notes of an earlier session."""
        notes = self._notes.read()
        self._alone.turns = int(notes.get("turns", 0))
        self._alone.since = float(notes.get("since", self._alone.since))
        for name, cap in self._spending.items():
            cap.restore(notes.get(name), same_life=notes.get("life") == self._life)
        self._look()

    # Turns and time without the user.

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if self._terminal.replaying:
            return
        if event.by_user:
            self._alone.attended = self._known
            self._user_came()
        elif not self._known:
            self._count()

    @handles(TurnBegan)
    def turn(self, _: TurnBegan) -> None:
        if self._known and not self._terminal.replaying:
            self._count()

    def _count(self) -> None:
        if self._alone.attended:
            self._alone.attended = False
            return
        self._alone.turns += 1
        self._note()
        if 0 < self._policy.max_unattended_turns <= self._alone.turns:
            self._bus.publish(Hold(f"started {self._alone.turns} turns without your input"))

    def _user_came(self) -> None:
        self._alone.turns, self._alone.since = 0, self._clock.now()
        self._note()
        self._look()

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (most := self._policy.max_runtime):
            return
        due = self._alone.since + most
        if self._clock.now() >= due:
            self._bus.publish(Hold(f"ran for {span(most)} without your input"))
        else:
            self._timer = self._clock.look(due, self._look)

    # Tokens and cost.

    @handles(UsageChanged)
    def used(self, event: UsageChanged) -> None:
        self.spent(event.tokens.total, event.cost or 0.0)

    def spent(self, tokens: int, cost: float) -> None:
        """Take the agent's total usage in this run: tokens of all kinds, US dollars."""
        for name, total in (("tokens", float(tokens)), ("cost", cost)):
            cap = self._spending[name]
            if cap.take(total):
                what = f"{self._name} has used {_spent(name, cap)}."
                self._bus.publish(Escalate(what, "At 100 % it is held at the end of its turn."))
        self._note()
        self._hold_if_spent()

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        self._resting = event.after in {Readiness.READY, Readiness.FAILED}
        self._hold_if_spent()

    def _hold_if_spent(self) -> None:
        if self._resting and (reason := self._spent):
            self._bus.publish(Hold(reason))

    @property
    def _spent(self) -> str:
        """The reason to hold the agent: the first cap that is reached; "" if none is."""
        reached = (f"has used {_spent(name, cap)}" for name, cap in self._spending.items() if cap.reached)
        return next(reached, "")

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        """Refuse injections that would begin another turn, or lengthen the last one."""
        if (reason := self._spent) and question.injection.kind != "closing":
            raise RelayError(f"it {reason}, and is held at the end of its turn.")

    @handles(HoldOver)
    def released(self, _: HoldOver) -> None:
        for cap in self._spending.values():
            if cap.reached:
                cap.begin_anew()
        self._user_came()

    # Notes for later sessions.

    def _note(self) -> None:
        caps = {name: cap.notes() for name, cap in self._spending.items() if cap.most}
        alone = {"turns": self._alone.turns, "since": self._alone.since}
        self._notes.write({"life": self._life, **alone, **caps})

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @answers(SessionClosed)
    async def close(self, event: SessionClosed, __: object) -> None:
        if event.ended:
            self._notes.remove()


class _Alone:
    """The turns without the user, and the time of the user's last input, in seconds since the epoch.

    attended: the user's prompt begins the next turn, or began the current one.
    """

    def __init__(self, turns: int, since: float) -> None:
        self.turns = turns
        self.since = since
        self.attended = False


class _Cap:
    """One cap. most: 0 for none; used: since the user last released the agent."""

    def __init__(self, most: float) -> None:
        self.most = most
        self._total = self._base = 0.0
        self._warned = False

    @property
    def used(self) -> float:
        return self._total - self._base

    @property
    def reached(self) -> bool:
        return 0 < self.most <= self.used

    def take(self, total: float) -> bool:
        """Take the total; return True if it is time to warn the user."""
        self._total = total
        warns = WARN * self.most <= self.used < self.most and not self._warned
        self._warned = self._warned or warns
        return warns

    def begin_anew(self) -> None:
        self._base, self._warned = self._total, False

    def notes(self) -> list[float]:
        return [self._total, self._base, self._warned]

    def restore(self, notes: object, *, same_life: bool) -> None:
        match notes:
            case [float() | int() as total, float() | int() as base, bool() as warned]:
                # The totals of another run start at 0; what the last run used still counts.
                self._base = float(base if same_life else base - total)
                self._total, self._warned = float(total if same_life else 0), warned


def _spent(name: str, cap: _Cap) -> str:
    """Return the usage and the cap: "800 of 1,000 tokens", "$4.00 of $5.00"."""
    if name == "tokens":
        return f"{cap.used:,.0f} of {cap.most:,.0f} tokens"
    return f"${cap.used:,.2f} of ${cap.most:,.2f}"
