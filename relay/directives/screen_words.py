"""The agent's words on its screen: published at once, or held back while its own record may confirm them.

    screen ─→ take ─┬→ AgentSaid, DirectiveRead; EarlierWords
                    └ kept ─┬→ forgotten: the record has it, or has what was said later
                            └→ released: the record is lost ─→ AgentSaid, DirectiveRead; EarlierWords
    record ─→ note ─→ what the screen has yet to show, and relay does not publish again

This works without knowing which turn is which: the two are paired by their texts, however late either comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from relay.directives.alignment import ALIKE, NOWHERE, Alignment
from relay.directives.directive import Directive
from relay.directives.events import AgentSaid, DirectivePassedOver, DirectiveRead, EarlierWords, said
from relay.directives.grammar import PassedOver
from relay.directives.pipeline import Reading
from relay.eventbus import Event
from relay.place import TERMINAL, TRANSCRIPT, Place
from relay.readers.line import Line

MOST = 2_000
"""Maximum readings kept; the oldest are dropped first."""

LONG, LIKENESS, COMPARED = 8, 0.6, 400
"""Two texts may be forms of one: minimum characters, minimum ratio of likeness, characters compared."""

RECORD_LOST = "record_lost"
"""The kind of the note left to later sessions."""

_DIRECTIVE = "@"  # before the bare text of a line that may be a directive
_LAST = 1 << 62  # greater than any ordinal


class ScreenWords:
    """prefix: the character that starts a directive.

    leave_note: leaves a note to later sessions (relay.storage.progress); None: there is no record to lose.
    joined:     the bytes of output that earlier sessions have read; -1: there were none.

    keeps: readings are kept, not published.
    """

    def __init__(
        self, prefix: str, leave_note: Callable[..., None] | None = None, *, joined: int = -1
    ) -> None:
        self.keeps = False
        self._prefix = prefix
        self._leave_note = leave_note
        self._joined = Place(TERMINAL, joined, _LAST)
        self._since = NOWHERE  # nothing shown up to there counts
        self._lines = Alignment(_line_alike)
        self._directives = Alignment(_directive_alike)
        self._kept: deque[Reading] = deque(maxlen=MOST)
        self._ended = -1, -1  # bytes of output up to the ends of the last two turns

    def take(self, reading: Reading) -> list[Event]:
        if not (reading.lines or reading.directives or reading.passed_over):
            return []
        if not self.keeps:
            return self._new(reading)
        self._kept.append(reading)
        for line in reading.lines:
            if text := self._bare(line.text):
                self._lines.show(text, line.place)
        for directive in reading.directives:
            self._directives.show(_key(directive), directive.place)
        return []

    def keep(self) -> None:
        self.keeps = True
        self._kept.clear()

    def note(self, event: Event) -> None:
        if self._leave_note is None:
            return
        match event:
            case AgentSaid(lines, place) if place.source == TRANSCRIPT:
                for text in filter(None, map(self._bare, lines)):
                    self._lines.record(text)
            case DirectiveRead(directive) if directive.place.source == TRANSCRIPT:
                self._directives.record(_key(directive))
            case EarlierWords(lines, directives):
                for each in (*lines, *map(DirectiveRead, directives)):
                    self.note(each)

    def confirm(self, up_to: int, *, silent: bool, cut: bool) -> None:
        """Note that the record was read up to the end of a turn, which the screen has shown.

        up_to:  bytes of output by then.
        silent: the record has nothing of the turn, and so proves nothing.
        cut:    the user has interrupted the turn.
        """
        if self.keeps:
            if not silent:  # the record reaches past the turn before the last one
                known = Place(TERMINAL, self._ended[0], _LAST)
                self._pass_to(known)
                self._kept = deque((each for each in self._kept if _end(each) > known), maxlen=MOST)
                for each in (self._lines, self._directives):
                    each.paired = {place for place in each.paired if place > known}
                if cut:
                    self._pass_to(Place(TERMINAL, up_to, _LAST))
            self._ended = (self._ended[1], up_to)

    def turn(self) -> None:
        """Note that the screen shows the end of a turn: the agent may soon repeat what it said."""
        self._lines.turn()
        self._directives.turn()

    def lose(self, why: str, up_to: int) -> None:
        """Note that the record is lost, for later sessions, too. up_to: bytes of output so far."""
        for each in (self._lines, self._directives):
            each.settle()
            each.linger()
        place = max(self._lines.last, self._directives.last)
        self._since = place if self.keeps else Place(TERMINAL, up_to, _LAST)
        if self._leave_note is not None:
            self._leave_note(
                RECORD_LOST,
                why=why,
                since=self._since.offset,
                ordinal=self._since.ordinal,
                lines=self._lines.recorded,
                directives=self._directives.recorded,
            )

    def resume(self, lost: Mapping[str, Any]) -> None:
        """Continue from where an earlier session lost the record."""
        self._since = Place(TERMINAL, lost["since"], lost["ordinal"])
        for text in lost["lines"]:
            self._lines.record(text)
        for text in lost["directives"]:
            self._directives.record(text)
        self.turn()

    def release(self) -> list[Event]:
        """Stop keeping readings; return the events for what was kept and is not in the record."""
        self.keeps = False
        events = [event for reading in self._kept for event in self._new(reading)]
        self._kept.clear()
        return events

    def _new(self, reading: Reading) -> list[Event]:
        """Return the events for `reading` without what was, or may have been, in the record."""
        if self._leave_note is None:
            return self._events(reading.lines, reading.directives, reading.passed_over)
        passed = [each for each in reading.passed_over if each.line.place > self._since]
        directives: list[Directive] = []
        for directive in reading.directives:
            key, place = _key(directive), directive.place
            if place in self._directives.paired:
                continue
            if place <= self._since:
                passed.append(PassedOver(_line(directive, reading.lines, self._prefix), "record"))
            elif self._directives.has(key, before=False):
                continue
            elif self._directives.has(key) or self._directives.has_alike(key):
                passed.append(PassedOver(_line(directive, reading.lines, self._prefix), "record"))
            else:
                directives.append(directive)
        left_out = {each.place for each in reading.directives} - {each.place for each in directives}
        lines = [line for line in reading.lines if self._is_new(line) and line.place not in left_out]
        return self._events(lines, directives, passed)

    def _events(
        self, lines: Sequence[Line], directives: Sequence[Directive], passed: Sequence[PassedOver]
    ) -> list[Event]:
        joined = self._joined
        before = said(
            [line for line in lines if line.place <= joined],
            [directive for directive in directives if directive.place <= joined],
            self._prefix,
        )
        since = said(
            [line for line in lines if line.place > joined],
            [directive for directive in directives if directive.place > joined],
            self._prefix,
        )
        found = [EarlierWords.of(before)] if before else []
        return found + since + [DirectivePassedOver(each) for each in passed if each.line.place > joined]

    def _is_new(self, line: Line) -> bool:
        text = self._bare(line.text)
        return line.place > self._since and not (
            text and (self._lines.has(text) or self._lines.has_alike(text))
        )

    def _bare(self, text: str) -> str:
        """Return `text` bare, with a mark on directive lines, as two of those may differ only slightly."""
        return _DIRECTIVE * (self._prefix in text) + bare(text)

    def _pass_to(self, place: Place) -> None:
        self._lines.pass_to(place)
        self._directives.pass_to(place)


def bare(text: str) -> str:
    """Return the characters of `text` that are drawn as said, without marks and bullets."""
    return "".join(filter(str.isalnum, text))


def _key(directive: Directive) -> str:
    return f"{directive.namespace}:{directive.target} {bare(directive.body) or directive.body}"


def _line_alike(recorded: str, shown: str) -> str | None:
    if _DIRECTIVE in (recorded[:1], shown[:1]):
        return None
    if len(shown) >= LONG and shown in recorded:
        return recorded.replace(shown, "", 1)  # the rest is in the next row
    joined = len(recorded) >= LONG and recorded in shown
    return "" if joined or _are_alike(recorded, shown) else None


def _directive_alike(recorded: str, shown: str) -> str | None:
    (to, _, one), (other_to, _, other) = recorded.partition(" "), shown.partition(" ")
    cut = min(len(one), len(other)) >= LONG and (one.startswith(other) or other.startswith(one))
    return "" if to == other_to and (cut or _are_alike(one, other)) else None


def _are_alike(one: str, other: str) -> bool:
    one, other = one[:COMPARED], other[:COMPARED]
    # Different lines in one language share letters, but seldom three in a row.
    pieces, others = _pieces(one), _pieces(other)
    if 2 * len(pieces & others) < LIKENESS / 2 * (len(pieces) + len(others)):
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= LIKENESS


@lru_cache(4 * ALIKE)  # as many as `Alignment.settle` compares with one another
def _pieces(text: str) -> frozenset[str]:
    return frozenset(text[at : at + 3] for at in range(len(text) - 2))


def _end(reading: Reading) -> Place:
    places = [each.place for each in reading.lines] + [each.place for each in reading.directives]
    return max(places + [each.line.place for each in reading.passed_over], default=NOWHERE)


def _line(directive: Directive, lines: Sequence[Line], prefix: str) -> Line:
    """Return the line that ends `directive`, or one made of it if that is in another reading."""
    text = f"{prefix}{directive.namespace}:{directive.target} {directive.body}"
    return next(
        (each for each in lines if each.place == directive.place), Line(text, directive.time, directive.place)
    )
