"""Follows the user's typing: while they type, or have a half-typed line, nothing is injected.

While a text is injected, the user's keys are held back, so that they end up neither in it nor lost.
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
"""Seconds to wait until the user's keys are held back from the agent."""


class UserTyping:
    """Follows the user's keys in one terminal, of which `view` judges what it shows."""

    def __init__(self, terminal: AgentTerminal, view: AgentView, clock: Callable[[], float]) -> None:
        self._terminal = terminal
        self._view = view
        self._clock = clock
        self._draft = Draft()
        self._holds = 0  # that were asked for, and have not taken effect
        self._held = asyncio.Event()

    async def hold(self) -> bool:
        """Hold back the user's keys until `release`; return False if that takes too long."""
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
        """Note that one `hold` took effect: keys that were typed before it are noted."""
        self._holds -= 1
        if not self._holds:  # else an earlier one that was given up
            self._held.set()

    def release(self) -> None:
        """Pass on the user's keys again, and those that were held back."""
        self._terminal.release()

    def keys(self, data: bytes) -> bool:
        """Note what was typed, after it was written to the terminal. Return True if it was a key."""
        self._end_draft()
        may_answer = self._draft.empty or self._draft.answers
        asking = may_answer and self._view.verdict.state is Readiness.PROMPTING
        canonical = self._terminal.tty().canonical
        before = self._draft.last_typed
        self._draft.type(data, self._clock(), canonical=canonical, asking=asking)
        return self._draft.last_typed != before

    def rest(self) -> None:
        """Take the user to have not touched the keyboard for long."""
        self._draft.last_typed = float("-inf")

    def obstacle(self) -> Verdict | None:
        """Return why nothing may be typed now; None if the user is not in the way."""
        self._end_draft()
        if not self._draft.empty:
            left = self._terminal.last_output() + SCREEN_QUIET - self._clock()
            return Verdict(Readiness.WORKING, "you have a half-typed line in it", left if left > 0 else None)
        left = self._draft.last_typed + USER_PAUSE - self._clock()
        if left > 0:
            return Verdict(Readiness.WORKING, f"you typed within the last {USER_PAUSE:g} s", left)
        return None

    def _end_draft(self) -> None:
        """Forget keys that the program took without an Enter, such as the answer to a dialog."""
        terminal, draft = self._terminal, self._draft
        if draft.empty or terminal.last_output() + SCREEN_QUIET > self._clock() or terminal.output_pending():
            return
        canonical, rows = terminal.tty().canonical, terminal.screen_text()
        if draft.taken(terminal.last_output(), terminal.unfinished(), rows, canonical=canonical):
            draft.clear()
