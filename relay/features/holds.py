"""Holds a running agent, or all agents of its account: they get nothing more until the user releases them.

Hold, or `relay hold` ─→ noted, HELD, escalated unless by the user
               ─→ the user's prompt, `relay release --agent`, `relay restart` ─→ HoldOver
HoldAccount ─→ the account's file, escalated once, by the first agent to hold it
               ─→ a turn that began after the hold and ended well, `relay release --account` ─→ AccountFreed
MayBegin    ─→ refused for now, except for closing prompts; of a held account, only nudges and first prompts

Agents are held for work without the user, for the tokens and dollars they spend, and for loops.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from relay.agents.events import HookReported, UsageChanged
from relay.agents.hook_event import NativeName
from relay.clock import TICK, Clock, WallClock
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import MayBegin, TryAgain
from relay.lifecycle import Describe, SessionBegan, StopRequested
from relay.messaging.events import AddItem, EndItem
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted, StateChanged, TurnBegan, TurnOver
from relay.state.readiness import Readiness
from relay.supervision.accounts import AccountHold, Accounts
from relay.supervision.events import (
    AccountFreed,
    AccountHeld,
    Escalate,
    Hold,
    HoldAccount,
    HoldOver,
    PhaseEntered,
)
from relay.supervision.notebook import Notebook
from relay.supervision.policy import Supervision
from relay.supervision.restart import span, words
from relay.supervision.states import Phase
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, KeyChosen, Notify
from relay.text import one_line

BY_USER = "was put on hold by you"
"""The reason of `relay hold`."""

WARN = 0.8
"""The fraction of a cap at which the user is warned."""

SAME_CALLS = 8
"""Equal tool calls in a row that count as a loop. An agent may poll something a few times; one that repeats a
call eight times, with nothing in between, does not use the results."""

SILENCE = 900.0
"""Seconds without output from a working agent. Agents animate while they work, so this one may hang; it may
also wait for a slow tool, so relay tells the user and leaves the agent alone."""

_SUBAGENTS = 64  # whose calls are followed, at most

WAITS = frozenset({"task", "nudge"})
"""Kinds of texts that wait while the account is held."""

_CURES = {"unauthorized": "Log in", "billing": "Add credits"}
"""The user's remedy for each class of failure that holds an account."""


class Holds:
    """The hold of the agent `name`, which outlasts one run of the agent."""

    def __init__(self, bus: EventBus, notes: Notebook, *, name: str) -> None:
        self._bus = bus
        self._notes = notes
        self._name = name
        self._way_out = f"type a prompt into its terminal, or run `relay release --agent {name}`"
        self._reason = ""
        self._exited = False

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if reason := str(self._notes.read().get("reason", "")):
            self._bus.publish(Hold(reason))

    @handles(Hold)
    def hold(self, event: Hold) -> None:
        if self._reason:
            return
        known = event.reason == BY_USER or self._notes.read().get("reason") == event.reason
        self._reason = event.reason
        self._notes.write({"reason": event.reason})
        self._bus.publish(PhaseEntered(Phase.HELD, event.reason, note=f"held until you {self._way_out}"))
        what, how = f"{self._name} {event.reason}, and is held.", f"To let it continue, {self._way_out}."
        if known:
            self._bus.publish(AddItem("held", f"{what} {how}", quiet=event.reason == BY_USER))
        else:
            self._bus.publish(Escalate(what, how, "held"))

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        if self._reason and question.injection.kind != "closing":
            raise RelayError(f"it is held: it {self._reason}. To let it continue, {self._way_out}")

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if event.by_user:
            self._end()

    @handles(StopRequested)
    def restarting(self, event: StopRequested) -> None:
        """End the hold: a restart by the user lets the next agent continue."""
        if event.order and event.by_user:
            self._end()

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._exited = True

    @operation("hold")
    async def hold_for_user(self, _: Request) -> Answer:
        """Give the agent nothing more until the user releases it."""
        held = bool(self._reason)
        self._bus.publish(Hold(BY_USER))
        return {"held": held}

    @operation("release")
    async def release(self, _: Request) -> Answer:
        """Let the agent continue, or restart it if it has ended and is held."""
        held = bool(self._reason)
        self._end()
        if self._exited:
            self._bus.publish(KeyChosen("r"))
        return {"ok": True, "held": held or self._exited}

    def _end(self) -> None:
        if not self._reason:
            return
        self._reason = ""
        self._notes.remove()
        if not self._exited:
            self._bus.publish(PhaseEntered(Phase.UP))
        self._bus.publish(HoldOver())
        self._bus.publish(EndItem("held"))
        self._bus.publish(TryAgain())

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return {"hold": self._reason} if self._reason and not question.brief else None


class Bounds:
    """The limits of the work of the agent `name`; once the user releases it, it may do the same amount again.

        turns, time   since the user's last input: held at the bound
        tokens, cost  of the run: a warning at 80 %; at 100 % nothing more is given to the agent, and it is
                      held at the end of its turn

    life:  the id of its session: the reported usage starts at 0 in each run of the agent.
    known: relay can tell the turns of such an agent; otherwise it counts prompts.
    """

    def __init__(
        self,
        bus: EventBus,
        policy: Supervision,
        notes: Notebook,
        *,
        name: str,
        life: str,
        known: bool,
        clock: WallClock | None = None,
    ) -> None:
        self._bus = bus
        self._policy = policy
        self._notes = notes
        self._name = name
        self._life = life
        self._known = known
        self._clock = clock or WallClock()
        self._unattended = _Unattended(0, self._clock.now())
        self._spending = {"tokens": _Cap(policy.max_tokens), "cost": _Cap(policy.max_cost)}
        self._resting = False  # its turn is over
        self._timer: asyncio.TimerHandle | None = None

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        notes = self._notes.read()
        self._unattended.turns = int(notes.get("turns", 0))
        self._unattended.since = float(notes.get("since", self._unattended.since))
        for name, cap in self._spending.items():
            cap.restore(notes.get(name), same_life=notes.get("life") == self._life)
        self._look()

    # Turns and time without the user.

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if event.by_user:
            self._unattended.attended = self._known
            self._user_came()
        elif not self._known:
            self._count()

    @handles(TurnBegan)
    def turn(self, _: TurnBegan) -> None:
        if self._known:
            self._count()

    def _count(self) -> None:
        if self._unattended.attended:
            self._unattended.attended = False
            return
        self._unattended.turns += 1
        self._note()
        if 0 < self._policy.max_unattended_turns <= self._unattended.turns:
            self._bus.publish(Hold(f"started {self._unattended.turns} turns without your input"))

    def _user_came(self) -> None:
        self._unattended.turns, self._unattended.since = 0, self._clock.now()
        self._note()
        self._look()

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (most := self._policy.max_runtime):
            return
        due = self._unattended.since + most
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
                cap.reset()
        self._user_came()

    # Notes for later sessions.

    def _note(self) -> None:
        caps = {name: cap.notes() for name, cap in self._spending.items() if cap.most}
        turns, since = self._unattended.turns, self._unattended.since
        self._notes.write({"life": self._life, "turns": turns, "since": since, **caps})

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Unattended:
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

    def reset(self) -> None:
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


class LoopWatch:
    """Detects that the agent `name` repeats the same tool call, or works without output.

    known: relay knows its screen; a program that prints lines may be silent.
    """

    def __init__(
        self, bus: EventBus, terminal: AgentTerminal, *, name: str, known: bool, clock: Clock | None = None
    ) -> None:
        self._bus = bus
        self._terminal = terminal
        self._name = name
        self._known = known
        self._clock = clock or Clock()
        self._calls: dict[str, tuple[int, int]] = {}  # by subagent: the last call, and how often in a row
        self._timer: asyncio.TimerHandle | None = None

    @handles(TurnBegan, HoldOver)
    def forget(self, _: object) -> None:
        self._calls.clear()

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        call = event.event
        if call.name is not NativeName.TOOL_PRE:
            return
        digest = hash(json.dumps([call.tool_name, call.tool_input], sort_keys=True, default=str))
        last, times = self._calls.get(call.agent_id, (0, 0))
        times = times + 1 if digest == last else 1
        if len(self._calls) >= _SUBAGENTS:
            self._calls.clear()
        self._calls[call.agent_id] = digest, times
        if times == SAME_CALLS:
            tool = one_line(call.tool_name, 40)
            self._bus.publish(Hold(f"made the same call of {tool} {times} times in a row"))

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        self._cancel()
        if self._known and event.after == Readiness.WORKING:
            self._timer = self._clock.later(SILENCE, self._look)

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._cancel()

    def _look(self) -> None:
        quiet = self._clock.now() - self._terminal.last_output()
        if quiet < SILENCE:
            self._timer = self._clock.later(SILENCE - quiet, self._look)
            return
        self._timer = None
        what = f"{self._name} has been working for {span(SILENCE)} without output."
        self._bus.publish(
            Escalate(what, f"`relay attach {self._name}` shows what it is doing. relay leaves it alone.")
        )

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AccountWatch:
    """The account of the agent `name`. If a hold cannot be written, only this agent is held, until it can."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        accounts: Accounts,
        *,
        account: str,
        name: str,
        clock: WallClock | None = None,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._accounts = accounts
        self._account = account
        self._name = name
        self._clock = clock or WallClock()
        self._turn = 0.0  # when the last turn began
        self._held = asyncio.Event()  # this agent waits for the hold to end
        self._new: AccountHold | None = None  # a hold that is not written yet

    async def run(self) -> None:
        """Publish AccountFreed after each hold that this agent ran into, even in an earlier session."""
        self._held.set()
        while True:
            await self._held.wait()
            while await self._hold() is not None:
                await self._clock.sleep(TICK)
                if self._new is not None:
                    self._tasks.queue("its account", self._try_again())
            self._held.clear()
            self._bus.publish(AccountFreed())
            self._bus.publish(TryAgain())

    @handles(HoldAccount)
    def hold(self, event: HoldAccount) -> None:
        now = self._clock.now()
        self._new = new = AccountHold(self._account, event.cls, event.reason, self._name, now, event.until)
        self._tasks.queue("its account", self._begin(event, new))

    async def _begin(self, event: HoldAccount, new: AccountHold) -> None:
        try:
            fresh = await self._write(new)
        except RelayError as error:
            fresh = True  # as far as this agent knows
            others = f"Meanwhile, other agents of the account {self._account} continue."
            self._bus.publish(Notify(f"{error} {others}", "warning"))
        self._held.set()
        if fresh and event.until is None:
            detail = f": {event.reason}" if event.reason else ""
            what = f"{self._name} stopped on an error ({words(event.cls)}){detail}".rstrip(".")
            first = _CURES.get(event.cls, "See to it")
            how = (
                f"relay holds all agents of the account {self._account}. {first}, and give it a prompt "
                f"(`relay attach {self._name}`): they go on once a turn ends well, or at "
                f"`relay release --account {self._account}`."
            )
            self._bus.publish(Escalate(f"{what}.", how))

    async def _write(self, new: AccountHold) -> bool:
        """Write a hold; return False if the account is already held for at least as long."""
        fresh = await asyncio.to_thread(self._accounts.hold, new)
        if self._new is new:
            self._new = None
        return fresh

    async def _try_again(self) -> None:
        if self._new is not None:
            with suppress(RelayError):  # it has been reported
                await self._write(self._new)

    @handles(PromptSubmitted, TurnBegan)
    def begins(self, _: object) -> None:
        self._turn = self._clock.now()

    @handles(TurnOver)
    def over(self, event: TurnOver) -> None:
        if event.well and self._turn:
            self._tasks.queue("its account", self._release(self._turn))

    async def _release(self, since: float) -> None:
        held = await self._hold()
        if held is not None and held.until is None:
            if held is self._new and held.at <= since:
                self._new = None
            await asyncio.to_thread(self._accounts.release, self._account, since=since)

    async def _hold(self) -> AccountHold | None:
        if self._new is not None and self._new.active(self._clock.now()):
            return self._new
        return await asyncio.to_thread(self._accounts.get, self._account)

    @answers(AccountHeld)
    async def is_held(self, _: AccountHeld, __: object) -> AccountHold | None:
        return await self._hold()

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        if question.injection.kind in WAITS and (held := await self._hold()) is not None:
            raise RelayError(f"{held}. `relay release --account {self._account}` ends that.")

    @answers(Describe)
    async def describe(self, _: Describe, __: object) -> dict[str, Any] | None:
        held = await self._hold()
        return None if held is None else {"account_hold": str(held)}
