"""Detects that a turn of the agent has failed, and why: once per failure.

    StopFailure hook ───────────────────────┐ at once
    FailureRead (the agent's own record) ─┐ │
    the screen: failed, or a dialog ──────┴─┴─→ AgentFailed, journal, `relay explain`
                                          │ after GRACE: the hook, or the record, may still report
    the last lines before an exit (`-p`)  ┘

Further reports in the same turn are about the same failure. A failure is forgotten when a later turn ends
well. Published failures are noted for later sessions, which see the same screen again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from relay.agents import failure as failures
from relay.agents import kinds
from relay.agents.events import AgentFailed, FailureRead, HookReported, LastFailure
from relay.agents.failure import TRUST, Failure
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.profile import Profile
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, SessionBegan
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import HooksAlive, PromptSubmitted, StateChanged, TurnDrawn
from relay.state.readiness import Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.terminal.events import AgentExited, OutputEnded
from relay.text import one_line

GRACE = 1.0
"""Seconds that a report from the record or the screen waits for a source that knows more."""

SIGNALLED = 128
"""Exit codes above this are those of signals, not errors of the agent itself."""

_NOTE = "failure"  # to later sessions


class FailureWatch:
    """Publishes AgentFailed, and answers LastFailure. clock: seconds since the epoch."""

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        profile: Profile,
        terminal: AgentTerminal,
        state: AgentState,
        progress: Progress,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._profile = profile
        self._terminal = terminal
        self._state = state
        self._progress = progress
        self._clock = clock
        self._turn = _Turn()
        self._timer: asyncio.TimerHandle | None = None
        self._hooked = False
        self._interactive = False  # it has shown an input
        self._code = 0

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Continue from what an earlier session has published."""
        note = next((note for note in reversed(self._progress.notes) if note["note"] == _NOTE), None)
        if note is not None:
            self._turn = _Turn.of_note(note)

    # The sources.

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        native = event.event
        if native.agent_id:
            return  # a subagent's turn is a part of the agent's
        match native.name:
            case NativeName.PROMPT_SUBMIT if native.prompt:
                self._turn_begins()
            case NativeName.STOP:
                self._turn_ends_well(native)
            case NativeName.STOP_FAILURE:
                self._consider(failures.of_hook(self._profile, native.raw, self._clock()))
                self._settle()

    @handles(FailureRead)
    def read(self, event: FailureRead) -> None:
        failed, now = event.failed, self._clock()
        found = failures.of_record(self._profile, failed.text, failed.code, now)
        if not self._turn.is_late(found):
            self._consider(found)

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        verdict = event.verdict
        self._interactive = self._interactive or (verdict is not None and verdict.state is Readiness.READY)
        if verdict is not None and self._concerns(verdict):
            self._wait()

    @handles(AgentExited)
    def exited(self, event: AgentExited) -> None:
        self._code = event.code
        self._settle()
        self._look_at_the_end()  # its last output may still come, or be there already

    @handles(OutputEnded)
    def ended(self, _: OutputEnded) -> None:
        self._look_at_the_end()

    # Its turns.

    @handles(HooksAlive)
    def alive(self, event: HooksAlive) -> None:
        self._hooked = event.alive

    @handles(PromptSubmitted)
    def submitted(self, _: PromptSubmitted) -> None:
        if not self._hooked:
            self._turn_begins()

    @handles(TurnDrawn)
    def drawn(self, _: TurnDrawn) -> None:
        self._turn_ends_well()

    def _turn_begins(self) -> None:
        self._settle()
        if self._turn.begin():
            self._note()

    def _turn_ends_well(self, event: NativeEvent | None = None) -> None:
        if event is None or not kinds.find(event.agent).stops_after_failure:
            self._turn.pending = None  # an error that the agent overcame
            self._cancel()
        if self._turn.end_well():
            self._note()

    # From a source to AgentFailed.

    def _consider(self, found: Failure) -> None:
        self._turn.consider(found)
        self._wait()

    def _wait(self) -> None:
        if self._timer is None and not self._turn.failed:
            self._timer = self._bus.loop.call_later(GRACE, self._settle)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self) -> None:
        waited = self._timer is not None
        self._cancel()
        if self._turn.failed:
            return
        found = self._turn.pending or (self._on_screen() if waited else None)
        if found is not None:
            self._publish(found)

    def _publish(self, found: Failure) -> None:
        self._turn.fail(found)
        self._note()  # first: a session that is killed here publishes it at most once
        self._journal.write("agent_failed", **found.to_json())
        self._bus.publish(AgentFailed(found))

    def _note(self) -> None:
        # The time tells notes apart: compaction merges equal ones.
        self._progress.note(_NOTE, at=self._clock(), **self._turn.note())

    # The screen.

    def _concerns(self, verdict: Verdict) -> bool:
        """Return True if the screen may show an error: a rule says so, or a dialog may be about one.

        Without hooks, an agent may also report its failure by itself, as Claude Code does since 2.1.332.
        """
        if verdict.state is Readiness.FAILED and verdict.rule:
            return True
        return verdict.state in {Readiness.FAILED, Readiness.PROMPTING} and not self._hooked

    def _on_screen(self) -> Failure | None:
        verdict = self._state.verdict
        if verdict is not None and not self._concerns(verdict):
            return None  # the error has gone
        rows = self._terminal.screen_text()
        found = failures.of_screen(self._profile, rows, self._clock())
        if found is None and verdict is not None and verdict.state is Readiness.FAILED:
            text = failures.drawn_error(self._profile, rows) or " ".join(verdict.lines)
            return Failure("other", one_line(text, failures.MAX_TEXT), None, "screen")
        return found

    def _look_at_the_end(self) -> None:
        """Look for the reason among the last lines of a program that has exited with an error."""
        if self._turn.failed or self._interactive or not 0 < self._code <= SIGNALLED:
            return
        found = failures.of_exit(self._profile, self._terminal.screen_text(), self._clock())
        if found is not None:
            self._publish(found)

    # Questions.

    @answers(LastFailure)
    async def last(self, _: LastFailure, __: object) -> Failure | None:
        self._settle()
        return self._turn.last

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        return {"failure": self._turn.note()["last"]}


class _Turn:
    """The failure of the current turn, and of the last failed turn.

    last:    the failure published last; None once a later turn has ended well.
    failed:  `last` belongs to the current turn.
    pending: the failure of the current turn, not published yet.
    """

    def __init__(self, last: Failure | None = None, *, failed: bool = False) -> None:
        self.last = last
        self.failed = failed
        self.pending: Failure | None = None
        self._late: Failure | None = None  # published, but the record may still report it

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> _Turn:
        last = None if note["last"] is None else Failure.from_json(note["last"])
        return cls(last, failed=note["failed"])

    def note(self) -> dict[str, Any]:
        return {"last": None if self.last is None else self.last.to_json(), "failed": self.failed}

    def begin(self) -> bool:
        """Begin a turn; return True if the last one had failed."""
        failed, self.failed, self.pending = self.failed, False, None
        return failed

    def end_well(self) -> bool:
        """Forget the last failure, unless this turn has failed; return True if there was one."""
        if self.failed or self.pending or self.last is None:
            return False
        self.last = None
        return True

    def consider(self, found: Failure) -> None:
        """Take a failure of this turn, unless one was published, or came from an equally good source."""
        better = self.pending is None or TRUST[found.source] < TRUST[self.pending.source]
        if not self.failed and better:
            read = self.pending is not None and _bare(self.pending) == _bare(found)
            self._late = None if read or found.source == "transcript" else found
            self.pending = found

    def fail(self, found: Failure) -> None:
        self.consider(found)
        self.last, self.failed, self.pending = found, True, None

    def is_late(self, found: Failure) -> bool:
        """Return True, once, if the record repeats what another source reported in an earlier turn."""
        late, self._late = self._late, None
        return late is not None and _bare(late) == _bare(found) and self.pending is None


def _bare(failure: Failure) -> str:
    """Return the text without whitespace: a screen may wrap it anywhere."""
    return "".join(failure.text.split())
