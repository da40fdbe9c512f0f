"""Counts the steps of directives; tells the user about what was ignored or missed, and the agent about typos.

output ─→ lines ─→ heard ─→ begun ─→ committed (messages, in the ledger)
   └ missed  │         └ begun by an earlier session, its outcome unknown
             └ passed over, hidden, in a diff, misspelt, ignored (relay.toml), or maybe heard before
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
    EarlierWords,
    SessionResumed,
)
from relay.directives.grammar import PassedOver
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import Inject
from relay.injection.injection import notice
from relay.lifecycle import Describe, Identity, SessionClosed
from relay.messaging.events import current_client
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import TurnBegan
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
        self._corrected: set[str] = set()  # what the agent was told in this turn
        self._missed = 0  # bytes not in the journal yet
        self._telling: asyncio.TimerHandle | None = None

    @handles(SessionResumed, EarlierWords)
    def said_earlier(self, event: EarlierWords) -> None:
        self._counts["lines"] += sum(len(each.lines) for each in event.said)
        self._counts["heard"] += len(event.directives)

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
        passed = event.passed
        line, why = passed.line, passed.why
        text = line.text.strip()
        self._journal.write("directive_passed_over", text=preview(text), why=why, place=str(line.place))
        if passed.why == "typo":
            self._correct(passed)
            return
        count, what = PASSED_OVER[why]
        if not self._counts[count]:
            word = one_line(text.split(maxsplit=1)[0], 40)
            events = f"`relay events {self._session.name}`"
            self._bus.publish(Notify(f"a directive {what.format(word)}. {events} lists them all."))
        self._count(count, 1)

    def _correct(self, passed: PassedOver) -> None:
        """Tell the agent about a misspelt namespace, once in a turn."""
        self._count("misspelt", 1)
        if passed.said not in self._corrected:
            self._corrected.add(passed.said)
            text = f"Nothing handles {passed.said}, so it was ignored. Did you mean {passed.meant}?"
            self._bus.publish(Inject(notice(text)))

    @handles(TurnBegan)
    def turn_began(self, _: TurnBegan) -> None:
        self._corrected.clear()

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
            committed = len(await client.ask(lambda ledger: ledger.outbox.committed(self._session.id)))
        names = ["lines", "heard", "begun", "failed", "unknown", "misspelt"]
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
