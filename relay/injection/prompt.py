"""One prompt: a text, or several waiting texts of hooks, with the contexts that stand before it.

the first that waits ─→ together ─→ on_prompt: contexts, or a refusal ─→ Prompt ─→ lay_out
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from relay.errors import MessageRefused
from relay.injection import layout
from relay.injection.backlog import Backlog
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style

_log = logging.getLogger(__name__)

MAX_TOGETHER = 32 * 1024
"""Bytes of UTF-8 of the texts of hooks that are typed as one."""

TIMEOUT = 120.0
"""Seconds that `on_prompt` may take; afterwards the prompt is typed without contexts."""

OnPrompt = Callable[[Sequence[Injection]], Awaitable[Sequence[Injection]]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Injections that are typed as one, in this order. contexts: texts of hooks that stand before them."""

    injections: tuple[Injection, ...]
    contexts: tuple[Injection, ...] = ()

    def lay_out(self, style: Style, mark: str, directive: re.Pattern[str]) -> list[str]:
        """Return the texts to type, as layout.lay_out does; several injections need Style.PASTE."""
        if len(self.injections) == 1:
            return layout.lay_out(self.injections[0], style, mark, directive, self.contexts)
        contexts, texts = (
            [(each, layout.clean(each, directive)) for each in injections]
            for injections in (self.contexts, self.injections)
        )
        return [layout.enclose(texts, mark, contexts)]


class Prompts:
    """The prompts of one agent.

    style:     returns the style in which its program takes text now.
    on_prompt: None, or that of Injector.
    """

    def __init__(
        self,
        waiting: Backlog,
        style: Callable[[], Style],
        on_outcome: Callable[[Injection, Outcome], None],
    ) -> None:
        self.on_prompt: OnPrompt | None = None
        self.asking = False
        """True while on_prompt runs."""
        self._waiting = waiting
        self._style = style
        self._on_outcome = on_outcome
        self._asked: list[Prompt] = []

    async def of(self, first: Injection) -> Prompt | None:
        """Return the prompt to type now, with `first` in front; None if on_prompt ran: look again."""
        if self.on_prompt is None:
            return Prompt(self._together(first))
        waiting = tuple(self._waiting)
        self._asked = [each for each in self._asked if each.injections[0] in waiting]
        for asked in self._asked:
            if asked.injections[0] is first:
                return replace(asked, injections=tuple(each for each in asked.injections if each in waiting))
        await self._ask(self.on_prompt, self._together(first))
        return None

    async def _ask(self, on_prompt: OnPrompt, injections: tuple[Injection, ...]) -> None:
        contexts: Sequence[Injection] = ()
        self.asking = True
        try:
            async with asyncio.timeout(TIMEOUT):
                contexts = await on_prompt(injections)
        except TimeoutError:
            pass  # each rule has a limit of its own, which is reported
        except MessageRefused as error:
            for each in injections:
                if self._waiting.remove(each.id) is not None:
                    self._on_outcome(each, Outcome(Result.REJECTED, str(error)))
            return
        except Exception:  # noqa: BLE001 (logged with its traceback; nothing waits for ever)
            _log.exception("what rules say to a prompt is not known; it is typed without")
        finally:
            self.asking = False
        fitting = []
        for each in contexts:
            try:
                layout.check(each)
            except MessageRefused as error:
                self._on_outcome(each, Outcome(Result.REJECTED, str(error)))
            else:
                fitting.append(each)
        self._asked.append(Prompt(injections, tuple(fitting)))

    def _together(self, first: Injection) -> tuple[Injection, ...]:
        """Return `first`, and for a hook's text those of hooks behind it, where they can be one text."""
        if first.kind != "hook":
            return (first,)
        waiting = tuple(self._waiting)
        found, size = list[Injection](), 0
        for each in waiting[waiting.index(first) :]:
            size += len(each.text.encode("utf-8", "replace"))
            if each.kind != "hook" or (found and size > MAX_TOGETHER):
                break
            found.append(each)
        return tuple(found) if len(found) > 1 and self._style() is Style.PASTE else (first,)
