"""What stands in the agent's input, and whether the user is typing: then nothing is injected.

    keys ──→ Draft: empty, text, unknown ─┐
    screen ─→ the input's row, its cursor ┴─→ obstacle: why nothing may be typed

What the keys prove counts at once.  After keys that prove nothing, the screen decides once the program has
read them all: a profile's rule shows its input empty, or the cursor's row is as it was before the first key.
While neither is so, the input is unknown, and relay does not type.

While relay types a text, it holds back the user's keys, so they neither mix with the text nor get lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from relay.dataclass import dataclass
from relay.injection.draft import Draft
from relay.shim.process_wait import SCREEN_QUIET
from relay.state.agent_terminal import INPUT_BORDER, AgentTerminal
from relay.state.readiness import Readiness, Verdict, working
from relay.state.view import AgentView

USER_PAUSE = 1.0
"""Seconds after the user's last key during which nothing is typed."""

ECHO_QUIET = 0.05
"""Seconds without output after which the program has drawn its prompt."""

KEYS_CHECK_EVERY = 0.25
"""Seconds between two looks at whether the program has read the user's keys."""

HOLD_TIMEOUT = 0.25
"""Seconds to wait for the user's keys to be held back from the agent."""

_STOP = b"\x13"  # VSTOP (termios(3))
_STARTS = (b"\x11", b"\x03", b"\x1c", b"\x1a")  # VSTART, and what sends a signal


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the cursor is. row: its row. x: its column. below: the rows below that are not blank."""

    row: str
    x: int
    below: tuple[str, ...]

    def bare(self, prompts: Sequence[re.Pattern[str]]) -> bool:
        """Return True if there is only a prompt: a mark, or what one of `prompts` matches."""
        mark = bool(self.row) and not self.row.strip(INPUT_BORDER)
        return not self.below and (mark or any(each.search(self.row) for each in prompts))

    @property
    def shown(self) -> str:
        return "\n".join((self.row, *self.below))


class UserTyping:
    """Tracks the user's keys in one terminal, whose screen `view` judges."""

    def __init__(self, terminal: AgentTerminal, view: AgentView, clock: Callable[[], float]) -> None:
        self._terminal = terminal
        self._view = view
        self._clock = clock
        self._draft = Draft()
        self._empty: _Place | None = None  # around the cursor, with an empty input
        self._empty_at = 0  # bytes of output by then
        self._stopped: float | None = None  # when Ctrl-S stopped the terminal's output
        self._stopped_at: int | None = None  # bytes of output once what was on its way had come
        self._unread = False  # the program had not read all keys at the last look
        self._began = False  # the first record was read
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
        self._settle()
        tty, draft = self._terminal.tty(), self._draft
        if draft.empty and self._view.output_quiet() >= ECHO_QUIET:
            self._empty, self._empty_at = self._place(), self._terminal.output_offset()
        may_answer = draft.empty or draft.answers
        asking = may_answer and self._view.verdict.state is Readiness.PROMPTING
        if tty.stops:
            if (last := max(map(data.rfind, (_STOP, *_STARTS)))) >= 0:
                stops = data[last : last + 1] == _STOP and not self._terminal.restoring
                self._stopped, self._stopped_at = self._clock() if stops else None, None
            data = data.replace(_STOP, b"").replace(_STARTS[0], b"")
        before = draft.last_typed
        draft.type(data, self._clock(), canonical=tty.canonical, asking=asking)
        self._view.untouched, self._view.edited = draft.empty, draft.edited
        return draft.last_typed != before

    def rest(self) -> None:
        """Assume that the user has not touched the keyboard for a long time."""
        self._draft.last_typed = float("-inf")

    def obstacle(self) -> Verdict | None:
        """Return why nothing may be typed now, or None if the user is not in the way."""
        self._settle()
        draft, now = self._draft, self._clock()
        if self._is_stopped(now):
            return working("its output is stopped: you pressed Ctrl-S, and Ctrl-Q continues it")
        if not draft.empty:
            left = max(draft.last_typed, self._terminal.last_output()) + SCREEN_QUIET - now
            left = max(left, KEYS_CHECK_EVERY) if self._unread else left
            what = "you have a half-typed line in it"
            if not draft.typed:
                what = "the keys you pressed may have left something in its input"
            if draft.prefixed and not self._view.ruled:
                what = "you pressed Esc or another prefix key in it: it would take the next key for a command"
            return working(what, left if left > 0 else None)
        left = draft.last_typed + USER_PAUSE - now
        return working(f"you typed within the last {USER_PAUSE:g} s", left) if left > 0 else None

    def _place(self) -> _Place | None:
        """Return what the cursor's row shows, and the rows below; None without a virtual screen."""
        cursor, rows = self._terminal.cursor(), self._terminal.screen_text()
        if cursor is None:
            return None
        x, y = cursor
        return _Place(self._terminal.unfinished().rstrip(), x, tuple(filter(None, rows[y + 1 :])))

    def _is_stopped(self, now: float) -> bool:
        """Return True while Ctrl-S stops the output: none comes any more."""
        if self._stopped is None or now < self._stopped + SCREEN_QUIET:
            return self._stopped is not None
        offset = self._terminal.output_offset()
        self._stopped_at = offset if self._stopped_at is None else self._stopped_at
        if offset != self._stopped_at:
            self._stopped = None
        return self._stopped is not None

    def _settle(self) -> None:
        """Forget the draft once the screen shows that the input is empty, or the program took its keys."""
        terminal, draft = self._terminal, self._draft
        if not self._began and terminal.read_from >= 0:
            self._began = True
            if terminal.read_from and self._view.ruled:
                draft.doubt()  # keys before that may have left something in the input
                self._view.untouched = False
        last_output = terminal.last_output()
        changed = max(last_output, draft.last_typed)
        if draft.empty or changed + SCREEN_QUIET > self._clock() or terminal.output_pending():
            return
        canonical, rows = terminal.tty().canonical, terminal.screen_text()
        self._unread = terminal.unread_keys() > 0
        if self._unread:
            return
        empty = not canonical and self._shown_empty()
        if empty or draft.taken(last_output, terminal.unfinished(), rows, canonical=canonical):
            draft.clear()
        self._view.untouched = draft.empty

    def _shown_empty(self) -> bool:
        """Return True if the screen shows an empty input, which takes the next key for text."""
        place = self._place()
        if place is None or (len(last := self._draft.last_line) > 2 and last in place.shown):
            return False
        prompts, multiline = self._view.profile.prompts, self._draft.multiline
        same = place == self._empty or (place.bare(prompts) and not multiline)
        if self._view.ruled:
            state = self._view.state()
            return state == "ready" or (state == "draft" and place == self._empty)  # a known suggestion
        if not same or self._draft.prefixed:
            return False
        return not self._draft.typed or self._terminal.output_offset() > self._empty_at  # else it hides text
