"""Answers the agent's questions: never blindly, and recorded in the journal.

In a menu, the arrow keys move the mark, or the colour that is one, until the screen shows it at the chosen
option; Enter follows only if the same question is still drawn. Digits would be shorter, but they select at
once in some dialogs and not in others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from relay.agents.profile import Profile, PromptKind
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.errors import NotAllowed, RelayError, UsageError
from relay.eventbus import answers, handles
from relay.lifecycle import Describe, SessionSettling
from relay.redaction import Redactor
from relay.state import question
from relay.state.agent_terminal import AgentTerminal
from relay.state.question import Option, ScreenQuestion
from relay.state.readiness import Readiness
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.terminal.events import AgentExited
from relay.text import one_line, visible

STABLE_FOR = 0.2
"""Seconds for which a question must stay unchanged: some agents draw a dialog piece by piece."""

SCREEN_CHECK_EVERY = 0.02
"""Seconds between two looks at the screen."""

FOLLOWS = 1.5
"""Seconds allowed for a menu's mark to follow an arrow key, and for an input to show what was typed."""

SETTLES = 0.3
"""Seconds between a text and Enter: some agents take an immediate Enter for a newline in the text."""

TAKEN = 3.0
"""Seconds allowed for an answered question to disappear."""

SHOWN = 200
"""Characters of a question in `relay ps --json`."""

MAX_TEXT = 1000
"""Characters of a free answer; a terminal in canonical mode takes a line of 4,095 bytes."""

UP, DOWN, RIGHT, LEFT, ENTER = b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\r"


class _Secret(RelayError):
    """The agent's terminal does not echo what is typed."""


class DialogAnswers:
    """Shows the question of one agent, and answers it."""

    def __init__(
        self,
        journal: Journal,
        redactor: Redactor,
        terminal: AgentTerminal,
        state: AgentState,
        profile: Profile,
    ) -> None:
        self._profile = profile
        self._journal = journal
        self._redactor = redactor
        self._terminal = terminal
        self._state = state
        self._answering = asyncio.Lock()
        self._exited = False
        self._given = 0  # answers, so that one is not taken for the same question asked again

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._exited = True

    @answers(SessionSettling)
    async def settle(self, _: SessionSettling, __: object) -> None:
        """Let an answer in progress end: a program may exit because of it."""
        async with self._answering:
            pass

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if not question.brief:
            return None
        try:
            asked = self._asked()
        except RelayError as error:
            return {"question": str(error) if isinstance(error, _Secret) else ""}
        # What stands above a one-line question may be anything; a menu's last rows say most.
        text = self._redactor.redact(" ".join(asked.lines if asked.selected else asked.lines[-1:]))
        line = one_line(text, None)
        return {"question": line if len(line) <= SHOWN else "…" + line[1 - SHOWN :]}

    @operation("question")
    async def question(self, _: Request) -> Answer:
        asked = await self._settled()
        return {
            "id": self._id(asked),
            "kind": self._state.prompt or PromptKind.OTHER,
            "lines": asked.lines,
            "options": [{"number": each.number, "text": each.text} for each in asked.options],
            "selected": asked.selected,
            "text": asked.free is not None or self._takes_line(asked),
        }

    @operation("answer")
    async def answer(self, request: Request) -> Answer:
        """Answer the question with this id by an option or a text.

        result: "answered", or "unconfirmed" if the question is still drawn afterwards. option: the chosen
        one; None for a line that takes any text. typed: the text before Enter; "" in a menu. Raise
        RelayError, with nothing chosen, if the agent is now asking something else.
        """
        id, choice, text = (request.fields.get(name) for name in ("id", "choice", "text"))
        if not isinstance(id, str) or not isinstance(choice, str) or not isinstance(text, str | None):
            raise UsageError("an answer needs the id of its question, and a choice or a text.")
        async with self._answering:
            asked = await self._settled()
            note = {"by": f"pid {request.pid}", "asked": list(asked.lines), "choice": choice, "text": text}
            try:
                result, option = await self._give(asked, id, choice, text)
            except RelayError as error:
                self._journal.write("answer", **note, result="refused", detail=str(error))
                raise
            chosen = None if option is None else {"number": option.number, "text": option.text}
            self._journal.write("answer", **note, option=chosen, result=result)
            typed = text if text is not None else "" if option is None else option.key
            return {"result": result, "option": chosen, "typed": typed}

    async def _settled(self) -> ScreenQuestion:
        """Return the question once it is stable. Raise RelayError if there is none, or it is for a secret."""
        asked, stable = self._asked(), 0
        for _ in range(round(FOLLOWS / SCREEN_CHECK_EVERY)):
            await asyncio.sleep(SCREEN_CHECK_EVERY)
            before, asked = asked, self._asked()
            stable = stable + 1 if asked == before and not self._terminal.output_pending() else 0
            if stable * SCREEN_CHECK_EVERY >= STABLE_FOR:
                break
        return asked

    def _asked(self) -> ScreenQuestion:
        if self._state.look() != Readiness.PROMPTING:
            raise RelayError("it has no open question. `relay explain` shows its state.")
        tty = self._terminal.tty()
        if tty.canonical and not tty.echo:
            raise _Secret("it asks for a secret: type that in its own terminal, with `relay attach`.")
        return question.on(self._terminal, self._profile)

    def _id(self, asked: ScreenQuestion) -> str:
        return f"{asked.token}-{self._given}"

    async def _give(
        self, asked: ScreenQuestion, id: str, choice: str, text: str | None
    ) -> tuple[str, Option | None]:
        if self._id(asked) != id:
            raise NotAllowed("it is now asking something else. Read that first.")
        if not (asked.options or self._takes_line(asked)):
            raise RelayError("its screen shows no readable options. Answer in its terminal: `relay attach`.")
        option = asked.free if text is not None else asked.choose(choice)
        if text is not None:
            await self._give_text(asked, text)
        elif option is not None:
            if asked.selected:
                await self._select(asked, option)
            else:
                line = self._terminal.unfinished
                await self._type(option.key, lambda: line().rstrip().endswith(option.key))
        self._given += 1
        self._terminal.write(ENTER)

        def gone() -> bool:
            if self._exited or self._state.look() != Readiness.PROMPTING:
                return True
            return question.on(self._terminal, self._profile).token != asked.token

        return "answered" if await self._seen(gone, TAKEN) else "unconfirmed", option

    def _takes_line(self, asked: ScreenQuestion) -> bool:
        return not asked.options and self._terminal.tty().canonical

    async def _give_text(self, asked: ScreenQuestion, text: str) -> None:
        if visible(text) != text or "\n" in text or "\t" in text or not 0 < len(text) <= MAX_TEXT:
            raise UsageError(f"an answer must be one line of at most {MAX_TEXT} visible characters.")
        if asked.options and asked.free is None:
            raise UsageError("it accepts only one of its options, not text. Give an option's number.")
        if asked.free is not None:
            await self._select(asked, asked.free)
        end = (text[-20:].split() or [text])[-1]

        def typed() -> bool:
            now = question.on(self._terminal, self._profile)
            same = now.lines == asked.lines and now.selected == asked.free.number if asked.free else True
            rows = self._terminal.screen_text() or [self._terminal.unfinished()]
            return same and any(end in row for row in rows)

        await self._type(text, typed)

    async def _type(self, text: str, typed: Callable[[], bool]) -> None:
        self._terminal.write(text.encode())
        seen = await self._seen(typed)
        await asyncio.sleep(SETTLES)
        if not (seen and typed()):
            raise RelayError("the typed text did not appear, and was not submitted. Check its terminal.")

    async def _select(self, asked: ScreenQuestion, option: Option) -> None:
        at = asked.selected
        back, forth = (LEFT, RIGHT) if asked.across else (UP, DOWN)
        for _ in asked.options:
            if at == option.number:
                return
            before = at
            self._terminal.write(forth if option.number > at else back)

            def moved(before: int = before) -> bool:
                now = question.on(self._terminal, self._profile)
                return now.selected != before and now.token == asked.token

            if not await self._seen(moved):
                break
            at = question.on(self._terminal, self._profile).selected
        if question.on(self._terminal, self._profile).token != asked.token:
            raise NotAllowed("it is now asking something else. Nothing was chosen.")
        if at != option.number:
            raise RelayError(
                "its menu does not respond to the arrow keys. Nothing was chosen: use `relay attach`."
            )

    async def _seen(self, condition: Callable[[], bool], seconds: float = FOLLOWS) -> bool:
        """Return True once `condition` holds, False after `seconds`."""
        for _ in range(round(seconds / SCREEN_CHECK_EVERY)):
            if not self._terminal.output_pending() and condition():
                return True
            await asyncio.sleep(SCREEN_CHECK_EVERY)
        return False
