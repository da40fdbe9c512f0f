"""The typist: types one text into the agent's terminal, submits it, and verifies that it was taken.

    lines    text CR                                    the kernel's echo verifies it
    keys     text, wait for its echo, CR, look          one more CR if the input still shows it
    paste    ESC[200~ text ESC[201~, wait, CR, look     the same

It was taken if, in this order of trust: the agent's own hook reports the prompt (`prompted`); the terminal
takes lines again, as with a program that has its own input only while it waits; the profile's rule for an
empty input holds again, or one for working does; or, where a profile has no such rules, the cursor's row or
the screen has changed.

Nothing here blocks, and every wait is bounded: a program that reads nothing leaves the text unverified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from relay.injection.injection import Outcome, Proof, Result
from relay.injection.layout import Style, closing_mark
from relay.state.port import Port

PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"  # xterm ctlseqs, "Bracketed Paste Mode"

WRITE_TIMEOUT = 2.0
"""Seconds for the program to read what was written; the terminal holds about 19 KB unread on Linux."""

ECHO_TIMEOUT = 1.0
"""Seconds to wait for a text to be drawn before submitting it anyway; agents need up to 0.2."""

SETTLE = 0.05
"""Seconds without output after which a program has finished drawing."""

PRINT_TIMEOUT = 2.0
"""Seconds to wait for a moment in which all output has been analysed."""

SUBMIT_TIMEOUT = 0.5
"""Seconds for a submitted text to leave the input."""

_STEP = 0.01  # seconds between looks while a text is being typed; the screen may lag behind the bytes
_TAIL = 64 * 1024  # bytes of output that are searched for an echo


@dataclass(frozen=True, slots=True)
class _Held:
    """The screen when Enter was pressed; `row` is None where the input does not show its text."""

    mark: str
    state: str | None
    row: str | None
    rows: list[str]
    offset: int


class Typist:
    """Types one text at a time.

    asking: returns why Enter must not be pressed now, or None.
    delay:  least seconds between a text and its Enter, in a program that draws its own input.
    state:  returns the state by the profile's rules, *ready* only over an empty input; None: it has no rules.
    """

    def __init__(
        self,
        port: Port,
        clock: Callable[[], float],
        asking: Callable[[], str | None],
        *,
        delay: float,
        state: Callable[[], str | None] | None = None,
    ) -> None:
        self._port = port
        self._clock = clock
        self._asking = asking
        self._delay = delay
        self._state = state
        self._end = ""  # the end of the text that is being typed
        self._prompted = False
        self._output = asyncio.Event()
        self._seen = bytearray()

    def output(self, data: bytes) -> None:
        """Note output of the agent."""
        self._seen += data
        del self._seen[:-_TAIL]
        self._output.set()

    def prompted(self, prompt: str) -> None:
        """Note the prompt that the agent reports as submitted."""
        if self._end and self._end in prompt:
            self._prompted = True
            self._output.set()

    @property
    def arrived(self) -> bool:
        """True if the agent has reported the text that is being typed."""
        return self._prompted

    async def type(self, text: str, style: Style, mark: str) -> Outcome:
        """Type and submit `text`, which ends in closing_mark(mark). Return the outcome."""
        self._seen.clear()
        self._prompted = False
        self._end = closing_mark(mark)
        try:
            doubt = await (self._line(text) if style is Style.LINES else self._input(text, style, mark))
            proof: Proof = "hook" if self._prompted else "echo" if style is Style.LINES else "screen"
        finally:
            self._end, self._prompted = "", False
        if doubt is None or proof == "hook":
            return Outcome(Result.INJECTED, "", "typed", "user", proof)
        return Outcome(Result.UNCERTAIN, doubt, "typed", "user")

    async def _line(self, text: str) -> str | None:
        end = self._end.encode()
        self._port.write(text.encode() + (b"\r" if self._port.tty().icrnl else b"\n"))
        if not await self._written():
            return "the program did not read what was typed"
        if not await self._until(lambda: end in self._seen, ECHO_TIMEOUT):
            return "the terminal did not echo what was typed"
        return None

    async def _input(self, text: str, style: Style, mark: str) -> str | None:
        begin, end = (PASTE_BEGIN, PASTE_END) if style is Style.PASTE else (b"", b"")
        empty, offset = self._port.unfinished(), self._port.output_offset()
        self._port.write(begin + text.encode() + end)
        if not await self._written():
            return "the program did not read what was typed"
        written = self._clock()
        await self._until(
            lambda: self._clock() - written >= self._delay and self._drawn(offset),
            max(self._delay, ECHO_TIMEOUT),
        )
        for _ in range(2):
            # Output that was not analysed yet may be a question, which Enter would answer.
            if not await self._until(lambda: not self._port.output_pending(), PRINT_TIMEOUT):
                return "Enter was not pressed: the program prints without a pause"
            if self._prompted:
                return None
            if reason := self._asking():
                return f"Enter was not pressed: {reason}"
            row, rows = self._port.unfinished(), self._port.screen_text()
            # An input that shows nothing of its text can only be judged by the screen as a whole.
            state = self._state() if self._state else None
            held = _Held(mark, state, row if row != empty else None, rows, self._port.output_offset())
            self._port.write(b"\r")
            if await self._until(partial(self._taken, held), SUBMIT_TIMEOUT):
                return None
        return "the program did not show that it took what was typed"

    def _drawn(self, offset: int) -> bool:
        """Return True if the program has drawn the text, or something instead, and has finished drawing."""
        quiet = self._clock() - self._port.last_output() >= SETTLE
        return quiet and not self._port.output_pending() and self._port.output_offset() > offset

    def _taken(self, held: _Held) -> bool:
        """Return True if the input has changed since Enter was pressed, and no longer holds the text."""
        if self._prompted or self._port.tty().canonical:
            return True
        if self._port.output_offset() <= held.offset or self._port.output_pending():
            return False
        if self._state is not None and held.state != "working":
            return self._state() in {"ready", "working", "failed"} - {held.state}
        row = self._port.unfinished()
        if held.row is None:
            return not held.rows or self._port.screen_text() != held.rows
        return row != held.row and held.mark not in row

    async def _written(self) -> bool:
        return await self._until(lambda: not self._port.unwritten(), WRITE_TIMEOUT)

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
