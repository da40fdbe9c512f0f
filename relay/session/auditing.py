"""What is written down of every injection of a session: in its journal, against the budget, in the audit.

Injector ─→ Audit.ended ─┬→ journal   how it went
                         ├→ Budget    what hooks have injected in this turn
                         ├→ AuditLog  what it was, and what became of it
                         └→ person    why it could not be given
"""

from __future__ import annotations

from typing import Protocol

from relay.hooks.result import Level
from relay.injection.audit_log import AuditLog, Entry
from relay.injection.budget import Budget, tokens
from relay.injection.injection import Injection, Outcome, Result
from relay.storage.journal import Journal


class TellPerson(Protocol):
    def __call__(self, text: str, *, level: Level = "info", source: str = "") -> None: ...


class Audit:
    """The injections of one session. tell_person: what could not be given, with its level and source."""

    def __init__(self, journal: Journal, log: AuditLog, budget: Budget, tell_person: TellPerson) -> None:
        self._journal = journal
        self._log = log
        self._budget = budget
        self._tell_person = tell_person
        self._uncertain: set[str] = set()  # counted, and perhaps reported again

    def ended(self, injection: Injection, outcome: Outcome) -> None:
        """`injection` was given to the agent or never will be, or has arrived after all; never raises."""
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
            self._budget.spend(injection.text, injection.source)
        if outcome.result is Result.UNCERTAIN:
            self._uncertain.add(injection.id)
        else:
            self._uncertain.discard(injection.id)
        self._log.write(
            Entry(
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
        )
        if outcome.result is Result.REJECTED and injection.kind != "message":
            self._tell_failure(injection, outcome.detail)

    def _tell_failure(self, injection: Injection, detail: str) -> None:
        source = f"{injection.source} ({injection.place})" if injection.place else injection.source
        said = injection.remark or "its text was not given to the agent"
        self._tell_person(f"{said} (injection failed): {detail}", level="error", source=source)
