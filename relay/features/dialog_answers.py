"""Answering what an agent asks: deliberately, never blindly, and noted in the journal.

A menu is answered as a person would: the mark is moved with the arrow keys until it is seen at the option
that was chosen, and Enter follows only if the very same question is still drawn then.  Digits would be
shorter, but select at once in some dialogs and not in others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.agents.profile import PromptKind
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.errors import NotAllowed, RelayError, UsageError
from relay.state import question
from relay.state.agent_terminal import AgentTerminal
from relay.state.question import Option, Question
from relay.state.readiness import Readiness
from relay.state.states import AgentState
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


class DialogAnswers:
    """Shows what one agent asks, and answers it."""

    def __init__(self, journal: Journal, terminal: AgentTerminal, state: AgentState) -> None:
        self._journal = journal
        self._terminal = terminal
        self._state = state
        self._answering = asyncio.Lock()

    @operation("question")
    async def question(self, _: Request) -> Answer:
        asked = await self.asked()
        return {
            "id": asked.token,
            "kind": self._state.prompt or PromptKind.OTHER,
            "lines": asked.lines,
            "options": [{"number": each.number, "text": each.text} for each in asked.options],
            "selected": asked.selected,
        }

    @operation("answer")
    async def answer(self, request: Request) -> Answer:
        id, choice, text = (request.fields.get(name) for name in ("id", "choice", "text"))
        if not isinstance(id, str) or not isinstance(choice, str) or not isinstance(text, str | None):
            raise UsageError("an answer has the id of its question, and a choice or a text.")
        return {"result": await self.give(id, choice=choice, text=text, by=f"pid {request.pid}")}

    async def asked(self) -> Question:
        """Return what is asked now, once it stands still; raise RelayError if nothing is, or a secret."""
        asked, stood = self._asked(), 0
        for _ in range(round(FOLLOWS / LOOK)):
            await asyncio.sleep(LOOK)
            before, asked = asked, self._asked()
            stood = stood + 1 if asked == before and not self._terminal.output_pending() else 0
            if stood * LOOK >= STANDS:
                break
        return asked

    def _asked(self) -> Question:
        if self._state.look() != Readiness.PROMPTING:
            raise RelayError("it asks nothing now. `relay explain` says what it does.")
        tty = self._terminal.tty()
        if tty.canonical and not tty.echo:
            raise RelayError("it asks for a secret, which belongs into its own terminal: `relay attach`.")
        return self._drawn()

    async def give(self, token: str, *, choice: str = "", text: str | None = None, by: str) -> str:
        """Answer the question that `token` names, by an option or with a text of one's own.

        Return "answered", or "unconfirmed" if the question is still drawn afterwards. Raise RelayError, having
        chosen nothing, if it is not the same question any more. by: who answers, for the journal.
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
        if not asked.options and not self._terminal.tty().canonical:
            raise RelayError("its options cannot be told from its screen. Answer it there: `relay attach`.")
        if text is not None:
            await self._give_text(asked, text)
        else:
            option = asked.choose(choice)
            if asked.selected:
                await self._select(asked, option)
            else:
                await self._type(
                    option.key, lambda: self._terminal.unfinished().rstrip().endswith(option.key)
                )
        self._terminal.write(ENTER)
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
        self._terminal.write(text.encode())
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
            self._terminal.write(DOWN if option.number > at else UP)

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
        return lambda: self._state.look() != Readiness.PROMPTING or self._drawn().token != asked.token

    def _drawn(self) -> Question:
        return question.find(self._terminal.screen_text(), self._terminal.unfinished())

    def _shown(self) -> list[str]:
        return self._terminal.screen_text() or [self._terminal.unfinished()]

    async def _seen(self, condition: Callable[[], bool], seconds: float = FOLLOWS) -> bool:
        """Return True once `condition` holds, False after `seconds`."""
        for _ in range(round(seconds / LOOK)):
            if not self._terminal.output_pending() and condition():
                return True
            await asyncio.sleep(LOOK)
        return False
