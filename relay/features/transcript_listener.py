"""Publishes the texts and directives in the agent's own record.

TextRead        ─→ Grammar ─→ AgentSaid, DirectiveRead
EarlierTextRead ─→ Grammar ─→ EarlierWords
"""

from __future__ import annotations

import time
from collections.abc import Callable

from relay.agents.events import EarlierTextRead, TextRead
from relay.agents.joiners import DrawnJoiners
from relay.agents.transcript_lines import Said
from relay.directives.events import DirectivePassedOver, EarlierWords, said
from relay.directives.grammar import Grammar
from relay.eventbus import Event, EventBus, handles
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
            if text.subagent:
                self._journal.write("subagent_said", subagent=text.subagent, text=preview(text.text))
            for word in self._words(text):
                self._bus.publish(word)

    @handles(EarlierTextRead)
    def recorded_earlier(self, event: EarlierTextRead) -> None:
        words = [word for text in event.texts for word in self._words(text)]
        self._bus.publish(EarlierWords.of(words))

    def _words(self, text: Said) -> list[Event]:
        if text.subagent and not self._subagents:
            return []
        source = f"{TRANSCRIPT}/{text.subagent}" if text.subagent else TRANSCRIPT
        places = self._places.setdefault(source, PlaceCounter(source))
        now, grammar = time.monotonic(), Grammar(self._knows, meant=self._meant, prefix=self._prefix)
        written = text.text if self._joiners is None else self._joiners.restored(text.text)
        # In Markdown only "\n" ends a line. A directive ends with its text.
        lines = [Line(each, now, places.at(text.place)) for each in written.split("\n")]
        found = [directive for line in lines for directive in grammar.line(line)]
        words = said(lines, found + grammar.turn_end(now), self._prefix)
        # The others are seen on the terminal only.
        typos = (passed for passed in grammar.passed_over if passed.why == "typo")
        return words + [DirectivePassedOver(typo) for typo in typos]
