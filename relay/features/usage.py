"""Tracks what the agent uses: tokens, cost, turns.

HookReported ─→ UsageReader (its own files, on a thread) ─→ UsageChanged
                                                          ─→ UsageLog, after each turn
"""

from __future__ import annotations

import asyncio
from typing import Any

from relay.agents.events import HookReported, TextRead, UsageChanged
from relay.agents.listening import Listening
from relay.agents.rate_limits import RateLimits
from relay.agents.usage import Spent
from relay.agents.usage_log import UsageLog
from relay.agents.usage_reader import UsageReader
from relay.clock import Clock
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, LastWords, SessionBegan, SessionClosed
from relay.state.events import HooksAlive, PromptSubmitted, StateChanged, TurnBegan
from relay.state.turn import Turn
from relay.state.turn_count import TurnCount
from relay.storage.progress import Progress
from relay.terminal.events import KeysTyped, KeysWritten

READ_EVERY = 1.0
"""Seconds between two reads while the agent does something."""

AFTERWARDS = 4.0
"""Seconds after the agent's last sign of activity in which its files may still grow."""

LONG_TURN = 60.0
"""Seconds after which the usage so far is logged in mid-turn."""

NOTE = "usage"

_Figures = tuple[int, dict[str, Spent], RateLimits | None]  # turns, usage by model, limits


class UsageTracker:
    """Tracks one agent, from where an earlier session stopped.

    turn: the agent's, as its hooks report it.
    """

    def __init__(
        self,
        bus: EventBus,
        turn: Turn,
        reader: UsageReader,
        log: UsageLog,
        progress: Progress,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._turn = turn
        self._reader = reader
        self._log = log
        self._progress = progress
        self._clock = clock or Clock()
        self._listening = Listening()
        self._reading = asyncio.Lock()  # one thread at a time
        self._count = TurnCount(turn, progress)
        self._published: tuple[Spent, int] | None = None
        self._logged: _Figures | None = 0, {}, None  # None: not yet known
        self._logged_at = self._clock.now()

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if notes := self._progress.notes:  # of earlier sessions
            self._count.resume()
            self._reader.resume([note for note in notes if note["note"] == NOTE])
            self._logged = None
        self._listen()

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        self._reader.event(event.event)
        self._listen()

    @handles(TextRead)
    def said(self, _: TextRead) -> None:
        self._listen()

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        self._count.state(event.before, event.after)
        self._listen()

    @handles(HooksAlive)
    def hooked(self, event: HooksAlive) -> None:
        self._count.hooks(alive=event.alive)

    @handles(PromptSubmitted)
    def submitted(self, event: PromptSubmitted) -> None:
        if not event.by_user:
            self._count.submits()

    @handles(TurnBegan)
    def turn_began(self, _: TurnBegan) -> None:
        self._count.begin()
        self._listen()

    @handles(KeysTyped)
    def typed(self, event: KeysTyped) -> None:
        self._count.keys(event.position)

    @handles(KeysWritten)
    def written(self, event: KeysWritten) -> None:
        self._count.keys(event.position)

    async def run(self) -> None:
        """Read while the agent shows activity, until cancelled."""
        while True:
            await self._listening.begun()
            await self._read()
            now = self._clock.now()
            quiet = self._listening.over(now)
            if now - self._logged_at >= LONG_TURN or (quiet and not self._turn.active):
                self._write()
            if not quiet:
                await self._clock.sleep(READ_EVERY)

    @answers(LastWords)
    async def read_to_the_end(self, _: LastWords, __: object) -> None:
        await self._read()
        self._write()

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        self._write()

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        total = self._total()
        brief = {"tokens": total.tokens.total, "cost": total.known_cost}
        if question.brief:
            return brief
        models = {model: spent.public() for model, spent in self._reader.models.items()}
        return {**brief, "usage": {**total.public(), "turns": self._count.turns, "models": models}}

    def _listen(self) -> None:
        self._listening.until(self._clock.now() + AFTERWARDS)

    async def _read(self) -> None:
        """Read everything new, and publish the figures if they changed."""
        async with self._reading:
            if self._logged is None:
                self._logged = *await asyncio.to_thread(self._log.written), None
            while await asyncio.to_thread(self._reader.read):
                pass
        total = self._total()
        if (total, self._count.turns) != self._published and (total.tokens or self._published):
            self._published = total, self._count.turns
            self._bus.publish(UsageChanged(total.tokens, total.known_cost, self._count.turns, total.unpriced))

    def _total(self) -> Spent:
        return sum(self._reader.models.values(), Spent())

    def _write(self) -> None:
        self._logged_at = self._clock.now()
        if self._logged is None:
            return  # an earlier session's entries were not read: the next session logs it
        turns, models, told = self._logged
        now, limits = self._reader.models, self._reader.limits
        used = {model: spent - models.get(model, Spent()) for model, spent in now.items()}
        used = {model: spent for model, spent in used.items() if spent.tokens.total > 0}
        if used or limits != told:
            self._log.write(max(self._count.turns - turns, 0), used, None if limits == told else limits)
            self._logged = self._count.turns, now, limits
