"""Records every injection of a session: in the journal, against the budget, and in the audit log.

InjectionEnded ─┬→ journal   the outcome
                ├→ Budget    the tokens that hooks inject in this turn
                ├→ AuditLog  the injection and its outcome
                └→ Notify    the reason for a rejection
"""

from __future__ import annotations

from relay.eventbus import EventBus, handles
from relay.injection.audit_log import AuditLog, Entry
from relay.injection.budget import Budget, tokens
from relay.injection.events import InjectionEnded
from relay.injection.injection import Result
from relay.state.events import TurnBegan
from relay.storage.journal import Journal
from relay.terminal.events import Notify


class InjectionAudit:
    """Audits the injections of one session."""

    def __init__(self, bus: EventBus, journal: Journal, log: AuditLog, budget: Budget) -> None:
        self._bus = bus
        self._journal = journal
        self._log = log
        self._budget = budget
        self._uncertain: set[str] = set()  # already counted; may be reported again

    @handles(TurnBegan)
    def new_turn(self, _: TurnBegan) -> None:
        self._budget.new_turn()

    @handles(InjectionEnded)
    def ended(self, event: InjectionEnded) -> None:
        injection, outcome = event.injection, event.outcome
        size = len(injection.text.encode("utf-8", "surrogatepass"))
        self._journal.write(
            "injection",
            id=injection.id,
            source=injection.source,
            kind=injection.kind,
            hook_event=injection.event or None,
            place=injection.place or None,
            result=str(outcome.result),
            detail=outcome.detail,
            route=outcome.route or None,
            requested_role=injection.role or None,
            role=outcome.role or None,
            verified=outcome.verified or None,
            size=size,
        )
        counts = injection.kind == "hook" and outcome.result in {Result.INJECTED, Result.UNCERTAIN}
        if counts and injection.id not in self._uncertain:
            warning = self._budget.spend(injection.text, injection.source)
            if warning is not None:
                self._bus.publish(Notify(warning, "warning"))
        if outcome.result is Result.UNCERTAIN:
            self._uncertain.add(injection.id)
        else:
            self._uncertain.discard(injection.id)
        entry = Entry(
            id=injection.id,
            kind=injection.kind,
            source=injection.source,
            asked=injection.time,
            hook_event=injection.event,
            place=injection.place,
            channel=injection.channel or "",
            injection_size=size,
            tokens=tokens(injection.text),
            injection_role=injection.role,
            delivered_role=outcome.role,
            route=outcome.route,
            result=str(outcome.result),
            detail=outcome.detail,
            verified=outcome.verified,
            over_budget=counts and self._budget.exceeded,
            text=None if injection.quiet else injection.text,
        )
        self._log.write(entry)
        if outcome.result is Result.REJECTED and injection.kind != "message":
            source = f"{injection.source} ({injection.place})" if injection.place else injection.source
            said = injection.remark or "its text was not delivered to the agent"
            self._bus.publish(Notify(f"{said} (injection failed): {outcome.detail}", "error", source))
