"""Reads the record that an agent without hooks writes in this run, until the screen contradicts it.

    Named ─→ TextRead ─→ words and directives
    TurnShown ─→ read to its end ─┬→ TurnRead
                                  └→ RecordLost ─→ what the record lacks comes from the screen (ScreenWords)

A record that does not grow at all in a turn (in AgentKind.silent_turns) while the screen shows work no longer
belongs to this agent, as after /clear, or cannot be written. One that ends in mid-line cannot be written,
either. relay does not read a lost record again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from relay.agents import kinds
from relay.agents.events import EarlierTextRead, FailureRead, RecordLost, TextRead, TurnRead, TurnShown
from relay.agents.listening import Listening
from relay.agents.named_transcripts import Named
from relay.agents.transcript_lines import Said
from relay.agents.transcript_reader import TranscriptReader
from relay.directives.screen_words import RECORD_LOST
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, LastWords, SessionBegan
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.terminal.events import KeysTyped, Notify, OutputRead

_log = logging.getLogger(__name__)

RECORD_READ_EVERY = 0.1
"""Seconds between two reads of the record while the agent writes something."""

AFTERWARDS = 3.0
"""Seconds after the agent's last output in which the record may still grow."""

GRACE = 2.0
"""Seconds that the record may lag behind a screen that shows the end of a turn."""

SILENT = "it contains nothing of what the agent does"
CUT_OFF = "it ends in the middle of a line"

LARGE = 16 << 20
"""Bytes from which a record that relay requested is emptied between two turns: it may have whole requests."""

_ESCAPE = (b"\x1b", b"\x1b[27u")


class OwnRecord:
    """Follows the record that `named` finds, from where an earlier session stopped."""

    def __init__(
        self, bus: EventBus, journal: Journal, terminal: AgentTerminal, named: Named, progress: Progress
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._terminal = terminal
        self._named = named
        self._progress = progress
        self._reader: TranscriptReader | None = TranscriptReader(
            named.kind, followed=lambda fields: progress.note("transcript", **fields)
        )
        self._listening = Listening()
        # The ends of turns that the record was not read up to, and the output offset at each.
        self._shown: deque[tuple[TurnShown, int]] = deque()
        self._size = 0  # of the record, at the end of the last turn
        self._silent = 0  # silent turns in a row
        self._lost = ""
        self._cut = b""  # the key with which the user interrupted the agent

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Follow the record, unless an earlier session has given it up."""
        notes = self._progress.notes
        lost = next((note for note in notes if note["note"] == RECORD_LOST), None)
        if lost is not None:
            self._give_up(lost["why"], lost)
        elif self._reader is not None:
            texts = self._reader.resume([note for note in notes if note["note"] == "transcript"])
            self._reader.follow(self._named)
            self._reader.take_failures()  # an earlier session has reported them
            if texts:
                self._bus.publish(EarlierTextRead(tuple(texts)))

    @handles(OutputRead)
    def written(self, _: OutputRead) -> None:
        self._listening.until(time.monotonic() + AFTERWARDS)

    @handles(KeysTyped)
    def keys(self, event: KeysTyped) -> None:
        if b"\x03" in event.data:
            self._cut = b"\x03"
        elif event.data in _ESCAPE:
            self._cut = self._cut or event.data

    @handles(PromptSubmitted)
    def submitted(self, _: PromptSubmitted) -> None:
        self._cut = b""

    @handles(TurnShown)
    def shown(self, event: TurnShown) -> None:
        self._shown.append((event, self._terminal.output_offset()))
        self._listening.until(time.monotonic() + AFTERWARDS)

    async def run(self) -> None:
        """Read the record while the agent writes, until it is given up."""
        while self._reader is not None:
            await self._listening.begun()
            self._publish(self._reader.poll())
            if self._reader.broken:
                self._lose(self._reader.broken)
            elif self._shown:
                await self._read_up_to(*self._shown.popleft())
            if self._shown or not self._listening.over(time.monotonic()):
                await asyncio.sleep(RECORD_READ_EVERY)

    async def _read_up_to(self, shown: TurnShown, offset: int) -> None:
        """Read the turn whose end the screen shows; give up the record if it cannot contain the turn."""
        assert self._reader is not None
        reader = self._reader
        deadline = time.monotonic() + GRACE
        while ((silent := reader.size == self._size) and shown.worked) or reader.cut_off:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(RECORD_READ_EVERY)
            self._publish(reader.poll())
        self._publish(reader.poll())  # a text whose end only silence shows
        cut, self._cut = self._cut != b"", b""
        self._size = reader.size
        self._silent = self._silent + shown.worked if silent else 0
        if reader.cut_off:
            self._lose(CUT_OFF)
        elif self._silent >= kinds.find(self._named.kind).silent_turns:
            self._lose(reader.problem or SILENT)
        self._bus.publish(TurnRead(silent, offset, cut))
        if self._named.ours and self._size > LARGE:
            self._empty()

    def _empty(self) -> None:
        """Truncate the record, which was read completely; the agent waits, and appends to it later."""
        try:
            for path in self._named.find():
                os.truncate(path, 0)
        except OSError as error:
            _log.warning("the agent's record keeps growing: %s", error)

    def _lose(self, why: str) -> None:
        self._journal.write(RECORD_LOST, why=why)
        self._bus.publish(Notify(f"the agent's own record: {why}; relay reads its screen instead"))
        self._give_up(why)

    def _give_up(self, why: str, noted: Mapping[str, Any] | None = None) -> None:
        self._reader, self._lost = None, why
        self._bus.publish(RecordLost(why, noted))

    @answers(LastWords)
    async def read_to_the_end(self, _: LastWords, __: object) -> None:
        if self._reader is None:
            return
        self._publish(self._reader.poll())
        cut_off = self._reader.cut_off
        self._publish(self._reader.close())
        if cut_off:
            self._lose(CUT_OFF)

    def _publish(self, texts: Sequence[Said]) -> None:
        if texts and self._cut != b"\x03":  # was the cut-off text meant to be acted on? unknown
            self._bus.publish(TextRead(tuple(texts)))
        for failed in [] if self._reader is None else self._reader.take_failures():
            self._bus.publish(FailureRead(failed))

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        if self._reader is None:
            return {"record": f"{self._lost}; relay reads its screen instead"}
        if problem := self._reader.problem:
            return {"record": problem}
        if not self._reader.size:
            return {"record": "nothing there yet"}
        return {"record": "it reports the agent's words"}
