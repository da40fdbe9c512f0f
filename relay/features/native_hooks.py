"""Receives the events of the agent's own hooks, publishes and answers them, and reads the agent's own record.

relay hook ─→ operation "hook" ─┬→ HookReported          the agent's actions
                                ├→ TextRead              its words, exactly
                                └→ HookAsked ─→ reply    the decision of rules and handlers, waiting texts
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from relay.agents import kinds
from relay.agents.events import EarlierTextRead, FailureRead, HookAsked, HookReported, TextRead
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Answered, Reply, ReplyOutcome
from relay.agents.listening import Listening
from relay.agents.transcript_lines import Said
from relay.agents.transcript_reader import TranscriptReader
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, LastWords, SessionBegan
from relay.rules.events import GuardedEvents
from relay.state.events import EvidenceChanged, HooksAlive
from relay.state.turn import Turn
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.terminal.events import Notify
from relay.text import count

RECORD_READ_EVERY = 0.1
"""Seconds between two reads of the record while the agent works."""

AFTERWARDS = 3.0
"""Seconds after a hook's event in which the record may still grow: it lags behind the hooks."""

UNREAD = "The tool's input is too long or too deeply nested for rules to check. Make it smaller."
FAULT = "The rules for this call could not run. The user can see why with `relay events`."
"""The reasons, as the agent reads them, to refuse a call that the rules could not check."""

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})

_log = logging.getLogger(__name__)


class NativeHooks:
    """The hooks of one agent.

    kind:          the agent's dialect; "" if no hooks were set up.
    note:          what is wrong with the set-up; "" if nothing is.
    record:        reads the agent's own record; None if it has none.
    most:          continuations in a row, for `relay explain`.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        turn: Turn,
        *,
        kind: str,
        note: str,
        record: TranscriptReader | None,
        most: int,
        progress: Progress,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._turn = turn
        self._kind = kind
        self._note = note
        self._record = record
        self._most = most
        self._progress = progress
        self._spoken = False  # the hooks have reported at least once
        self._problem: str | None = None
        self._listening = Listening()
        self._agent_session = ""  # the agent's own id of its session

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Continue with what the hooks reported to an earlier session."""
        if not any(note["note"] == "hooks" for note in self._progress.notes):
            return
        self._spoken = True
        if self._turn.hooks.revive():
            self._bus.publish(HooksAlive(True))
        followed = [note for note in self._progress.notes if note["note"] == "transcript"]
        texts = [] if self._record is None else self._record.resume(followed)
        if self._record is not None:
            self._record.take_failures()  # an earlier session has reported them
        if texts:
            self._bus.publish(EarlierTextRead(tuple(texts)))
            self._listening.until(time.monotonic() + AFTERWARDS)

    @operation("hook")
    async def hook(self, request: Request) -> Answer:
        """Take an event of the agent's hooks and answer it (relay.agents.hook_client has the protocol)."""
        connection, fields = request.connection, request.fields
        await connection.show_life()
        kind = str(fields.get("agent") or self._kind)
        name, decide, why = str(fields.get("event", "")), fields.get("decide") is True, UNREAD
        try:
            event = kinds.find(kind).parse(name, str(fields.get("payload", "")))
            unread = decide and event is not None and not event.readable
            if unread and (refused := await self._guarded(kind, name, why)):
                return {"stdout": refused, "code": 0}
            answered = await self._take(event, decide=decide, pid=request.pid) if event else None
        except RecursionError:  # input that parses may still be nested too deeply to be serialized
            answered = None
        except Exception:  # noqa: BLE001 (logged; the agent continues, but calls no guarded tool)
            _log.exception("an event of the agent's hooks")
            failed = f"{name} of the agent's hooks could not be answered: see session.log."
            self._bus.publish(Notify(failed))
            answered, why = None, FAULT
        if answered is None:
            return {"stdout": await self._guarded(kind, name, why) if decide else "", "code": 0}
        connection.settled(ReplyOutcome.UNKNOWN)  # an earlier event, whose client never said that it printed
        connection.settle = answered.settle
        return {"stdout": answered.stdout if decide else "", "code": 0}

    @operation("hook_printed")
    async def printed(self, request: Request) -> Answer:
        """Record that the client has printed the answer for the agent."""
        request.connection.settled(ReplyOutcome.PRINTED)
        return {"ok": True}

    async def _guarded(self, kind: str, event: str, why: str) -> str:
        """Return the answer to an event that could not be checked: deny a tool call that is guarded."""
        own, name = kinds.find(kind).known(event) or ("", None)
        if name is not NativeName.TOOL_PRE or name not in await self._bus.gather(GuardedEvents()):
            return ""
        return kinds.find(kind).render(NativeEvent(name, kind, event=own), Reply(deny=why))

    async def _take(self, event: NativeEvent, *, decide: bool, pid: int) -> Answered:
        if self._is_of_another(event):
            self._journal.write("hook", hook=event.name, nested=True)
            return await self._ask(HookAsked(event, nested=True)) if decide else Answered("")
        # Until now the words came from the screen, which has shown those in the record.
        late = not self._turn.hooks.alive and event.name not in _BEGINS
        self._spoken = True
        if self._turn.hooks.revive():
            self._journal.write("bridge", kind=self._kind)
            self._progress.note("hooks")
            self._bus.publish(HooksAlive(True))
        tool, subagent = event.tool_name or None, event.agent_id or None
        self._journal.write("hook", hook=event.name, tool=tool, decide=decide, subagent=subagent)
        self._bus.publish(HookReported(event, decide, pid))
        if not decide:
            self._bus.publish(EvidenceChanged())
            return Answered("")
        self._listening.until(time.monotonic() + AFTERWARDS)
        if self._record is not None:
            texts = self._record.event(event)
            self._publish([] if late else texts)
            if (problem := self._record.problem) not in {None, self._problem}:
                self._problem = problem
                self._bus.publish(Notify(f"the agent's transcript: {problem}"))
        self._bus.publish(EvidenceChanged())
        answered = await self._ask(HookAsked(event))
        self._bus.loop.call_soon(self._bus.publish, EvidenceChanged())  # once the answer is on its way
        return answered

    async def _ask(self, question: HookAsked) -> Answered:
        answers = await self._bus.ask(question)
        return answers[0] if answers else Answered("")

    def _is_of_another(self, event: NativeEvent) -> bool:
        """Return True if the event comes from an agent that this one has started.

        Such an agent has its own session while this one is in the middle of a turn. A session that the user
        changes (/clear, /resume) still belongs to this agent.
        """
        if not kinds.find(event.agent).bequeaths_hooks or event.agent_id or not event.session_id:
            return False
        changes = event.name is NativeName.SESSION_START and event.source not in {"", "startup"}
        if self._agent_session not in {"", event.session_id} and self._turn.active and not changes:
            return True
        self._agent_session = event.session_id
        return False

    @handles(HooksAlive)
    def silent(self, event: HooksAlive) -> None:
        if not event.alive:
            self._journal.write("bridge", kind=self._kind, alive=False)

    async def run(self) -> None:
        """Read the agent's own record while the agent works, until cancelled."""
        while self._record is not None:
            await self._listening.begun()
            self._publish(self._record.poll())
            if not self._turn.active and self._record.settled and self._listening.over(time.monotonic()):
                continue
            await asyncio.sleep(RECORD_READ_EVERY)

    @answers(LastWords)
    async def read_to_the_end(self, _: LastWords, __: object) -> None:
        if self._record is not None and self._turn.hooks.alive:
            self._publish(self._record.close())

    def _publish(self, texts: Sequence[Said]) -> None:
        if texts:
            self._bus.publish(TextRead(tuple(texts)))
        for failed in self._record.take_failures() if self._record is not None else ():
            self._bus.publish(FailureRead(failed))

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"bridge": self._description()}

    def _description(self) -> str:
        """Describe for the user what the hooks report, and what is wrong; return "" if there is nothing."""
        if not self._kind:
            return self._note
        alive = self._turn.hooks.alive
        if not alive:
            silent = "silent in its last turn" if self._spoken else "silent so far"
            said = f"set up, but {silent}: relay reads the screen instead"
        elif self._record is not None:
            said = "they report its state and its words"
        else:
            said = "they report its state; relay reads its words from the screen"
        if times := self._turn.continuations:
            said += f"; relay has made it continue {count(times, 'time')} of at most {self._most}"
        problem = self._record.problem if self._record is not None else None
        return "; ".join(part for part in (said, self._note, problem) if part)
