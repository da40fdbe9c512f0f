"""What follows from a change of the agent's state: the prompting event, escalation, what terminals are told.

A dialog is told once it has stood for a moment: an agent that is only passing one by asks nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from relay.hooks import events
from relay.state.readiness import Readiness, Verdict
from relay.state.states import Change
from relay.storage.journal import Journal
from relay.terminal import status

STANDS = 0.8
"""Seconds that a prompt must stand: agents draw their dialog while a hook may still answer it."""


class Alert(Protocol):
    """Brings a prompt to a person's attention."""

    def prompting(self, kind: str, lines: tuple[str, ...]) -> None: ...
    def over(self) -> None: ...


class NoAlert:
    """Brings nothing to anybody."""

    def prompting(self, kind: str, lines: tuple[str, ...]) -> None: ...
    def over(self) -> None: ...


class Attention:
    """Told of every transition (`changed`).

    look: has the state judged again. fire: for the prompting event. alert: whom a prompt is brought to.
    drawn: the rows of the question as it is drawn now, () where it cannot be told from the rest.
    report: takes an OSC 7501 report for the person's terminal; speaks: whether the agent reports its status
    there itself.
    """

    def __init__(
        self,
        *,
        look: Callable[[], str],
        fire: Callable[[events.Event], None],
        alert: Alert,
        drawn: Callable[[], tuple[str, ...]],
        report: Callable[[bytes], None],
        speaks: Callable[[], bool],
        journal: Journal,
    ) -> None:
        self._look = look
        self._fire = fire
        self._alert = alert
        self._drawn = drawn
        self._report = report
        self._speaks = speaks
        self._journal = journal
        self._prompt: Verdict | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._told = False

    def changed(self, change: Change) -> None:
        verdict = change.verdict
        kind = "" if verdict is None or verdict.kind is None else str(verdict.kind)
        self._journal.write(
            "state",
            state=change.after,
            prompt=kind or None,
            rule=None if verdict is None else verdict.rule or None,
            reason=None if verdict is None else verdict.reason,
        )
        if not self._speaks():
            self._report(status.report(change.after, kind))
        prompting = verdict is not None and verdict.state is Readiness.PROMPTING
        self._prompt = verdict if prompting else None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if prompting:
            self._timer = asyncio.get_running_loop().call_later(STANDS, self._confirm)
        elif self._told:
            self._told = False
            self._alert.over()

    def close(self) -> None:
        """The agent has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _confirm(self) -> None:
        """Tell of the prompt if it is still there."""
        before = self._prompt
        self._look()
        if before is None or self._prompt is not before:
            return  # it has gone, or another has come, which has a timer of its own
        self._told = True
        kind = "other" if before.kind is None else str(before.kind)
        lines = self._drawn() or before.lines or (before.reason,)
        self._fire(events.Prompting(kind=kind, text="\n".join(lines)))
        self._alert.prompting(kind, lines)
