"""Answering what an agent asks: deliberately, never blindly, and noted in the journal.

A menu is answered as a person would: the mark is moved with the arrow keys until it is seen at the option
that was chosen, and Enter follows only if the very same question is still drawn then.  Digits would be
shorter, but select at once in some dialogs and not in others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from relay.errors import NotAllowed, RelayError, UsageError
from relay.state import question
from relay.state.port import TtyState
from relay.state.question import Option, Question
from relay.state.readiness import Readiness
from relay.storage.journal import Journal
from relay.text import visible

STANDS = 0.2
"""Seconds for which a question must be drawn as it is: some agents draw a dialog piece by piece."""

LOOK = 0.02
"""Seconds between two looks at the screen."""

FOLLOWS = 1.5
"""Seconds in which a menu's mark follows an arrow key, and an input shows what was typed."""

SETTLES = 0.3
"""Seconds between a text and Enter: at once after it, some agents take it for a newline of the text."""

TAKEN = 3.0
"""Seconds in which a question that was answered disappears."""

MAX_TEXT = 1000
"""Characters of a free answer; a terminal in canonical mode takes a line of 4,095 bytes."""

UP, DOWN, ENTER = b"\x1b[A", b"\x1b[B", b"\r"


class Screen(Protocol):
    """The part of `relay.state.port.Port` that is needed to answer."""

    def write(self, data: bytes) -> None: ...
    def tty(self) -> TtyState: ...
    def output_pending(self) -> bool: ...
    def unfinished(self) -> str: ...
    def screen_text(self) -> list[str]: ...


class Answers:
    """Shows what one agent asks, and answers it.

    state: looks at the agent's state (`AgentState.look`).
    """

    def __init__(self, screen: Screen, state: Callable[[], str], journal: Journal) -> None:
        self._screen = screen
        self._state = state
        self._journal = journal
        self._answering = asyncio.Lock()

    async def asked(self) -> Question:
        """What is asked now, once it stands still; RelayError where nothing is, or a secret."""
        asked, stood = self._asked(), 0
        for _ in range(round(FOLLOWS / LOOK)):
            await asyncio.sleep(LOOK)
            before, asked = asked, self._asked()
            stood = stood + 1 if asked == before and not self._screen.output_pending() else 0
            if stood * LOOK >= STANDS:
                break
        return asked

    def _asked(self) -> Question:
        if self._state() != Readiness.PROMPTING:
            raise RelayError("it asks nothing now. `relay explain` says what it does.")
        tty = self._screen.tty()
        if tty.canonical and not tty.echo:
            raise RelayError("it asks for a secret, which belongs into its own terminal: `relay attach`.")
        return self._drawn()

    def drawn(self) -> tuple[str, ...]:
        """The rows of a question whose options can be told, with them; () of any other."""
        asked = self._drawn()
        options = tuple(f"{each.number}. {each.text}" for each in asked.options)
        return asked.lines + options if options else ()

    async def give(self, token: str, *, choice: str = "", text: str | None = None, by: str) -> str:
        """Answer the question that `token` names, by an option or with a text of one's own.

        "answered", or "unconfirmed" where the question is still drawn afterwards. Raises RelayError, having
        chosen nothing, where it is not the same question any more. `by`: who answers, for the journal.
        """
        async with self._answering:
            asked = await self.asked()
            note = {"by": by, "asked": list(asked.lines), "choice": choice, "text": text}
            try:
                result = await self._give(asked, token, choice, text)
            except RelayError as error:
                self._journal.write("answer", **note, result="refused", detail=str(error))
                raise
            self._journal.write("answer", **note, result=result)
            return result

    async def _give(self, asked: Question, token: str, choice: str, text: str | None) -> str:
        if asked.token != token:
            raise NotAllowed("it asks something else by now. Look at that first.")
        if not asked.options and not self._screen.tty().canonical:
            raise RelayError("its options cannot be told from its screen. Answer it there: `relay attach`.")
        if text is not None:
            await self._give_text(asked, text)
        else:
            option = asked.choose(choice)
            if asked.selected:
                await self._select(asked, option)
            else:
                await self._type(option.key, lambda: self._screen.unfinished().rstrip().endswith(option.key))
        self._screen.write(ENTER)
        gone = await self._seen(self._is_over(asked), TAKEN)
        return "answered" if gone else "unconfirmed"

    async def _give_text(self, asked: Question, text: str) -> None:
        if visible(text) != text or "\n" in text or "\t" in text or not 0 < len(text) <= MAX_TEXT:
            raise UsageError(f"an answer is one line of at most {MAX_TEXT} visible characters.")
        if asked.options and asked.free is None:
            raise UsageError("it takes one of its options, and no text. Say the number of one.")
        if asked.free is not None:
            await self._select(asked, asked.free)
        end = (text[-20:].split() or [text])[-1]

        def typed() -> bool:
            now = self._drawn()
            same = now.lines == asked.lines and now.selected == asked.free.number if asked.free else True
            return same and any(end in row for row in self._shown())

        await self._type(text, typed)

    async def _type(self, text: str, typed: Callable[[], bool]) -> None:
        self._screen.write(text.encode())
        seen = await self._seen(typed)
        await asyncio.sleep(SETTLES)
        if not (seen and typed()):
            raise RelayError("what was typed did not appear, and was not submitted. Look at its terminal.")

    async def _select(self, asked: Question, option: Option) -> None:
        """Move the mark to `option`, one key at a time."""
        at = asked.selected
        for _ in asked.options:
            if at == option.number:
                return
            before = at
            self._screen.write(DOWN if option.number > at else UP)

            def moved(before: int = before) -> bool:
                now = self._drawn()
                return now.selected != before and now.token == asked.token

            if not await self._seen(moved):
                break
            at = self._drawn().selected
        if self._drawn().token != asked.token:
            raise NotAllowed("it asks something else by now. Nothing was chosen.")
        if at != option.number:
            raise RelayError("its menu does not follow the arrow keys. Nothing was chosen: `relay attach`.")

    def _is_over(self, asked: Question) -> Callable[[], bool]:
        return lambda: self._state() != Readiness.PROMPTING or self._drawn().token != asked.token

    def _drawn(self) -> Question:
        return question.find(self._screen.screen_text(), self._screen.unfinished())

    def _shown(self) -> list[str]:
        return self._screen.screen_text() or [self._screen.unfinished()]

    async def _seen(self, condition: Callable[[], bool], seconds: float = FOLLOWS) -> bool:
        """Whether the screen comes to show what `condition` looks for."""
        for _ in range(round(seconds / LOOK)):
            if not self._screen.output_pending() and condition():
                return True
            await asyncio.sleep(LOOK)
        return False
