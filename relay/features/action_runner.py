"""Responds to incidents of the running agent according to its policy (relay.supervision.actions).

    Incident ─→ decide ─→ now, or when it is due ─→ Inject, Escalate, Hold, EndAgent, RestartAgent, ...

While the agent waits for a limit to reset, its process keeps running. Anything injected or typed meanwhile
ends the wait; a prompt by the user, or a message that begins a turn, resets all counts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from relay.agents.events import AgentFailed
from relay.clock import WallClock
from relay.dataclass import asdict
from relay.eventbus import EventBus, handles
from relay.hooks.events import Prompting
from relay.injection.events import Inject, Withdraw
from relay.injection.injection import nudge
from relay.lifecycle import Identity, SessionBegan
from relay.messaging.events import MessageGiven
from relay.state.events import PromptSubmitted, TurnBegan, TurnOver
from relay.storage.journal import Journal
from relay.supervision.actions import (
    ACCOUNT,
    CONTINUE_TEXT,
    IDLE_TEXT,
    ActionStep,
    Tries,
    chosen,
    decide,
    kind_of,
)
from relay.supervision.events import (
    AccountFreed,
    EndAgent,
    Escalate,
    Hold,
    HoldAccount,
    HoldOver,
    Incident,
    PhaseEntered,
    RestartAgent,
    RunCommand,
)
from relay.supervision.notebook import Notebook
from relay.supervision.policy import Supervision
from relay.supervision.restart import span, words
from relay.supervision.states import Phase
from relay.terminal.events import AgentExited

_ENDS = {"done": Phase.DONE, "fail": Phase.FAILED, "stop": Phase.OFF}
"""The final phase for each action that ends an agent."""


class ActionRunner:
    """Responds to the incidents of one agent."""

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        session: Identity,
        policy: Supervision,
        notes: Notebook,
        *,
        clock: WallClock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._session = session
        self._policy = policy
        self._notes = notes
        self._clock = clock or WallClock()
        self._chance = chance
        self._tries: dict[str, Tries] = {}
        self._status = _Status()
        self._pending: _Pending | None = None

    # Incidents.

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        notes = self._notes.read()
        self._tries = {kind: Tries(**each) for kind, each in notes.get("tries", {}).items()}
        if notes.get("life") != self._session.id:
            return  # another run of the agent: its waits are over
        self._status.error = notes.get("error", "")
        if self._status.error in ACCOUNT:
            self._wait_for_account(Incident("error", self._status.error))
        if pending := notes.get("pending"):
            step = ActionStep(**{**pending["step"], "tries": Tries(**pending["step"]["tries"])})
            self._plan(Incident(**pending["incident"]), step)

    @handles(Incident)
    def incident(self, event: Incident) -> None:
        if self._status.exited:
            self._hold_account(event)  # the supervisor does the rest
        if self._ignores(event):
            return
        kind = kind_of(event)
        if event.name == "error":
            self._cancel()
        now = self._clock.now()
        step = decide(self._policy, event, self._tries.get(kind, Tries()), now, self._chance)
        if step is None:
            return
        self._tries[kind] = step.tries
        if event.name == "error":
            self._status.error = event.cls
        self._plan(event, step)

    @handles(AgentFailed)
    def failed(self, event: AgentFailed) -> None:
        failure = event.failure
        self._bus.publish(Incident("error", failure.cls, failure.reset_at, failure.text))

    @handles(Prompting)
    def prompting(self, event: Prompting) -> None:
        if self._policy.on_prompt is not None:
            self.incident(Incident("prompt", detail=event.text))

    def _ignores(self, event: Incident) -> bool:
        if self._status.held or self._status.exited:
            return True
        # An agent that stopped on an error is idle because of the error.
        return event.name == "idle" and (self._pending is not None or bool(self._status.error))

    # Until an action is due.

    def _plan(self, event: Incident, step: ActionStep) -> None:
        self._pending = pending = _Pending(event, step)
        if step.at <= self._clock.now():
            self._due(pending)
            return
        if step.action == "wait":
            self._wait(event, step)
        self._note()
        pending.timer = self._clock.look(step.at, lambda: self._due(pending))

    def _wait(self, event: Incident, step: ActionStep) -> None:
        left = span(step.at - self._clock.now())
        known = (event.reset_at or 0.0) > self._clock.now()
        note = f"going on in {left}" if known else f"trying again in {left} ({step.number} of {step.most})"
        self._status.waits = True
        self._bus.publish(PhaseEntered(Phase.WAITING, _reason(event), next_try=step.at, note=note))
        self._hold_account(event)

    def _hold_account(self, event: Incident) -> None:
        """Hold the account if the error affects all of its agents."""
        limit = event.cls == "rate_limited" and (event.reset_at or 0.0) > self._clock.now()
        if limit or (event.cls in ACCOUNT and chosen(self._policy, event).action in {"hold", "wait"}):
            self._bus.publish(HoldAccount(event.cls, event.detail, event.reset_at if limit else None))

    def _due(self, pending: _Pending) -> None:
        if self._pending is not pending:
            return
        event, step = pending.incident, pending.step
        if self._clock.now() < step.at:
            pending.timer = self._clock.look(step.at, lambda: self._due(pending))
            return
        self._pending = None
        self._end_wait()
        self._note()
        self._journal.write("action", incident=kind_of(event), action=step.action, number=step.number or None)
        self._act(event, step)

    def _end_wait(self) -> None:
        if self._status.waits:
            self._status.waits = False
            self._bus.publish(PhaseEntered(Phase.UP))

    # The action.

    def _act(self, event: Incident, step: ActionStep) -> None:
        name = self._session.name
        match step.action:
            case "nudge":
                default = CONTINUE_TEXT.format(words(event.cls)) if event.name == "error" else IDLE_TEXT
                self._nudge(step.text or default)
            case "wait" if event.name == "error":
                self._nudge(step.text or CONTINUE_TEXT.format(words(event.cls)))
            case "gate" | "run" as action:
                self._bus.publish(RunCommand(step.run, gates=action == "gate"))
            case "done" | "fail" | "stop" as action:
                self._bus.publish(EndAgent(_ENDS[action], _reason(event)))
            case "restart" | "resume" as action:
                self._bus.publish(RestartAgent(resumes=action == "resume"))
            case "hold" if event.cls in ACCOUNT:
                self._wait_for_account(event)
                self._hold_account(event)
            case "hold":
                self._bus.publish(Hold(_reason(event)))
            case "escalate" if event.name != "prompt":  # every agent's prompts are escalated anyway
                self._bus.publish(Escalate(*_escalation(name, event, step, self._policy)))

    def _wait_for_account(self, event: Incident) -> None:
        note = f"it continues once its account {self._policy.account} is usable again"
        self._bus.publish(PhaseEntered(Phase.HELD, _reason(event), note=note))

    def _nudge(self, text: str) -> None:
        injection = nudge(text)
        self._status.nudge = injection.id
        self._bus.publish(Inject(injection))

    # Events that end a wait or reset the counts.

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        self._cancel()
        if event.by_user:
            self._progressed()

    @handles(TurnBegan)
    def went_on(self, _: TurnBegan) -> None:
        """Cancel the action: some agents continue by themselves once a limit has been reset."""
        self._cancel()

    @handles(MessageGiven)
    def given(self, event: MessageGiven) -> None:
        if event.begins:
            self._progressed()

    @handles(HoldOver)
    def released(self, _: HoldOver) -> None:
        self._status.held = False
        self._progressed()

    @handles(Hold)
    def held(self, _: Hold) -> None:
        self._status.held, self._status.waits = True, False
        self._cancel()

    @handles(TurnOver)
    def over(self, event: TurnOver) -> None:
        """Forget earlier errors after a turn that ended well: their cause is gone."""
        if event.well:
            self._settle_error()
            self._tries = {kind: tries for kind, tries in self._tries.items() if "/" not in kind}
            self._note()

    @handles(AccountFreed)
    def freed(self, _: AccountFreed) -> None:
        """Nudge the agent once its account is free, unless it has continued by itself."""
        error = self._status.error
        if error in ACCOUNT and not self._status.held:
            self._tries.pop(kind_of(Incident("error", error)), None)
            self._settle_error()
            self._note()
            self._nudge(CONTINUE_TEXT.format(words(error)))

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._status.exited, self._status.waits = True, False
        self._cancel()

    def _progressed(self) -> None:
        if self._status.nudge:
            self._bus.publish(Withdraw(self._status.nudge))
        self._status.nudge = ""
        self._settle_error()
        self._tries.clear()
        self._cancel()
        self._note()

    def _settle_error(self) -> None:
        """Forget the error that stopped the agent."""
        if self._status.error in ACCOUNT and not self._status.held:
            self._bus.publish(PhaseEntered(Phase.UP))
        self._status.error = ""

    def _cancel(self) -> None:
        if self._pending is not None and self._pending.timer is not None:
            self._pending.timer.cancel()
        self._pending = None
        self._end_wait()

    # Notes for later sessions.

    def _note(self) -> None:
        notes: dict[str, Any] = {"life": self._session.id, "error": self._status.error}
        notes["tries"] = {kind: asdict(tries) for kind, tries in self._tries.items()}
        if self._pending is not None:
            step, event = asdict(self._pending.step), asdict(self._pending.incident)
            notes["pending"] = {"step": step, "incident": event}
        self._notes.write(notes)


class _Status:
    """The agent's status in its supervision.

    error: the class of the error that stopped the agent; "" if none. nudge: the id of the last nudge.
    waits: the agent waits for a limit to reset. held: relay.features.holds holds it.
    """

    def __init__(self) -> None:
        self.error = self.nudge = ""
        self.waits = self.held = self.exited = False


class _Pending:
    """A step that is not due yet."""

    def __init__(self, incident: Incident, step: ActionStep) -> None:
        self.incident = incident
        self.step = step
        self.timer: asyncio.TimerHandle | None = None


def _reason(event: Incident) -> str:
    """Return what happened, as the predicate of a sentence about the agent."""
    match event.name:
        case "idle":
            return "was idle"
        case "prompt":
            return "asked for a decision"
        case "error":
            return f"stopped on an error ({words(event.cls)})"


def _escalation(name: str, event: Incident, step: ActionStep, policy: Supervision) -> tuple[str, str]:
    """Return what is wrong, and what the user can do."""
    tried = step.tries.count if step.tries.over and step.tries.count > 1 else 0
    vain = f" after {tried} tries" if tried else ""
    if event.name == "idle":
        what = f"{name} has been idle for {span(policy.idle_grace)}{vain}."
        return what, f"Give it a prompt (`relay attach {name}`), or stop it with `relay stop {name}`."
    detail = f": {event.detail}" if event.detail else ""
    what = f"{name} stopped on an error ({words(event.cls)}){vain}{detail}".rstrip(".") + "."
    if event.cls == "context_full":
        fresh = f"relay restart --fresh {name}"
        return what, f"Make it compact its context (`relay attach {name}`), or run `{fresh}`."
    return what, f"`relay attach {name}` shows it; it resumes with your next prompt."
