"""Tracks the user's typing: while they type, or have a half-typed line, nothing is injected.

While relay types a text, it holds back the user's keys, so they neither mix with the text nor get lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.injection.draft import Draft
from relay.shim.process_wait import SCREEN_QUIET
from relay.state.agent_terminal import AgentTerminal
from relay.state.readiness import Readiness, Verdict
from relay.state.view import AgentView

USER_PAUSE = 2.0
"""Seconds after the user's last key during which nothing is typed."""

HOLD_TIMEOUT = 0.25
"""Seconds to wait for the user's keys to be held back from the agent."""


class UserTyping:
    """Tracks the user's keys in one terminal, whose screen `view` judges."""

    def __init__(self, terminal: AgentTerminal, view: AgentView, clock: Callable[[], float]) -> None:
        self._terminal = terminal
        self._view = view
        self._clock = clock
        self._draft = Draft()
        self._holds = 0  # requested, but not yet in effect
        self._held = asyncio.Event()

    async def hold(self) -> bool:
        """Hold back the user's keys until `release`; return False if this takes too long."""
        self._holds += 1
        self._held.clear()
        self._terminal.reserve()
        try:
            async with asyncio.timeout(HOLD_TIMEOUT):
                await self._held.wait()
        except TimeoutError:
            return False
        return True

    def held(self) -> None:
        """Record that one `hold` took effect: all keys typed before it have been recorded."""
        self._holds -= 1
        if not self._holds:  # else an earlier hold that timed out
            self._held.set()

    def release(self) -> None:
        """Pass on the user's keys again, including those held back."""
        self._terminal.release()

    def keys(self, data: bytes) -> bool:
        """Record what was typed, after it was written to the terminal. Return True if it was a key."""
        self._end_draft()
        may_answer = self._draft.empty or self._draft.answers
        asking = may_answer and self._view.verdict.state is Readiness.PROMPTING
        canonical = self._terminal.tty().canonical
        before = self._draft.last_typed
        self._draft.type(data, self._clock(), canonical=canonical, asking=asking)
        return self._draft.last_typed != before

    def rest(self) -> None:
        """Assume that the user has not touched the keyboard for a long time."""
        self._draft.last_typed = float("-inf")

    def obstacle(self) -> Verdict | None:
        """Return why nothing may be typed now, or None if the user is not in the way."""
        self._end_draft()
        if not self._draft.empty:
            left = self._terminal.last_output() + SCREEN_QUIET - self._clock()
            return Verdict(Readiness.WORKING, "you have a half-typed line in it", left if left > 0 else None)
        left = self._draft.last_typed + USER_PAUSE - self._clock()
        if left > 0:
            return Verdict(Readiness.WORKING, f"you typed within the last {USER_PAUSE:g} s", left)
        return None

    def _end_draft(self) -> None:
        """Drop keys that the program took without an Enter, such as the answer to a dialog."""
        terminal, draft = self._terminal, self._draft
        if draft.empty or terminal.last_output() + SCREEN_QUIET > self._clock() or terminal.output_pending():
            return
        canonical, rows = terminal.tty().canonical, terminal.screen_text()
        if draft.taken(terminal.last_output(), terminal.unfinished(), rows, canonical=canonical):
            draft.clear()
