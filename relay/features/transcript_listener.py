"""Publishes the texts and directives in the agent's own record.

TextRead ─→ Grammar ─→ AgentSaid, DirectiveRead
"""

from __future__ import annotations

import time
from collections.abc import Callable

from relay.agents.events import TextRead
from relay.agents.joiners import DrawnJoiners
from relay.agents.transcript_lines import Said
from relay.directives.events import DirectivePassedOver, said
from relay.directives.grammar import Grammar
from relay.eventbus import EventBus, handles
from relay.place import TRANSCRIPT, PlaceCounter
from relay.readers.line import Line
from relay.storage.journal import Journal, preview
from relay.terminal.events import OutputRead


class TranscriptListener:
    """Publishes the words of one agent, and of its subagents if wanted.

    knows:     returns True for a namespace that has a handler.
    subagents: publish the words of subagents, too, so that their directives are obeyed.
    joiners:   the joiners that its record lacks; None if it lacks none.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        *,
        knows: Callable[[str], bool],
        meant: Callable[[str], str],
        prefix: str,
        subagents: bool,
        joiners: DrawnJoiners | None,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._knows = knows
        self._meant = meant
        self._prefix = prefix
        self._subagents = subagents
        self._joiners = joiners
        self._places: dict[str, PlaceCounter] = {}

    @handles(OutputRead)
    def drawn(self, event: OutputRead) -> None:
        if self._joiners is not None:
            self._joiners.drawn(event.data)

    @handles(TextRead)
    def recorded(self, event: TextRead) -> None:
        for text in event.texts:
            if text.subagent and not event.again:
                self._journal.write("subagent_said", subagent=text.subagent, text=preview(text.text))
            if not text.subagent or self._subagents:
                self._say(text, again=event.again)

    def _say(self, text: Said, *, again: bool) -> None:
        source = f"{TRANSCRIPT}/{text.subagent}" if text.subagent else TRANSCRIPT
        places = self._places.setdefault(source, PlaceCounter(source))
        now, grammar = time.monotonic(), Grammar(self._knows, meant=self._meant, prefix=self._prefix)
        words = text.text if self._joiners is None else self._joiners.restored(text.text)
        # In Markdown only "\n" ends a line. A directive ends with its text.
        lines = [Line(each, now, places.at(text.place)) for each in words.split("\n")]
        found = [directive for line in lines for directive in grammar.line(line)]
        for said_event in said(lines, found + grammar.turn_end(now), self._prefix, again=again):
            self._bus.publish(said_event)
        for passed in [] if again else grammar.passed_over:
            if passed.why == "typo":  # the others are seen on the terminal only
                self._bus.publish(DirectivePassedOver(passed))
