"""Counts the steps of directives, and tells the user about missed output and ignored directives.

output ─→ lines ─→ heard ─→ begun ─→ committed (messages, in the ledger)
   └ missed  │         └ begun by an earlier session, its outcome unknown
             └ passed over, hidden, in a diff, not heeded (relay.toml), or not told apart from what was heard
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from relay.directives.events import (
    AgentSaid,
    DirectiveBegun,
    DirectiveFailed,
    DirectivePassedOver,
    DirectiveRead,
    DirectiveRecognized,
)
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, Identity, SessionClosed
from relay.messaging.client import current_client
from relay.state.agent_terminal import AgentTerminal
from relay.storage.journal import Journal, preview
from relay.storage.progress import Progress
from relay.terminal.events import Notify, OutputSkipped
from relay.text import one_line

PASSED_OVER = {
    "sign": ("passed_over", "behind {!r} was ignored as a quotation: a directive must begin its line"),
    "hidden": ("hidden", "was ignored, because all or part of it is invisible: {!r}"),
    "diff": (
        "diff",
        "behind {!r} was ignored as a line of a diff: a directive must begin its line",
    ),
    "joined": ("joined", "was ignored, because it is drawn in one line with what is below it: {!r}"),
    "setting": ("not_heeded", "was ignored because of `directives` in relay.toml: {!r}"),
    "record": (
        "not_told_apart",
        "on the screen was ignored: the agent's own record may have had it, or left it out: {!r}",
    ),
}
"""For each reason to pass over a directive: its counter, and the notice about the first one."""

PAUSE = 1.0
"""Seconds of missed output in one journal entry: a flood may be missed piece by piece."""


class DirectiveLog:
    """The steps of one agent's directives, including its earlier sessions; lines are this session's only."""

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        session: Identity,
        terminal: AgentTerminal,
        progress: Progress,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._session = session
        self._terminal = terminal
        self._progress = progress
        self._counts = Counter(progress.counts)
        self._missed = 0  # bytes not in the journal yet
        self._telling: asyncio.TimerHandle | None = None

    @handles(AgentSaid)
    def said(self, event: AgentSaid) -> None:
        self._counts["lines"] += len(event.lines)

    @handles(DirectiveRead)
    def heard(self, _: DirectiveRead) -> None:
        self._counts["heard"] += 1

    @handles(DirectiveBegun)
    def begun(self, _: DirectiveBegun) -> None:
        self._counts["begun"] += 1

    @handles(DirectiveFailed)
    def failed(self, _: DirectiveFailed) -> None:
        self._counts["failed"] += 1

    @handles(DirectiveRecognized)
    def recognized(self, event: DirectiveRecognized) -> None:
        """Undo the second count of a directive that an earlier session had heard and begun."""
        self._counts["heard"] -= 1
        self._counts["begun"] -= event.outcome == "again"
        self._counts["unknown"] += event.outcome == "unknown"

    @handles(DirectivePassedOver)
    def passed_over(self, event: DirectivePassedOver) -> None:
        line, why = event.passed
        text = line.text.strip()
        self._journal.write("directive_passed_over", text=preview(text), why=why, place=str(line.place))
        count, what = PASSED_OVER[why]
        if not self._counts[count]:
            word = one_line(text.split(maxsplit=1)[0], 40)
            events = f"`relay events {self._session.name}`"
            self._bus.publish(Notify(f"a directive {what.format(word)}. {events} lists them all."))
        self._count(count, 1)

    @handles(OutputSkipped)
    def skipped(self, event: OutputSkipped) -> None:
        if not self._counts["missed"]:
            name = self._session.name
            why = f"missed some of {name}'s output"
            todo = f"ask {name} to repeat what it said. `relay explain {name}` shows how much."
            self._bus.publish(Notify(f"{why}, and any directives in it: {todo}"))
        self._count("missed", event.size)
        self._missed += event.size
        if self._telling is None:
            self._telling = self._bus.loop.call_later(PAUSE, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._journal.write("output_missed", bytes=self._missed)
        self._missed = 0

    def _count(self, what: str, number: int) -> None:
        """Count something that later sessions of the agent do not see again."""
        self._counts[what] += number
        self._progress.count(what, number)

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        committed: int | None = None
        with suppress(RelayError):
            client = await current_client(self._bus, wait=False)
            committed = len(await client.committed(self._session.id))
        names = ["lines", "heard", "begun", "failed", "unknown"]
        names += [count for count, _ in PASSED_OVER.values()]
        steps: dict[str, int | None] = {name: self._counts[name] for name in names}
        read = self._terminal.output_offset() - self._counts["missed"]
        return {
            "directives": {"read": read, "missed": self._counts["missed"], **steps, "committed": committed}
        }

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._tell()
