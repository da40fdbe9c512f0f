"""One prompt: a text, or several waiting texts of hooks, preceded by contexts.

the first waiting text ─→ together ─→ Compose: contexts, or a refusal ─→ Prompt ─→ lay_out
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence

from relay.dataclass import dataclass, replace
from relay.errors import MessageRefused
from relay.eventbus import EventBus
from relay.injection import layout
from relay.injection.events import Compose
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style, style_of
from relay.injection.queue import InjectionQueue
from relay.state.view import AgentView

_log = logging.getLogger(__name__)

MAX_TOGETHER = 32 * 1024
"""Maximum bytes of UTF-8 of hooks' texts typed as one."""

TIMEOUT = 120.0
"""Seconds that the answers to Compose may take; after that, the prompt is typed without contexts."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Injections typed as one, in this order. contexts: texts of hooks that precede them."""

    injections: tuple[Injection, ...]
    contexts: tuple[Injection, ...] = ()


class PromptComposer:
    """Makes prompts of the waiting texts, asking once for each which contexts precede it (Compose).

    asking: Compose is being answered.
    """

    def __init__(
        self, bus: EventBus, queue: InjectionQueue, view: AgentView, directive: re.Pattern[str]
    ) -> None:
        self._bus = bus
        self._queue = queue
        self._view = view
        self._directive = directive
        self.asking = False
        self._composed: list[Prompt] = []

    async def compose(self, first: Injection) -> Prompt | None:
        """Return the prompt that starts with `first`; None if rules were just asked: look again."""
        # Compare ids: thousands may be waiting, and comparing injections takes longer than the rest.
        waiting = {each.id for each in self._queue} if self._composed else set()
        self._composed = [each for each in self._composed if each.injections[0].id in waiting]
        for known in self._composed:
            if known.injections[0] is first:
                still = tuple(each for each in known.injections if each.id in waiting)
                return replace(known, injections=still)
        return await self._ask(self._together(first))

    def lay_out(self, prompt: Prompt, style: Style, mark: str) -> list[str]:
        """Return the texts to type, as layout.lay_out does; several injections need Style.PASTE."""
        if len(prompt.injections) == 1:
            return layout.lay_out(prompt.injections[0], style, mark, self._directive, prompt.contexts)
        texts, contexts = (
            [(each, layout.clean(each, self._directive)) for each in some]
            for some in (prompt.injections, prompt.contexts)
        )
        return [layout.enclose(texts, mark, contexts)]

    async def _ask(self, injections: tuple[Injection, ...]) -> Prompt | None:
        """Compose the prompt of `injections`; return it if there were no rules to wait for."""
        answers: Sequence[tuple[Injection, ...]] | None = None
        self.asking = True
        try:
            async with asyncio.timeout(TIMEOUT):
                answers = await self._bus.ask(Compose(injections))
        except TimeoutError:
            pass  # the feature that runs the rules limits each one, and reports it
        except MessageRefused as error:
            for each in injections:
                self._queue.discard(each, Outcome(Result.REJECTED, str(error)))
            return None
        except Exception:  # noqa: BLE001 (logged; the feature that runs the rules tells the user)
            _log.exception("the result of the prompt rules is unknown; the text is typed without them")
        finally:
            self.asking = False
        contexts = [each for answer in answers or () for each in answer]
        prompt = Prompt(injections, tuple(each for each in contexts if self._queue.fits(each)))
        self._composed.append(prompt)
        return prompt if answers == [] else None

    def _together(self, first: Injection) -> tuple[Injection, ...]:
        """Return `first`, and for a hook's text also those of hooks after it, if they can be one text."""
        if first.kind != "hook":
            return (first,)
        waiting = tuple(self._queue)
        found, size = list[Injection](), 0
        for each in waiting[waiting.index(first) :]:
            size += len(each.text.encode("utf-8", "replace"))
            if each.kind != "hook" or (found and size > MAX_TOGETHER):
                break
            found.append(each)
        return tuple(found) if len(found) > 1 and style_of(self._view.look()) is Style.PASTE else (first,)
