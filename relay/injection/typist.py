"""The typist: types one text into the agent's terminal, submits it, and verifies that it was taken.

    lines    text CR                                    the kernel's echo verifies it, once it was read
    keys     text, wait for its echo, CR, look          one more CR if the input still shows it
    paste    ESC[200~ text ESC[201~, wait, CR, look     the same

The text was taken if, most trusted first: the agent's own hook reports the prompt (`prompted`); the terminal
is in line mode again, as with a program that shows its own input only while it waits; the profile's rule for
an empty input holds again, or one for working does; or, without such rules in the profile, the cursor's row
or the screen has changed. With the kernel's echo, which needs no reader, the text counts only once
the program has read it.

Nothing here blocks, and every wait is bounded: a program that reads nothing leaves the text unverified.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from relay.dataclass import dataclass, replace
from relay.injection.injection import Injection, Outcome, Proof, Result
from relay.injection.layout import Style, closing_mark, opening_mark
from relay.state.agent_terminal import AgentTerminal
from relay.state.readiness import danger
from relay.state.view import AgentView

PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"  # xterm ctlseqs, "Bracketed Paste Mode"

WRITE_TIMEOUT = 2.0
"""Seconds for the program to read what was written; the terminal holds about 19 KB unread on Linux."""

READ_TIMEOUT = 5.0
"""Seconds for the program to read a text that the kernel has echoed."""

ECHO_TIMEOUT = 1.0
"""Seconds to wait for a text to be drawn before submitting it anyway; agents need up to 0.2."""

SILENCE_TIMEOUT = 5.0
"""The same if nothing at all has been drawn: the program may not have read the text yet."""

SETTLE = 0.05
"""Seconds without output after which a program has finished drawing."""

PRINT_TIMEOUT = 2.0
"""Seconds to wait for a moment when all output has been analysed."""

SUBMIT_TIMEOUT = 0.5
"""Seconds for a submitted text to leave the input."""

_PLACEHOLDER = re.compile(r"\[paste", re.IGNORECASE)  # how agents abbreviate a long paste
_BORDERS = " \u2502\u2503|"
_STEP = 0.01  # seconds between looks while a text is being typed; the screen may lag behind the bytes
_TAIL = 64 * 1024  # bytes of output to search for an echo
_DOUBTFUL = 16  # uncertain texts that the agent's hook may still confirm


@dataclass(frozen=True, slots=True)
class _Held:
    """The screen when Enter was pressed; `row` is None if the input does not show its text."""

    mark: str
    state: str | None
    row: str | None
    rows: list[str]
    offset: int


class Typist:
    """Types one text at a time into `terminal`, whose screen `view` judges.

    arrived: the agent has reported the text being typed.
    """

    def __init__(self, terminal: AgentTerminal, view: AgentView, clock: Callable[[], float]) -> None:
        self._terminal = terminal
        self._view = view
        self._clock = clock
        self._delay = view.profile.submit.delay
        self._began = clock()
        self._before: tuple[str, ...] = ()  # the screen's rows when the typing began
        self._end = ""  # the end of the text being typed
        self._size = 0  # characters of that text
        self.arrived = False
        self._output = asyncio.Event()
        self._seen = bytearray()
        self._doubtful: deque[tuple[str, tuple[Injection, ...]]] = deque(maxlen=_DOUBTFUL)  # (end, them)

    def output(self, data: bytes) -> None:
        self._seen += data
        del self._seen[:-_TAIL]
        self._output.set()

    def doubt(self, mark: str, injections: tuple[Injection, ...]) -> None:
        """Remember `injections`, typed as one text with `mark`, as uncertain; a hook may confirm them."""
        self._doubtful.append((closing_mark(mark), injections))

    def believe(self, mark: str) -> None:
        """Forget the uncertain texts that were typed with `mark`: they have arrived."""
        for each in [each for each in self._doubtful if each[0] == closing_mark(mark)]:
            self._doubtful.remove(each)

    def prompted(self, prompt: str) -> list[tuple[Injection, ...]]:
        """Record a `prompt` that the agent reports as submitted; return the uncertain texts it confirms."""
        if self._end and self._end in prompt:
            self.arrived = True
            self._output.set()
        found = [each for each in self._doubtful if each[0] in prompt]
        for each in found:
            self._doubtful.remove(each)
        return [injections for _, injections in found]

    async def type(self, text: str, style: Style, mark: str) -> Outcome:
        """Type and submit `text`, which ends in closing_mark(mark). Return the outcome."""
        if style is Style.LINES:
            return await self._attempt(mark, self._line(text), "echo")
        return await self._attempt(mark, self._input(text, style, mark), "screen")

    async def submit(self, mark: str) -> Outcome:
        """Press Enter once: the input already holds only a text with `mark`. Return the outcome."""
        return await self._attempt(mark, self._enter(mark, "", tries=1), "screen")

    async def _attempt(self, mark: str, steps: Coroutine[Any, Any, str | None], shown: Proof) -> Outcome:
        """Run `steps`, which return the remaining doubt. shown: the proof if there is none."""
        self._seen.clear()
        self._before = () if shown == "echo" else tuple(self._terminal.screen_text())
        self.arrived = False
        self._began = self._clock()
        self._end = closing_mark(mark)
        echoes = self._terminal.tty().echo
        try:
            doubt = await steps
            if doubt is None and echoes and not await self._until(self._read, READ_TIMEOUT):
                doubt = "the terminal echoed what was typed, but the program has not read it"
            proof: Proof = "hook" if self.arrived else shown
        finally:
            self._end, self.arrived = "", False
        if doubt is None or proof == "hook":
            return Outcome(Result.INJECTED, "", "typed", "user", proof)
        return Outcome(Result.UNCERTAIN, doubt, "typed", "user")

    async def _line(self, text: str) -> str | None:
        end = self._end.encode()
        self._terminal.write(text.encode() + (b"\r" if self._terminal.tty().icrnl else b"\n"))
        if not await self._written():
            return "the program did not read what was typed"
        if not await self._until(lambda: end in self._seen, ECHO_TIMEOUT):
            return "the terminal did not echo what was typed"
        return None

    async def _input(self, text: str, style: Style, mark: str) -> str | None:
        begin, end = (PASTE_BEGIN, PASTE_END) if style is Style.PASTE else (b"", b"")
        empty, offset = self._terminal.unfinished(), self._terminal.output_offset()
        self._size = len(text)
        self._terminal.write(begin + text.encode() + end)
        if not await self._written():
            return "the program did not read what was typed"
        written = self._clock()
        await self._until(lambda: self._drawn(offset, written), max(self._delay, SILENCE_TIMEOUT))
        return await self._enter(mark, empty, tries=2)

    async def _enter(self, mark: str, empty: str, tries: int) -> str | None:
        """Press Enter up to `tries` times; return why the text may be untaken. empty: the row without it."""
        for _ in range(tries):
            # Output that has not been analysed yet may be a question, which Enter would answer.
            if not await self._until(lambda: not self._terminal.output_pending(), PRINT_TIMEOUT):
                return "Enter was not pressed: the program prints without a pause"
            if self.arrived:
                return None
            if reason := self._asking() or self._mangled(mark):
                return f"Enter was not pressed: {reason}"
            row, rows = self._terminal.unfinished(), self._terminal.screen_text()
            # If an input does not show its text, only the whole screen can tell.
            state = self._view.state() if self._view.ruled else None
            held = _Held(mark, state, row if row != empty else None, rows, self._terminal.output_offset())
            self._terminal.write(b"\r")
            if await self._until(partial(self._taken, held), SUBMIT_TIMEOUT):
                return None
        return "the program did not show that it accepted the typed text"

    def _asking(self) -> str | None:
        """Return why Enter must not be pressed now (it would answer or run something), or None."""
        if self._view.held is not None:
            return self._view.held.reason
        sight = self._view.look()
        # Earlier evidence has already been weighed, when the input was empty.
        since = self._clock() - self._began
        news = tuple(evidence for evidence in sight.evidence if evidence.age <= since)
        found = danger(replace(sight, evidence=news), self._view.profile, self._before)
        return found.reason if found else None

    def _mangled(self, mark: str) -> str | None:
        """Return a reason if the screen shows the end of the text without its beginning, though it has room.

        A line editor may have taken the first keys for a command: after Esc, or in vi's command mode.
        """
        if self._view.ruled or not self._view.edited:
            return None  # an input of one row shows only the end of a long text
        drawn = _packed(self._terminal.screen_text())
        room = self._terminal.size[0] * (self._terminal.size[1] // 2)
        if self._size > room or _packed([self._end]) not in drawn or _packed([opening_mark(mark)]) in drawn:
            return None
        return "the program shows the text without its beginning, which it has taken for a command"

    def _drawn(self, offset: int, written: float) -> bool:
        """Return True once the program has drawn the text, `written` at that time, or something in its place.

        An earlier Enter may submit a mere placeholder (qwen 0.24.4).
        """
        now = self._clock()
        if now - written < self._delay or self._terminal.output_offset() <= offset:
            return False
        if now - written >= ECHO_TIMEOUT:
            return True
        quiet = now - self._terminal.last_output() >= SETTLE and not self._terminal.output_pending()
        return quiet and self._shown()

    def _shown(self) -> bool:
        """Return True if the screen shows the end of the text, or one more placeholder than before."""
        rows = self._terminal.screen_text()
        if not rows:
            return True
        return _packed([self._end]) in _packed(rows) or _placeholders(rows) > _placeholders(self._before)

    def _taken(self, held: _Held) -> bool:
        """Return True if the input has changed since Enter was pressed, and no longer holds the text."""
        if self.arrived or self._terminal.tty().canonical:
            return True
        if self._terminal.output_offset() <= held.offset or self._terminal.output_pending():
            return False
        if self._view.ruled and held.state != "working":
            return self._view.state() in {"ready", "working", "failed"} - {held.state}
        row = self._terminal.unfinished()
        if held.row is None:
            return not held.rows or self._terminal.screen_text() != held.rows
        return row != held.row and held.mark not in row

    def _read(self) -> bool:
        """Return True if the program has read what was typed, as far as the system reports that."""
        return self.arrived or not self._terminal.unread_keys()

    async def _written(self) -> bool:
        return await self._until(lambda: not self._terminal.unwritten(), WRITE_TIMEOUT)

    async def _until(self, done: Callable[[], bool], timeout: float) -> bool:
        """Wait until `done`, evaluated after every output and every _STEP. Return False after `timeout`."""
        end = self._clock() + timeout
        while not done():
            left = end - self._clock()
            if left <= 0:
                return False
            self._output.clear()
            try:
                async with asyncio.timeout(min(left, _STEP)):
                    await self._output.wait()
            except TimeoutError:
                continue
        return True


def _packed(rows: Sequence[str]) -> str:
    """Return what `rows` show as one text without blanks and borders."""
    return "".join(row.strip(_BORDERS) for row in rows).replace(" ", "")


def _placeholders(rows: Sequence[str]) -> int:
    return sum(len(_PLACEHOLDER.findall(row)) for row in rows)
