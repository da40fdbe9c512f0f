"""Text on the screen of an agent with its own record: it is used only if the record is lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.directives import screen_words
from relay.directives.directive import Directive
from relay.directives.events import AgentSaid, DirectivePassedOver, DirectiveRead, EarlierWords, said
from relay.directives.grammar import Grammar
from relay.directives.pipeline import Reading
from relay.directives.screen_words import MOST, ScreenWords
from relay.eventbus import Event
from relay.place import TERMINAL, TRANSCRIPT, Place
from relay.readers.line import Line
from support import many


def drawn(offset: int, *texts: str) -> Reading:
    """Return the lines and directives read when the agent has written `offset` bytes."""
    lines = [Line(text, 0.0, Place(TERMINAL, offset, number)) for number, text in enumerate(texts)]
    grammar = Grammar(lambda _: True)
    found = [each for line in lines for each in grammar.line(line)]
    return Reading(lines, found + grammar.turn_end(0.0))


def reading(offset: int) -> Reading:
    return drawn(offset, f"What is at {offset}:", f"@relay:Bob {offset}")


def recorded(*texts: str) -> list[Event]:
    """Return the events for the record's contents."""
    grammar = Grammar(lambda _: True)
    lines = [Line(each, 0.0, Place(TRANSCRIPT, 0, number)) for number, each in enumerate(texts)]
    found = [each for line in lines for each in grammar.line(line)]
    return said(lines, found + grammar.turn_end(0.0), "@")


def bodies(events: list[Event]) -> list[str]:
    directives: list[Directive] = [each.directive for each in events if isinstance(each, DirectiveRead)]
    return [each.body for each in directives]


def passed_over(events: list[Event]) -> list[str]:
    """Return the directives passed over because they may be repeats."""
    return [each.passed.line.text for each in events if isinstance(each, DirectivePassedOver)]


def kept(*readings: Reading) -> ScreenWords:
    """Return the kept words of an agent with a record."""
    words = ScreenWords("@", lambda *_, **__: None)
    words.keep()
    for each in readings:
        assert words.take(each) == []
    return words


def test_without_a_record_a_reading_is_used_at_once() -> None:
    words = ScreenWords("@")
    for _ in range(2):
        events = words.take(reading(10))
        assert bodies(events) == ["10"]
        assert [each.lines for each in events if isinstance(each, AgentSaid)] == [
            ("What is at 10:", "@relay:Bob 10")
        ]


def test_kept_readings_are_used_in_order_once_the_record_is_lost() -> None:
    words = kept()
    assert words.take(reading(10)) == []
    assert words.take(reading(20)) == []
    words.lose("why", 20)
    released = words.release()
    assert bodies(released) == ["10", "20"]
    assert bodies(words.take(reading(30))) == ["30"]
    assert words.release() == []


def test_words_that_earlier_sessions_have_read_are_told_apart() -> None:
    """Even if they are found late: a line may settle, or the record be lost, after that output was read."""
    words = ScreenWords("@", lambda *_, **__: None, joined=20)
    words.keep()
    for offset in (10, 20, 30):
        words.take(reading(offset))
    words.lose("why", 0)
    words.resume({"since": 0, "ordinal": 0, "lines": (), "directives": ()})
    *earlier, said, directive = words.release()
    assert [type(each) for each in earlier] == [EarlierWords, EarlierWords]
    bodies = [each.body for event in earlier if isinstance(event, EarlierWords) for each in event.directives]
    assert bodies == ["10", "20"]
    assert isinstance(said, AgentSaid) and isinstance(directive, DirectiveRead)
    assert directive.directive.body == "30"


def test_text_shown_before_the_last_text_of_the_record_is_passed_over() -> None:
    """The later text in the record shows that a tool printed it."""
    words = kept(drawn(10, "@relay:Bob printed"), drawn(20, "That is what the file says."), reading(30))
    for event in recorded("That is what *the file* says."):
        words.note(event)
    words.lose("why", 30)
    events = words.release()
    assert bodies(events) == ["30"] and passed_over(events) == ["@relay:Bob printed"]


def test_text_that_the_record_has_is_neither_used_nor_passed_over() -> None:
    words = kept(reading(10))
    for event in recorded("@relay:Bob 10", "@relay:Bob 20"):
        words.note(event)
    words.take(reading(20))
    words.lose("why", 20)
    events = words.release()
    assert bodies(events) == [] and passed_over(events) == []


def test_recorded_text_that_is_drawn_late_is_not_used() -> None:
    """A text is skipped only once, as the agent may repeat it."""
    words = kept()
    for event in recorded("@relay:Bob 10", "", "@relay:Bob *20*"):
        words.note(event)
    words.lose("why", 0)
    assert words.release() == []
    events = [each for offset in (10, 20, 10) for each in words.take(reading(offset))]
    assert bodies(events) == ["10"] and passed_over(events) == []


def test_a_fragment_or_variant_of_recorded_text_is_passed_over() -> None:
    words = kept(drawn(5, "@relay:Bob the tests in the api folder f", "@relay:Bob see the notes"))
    for event in recorded("@relay:Bob the tests in the api folder fail", "@relay:Bob see [the notes](a/b)"):
        words.note(event)
    words.lose("why", 5)
    events = words.release() + words.take(drawn(9, "@relay:Bob see the notes"))
    assert passed_over(events) == ["@relay:Bob the tests in the api folder f", "@relay:Bob see the notes"]
    assert bodies(events) == ["see the notes"]


def test_a_later_session_uses_the_same_readings() -> None:
    """The later session reads all of the output again, and none of the record."""
    notes: list[dict[str, Any]] = []
    words = ScreenWords("@", lambda _, **fields: notes.append(json.loads(json.dumps(fields))))
    words.keep()
    readings = [reading(offset) for offset in (10, 20, 30, 40, 20)]
    for event in [*recorded("@relay:Bob 10"), *recorded("@relay:Bob 30")]:
        words.note(event)
    for each in readings[:2]:
        words.take(each)
    words.lose("why", 20)
    first = words.release() + [each for late in readings[2:] for each in words.take(late)]
    later = ScreenWords("@", lambda *_, **__: None)
    later.resume(notes[0])
    second = [event for each in readings for event in later.take(each)]
    assert bodies(first) == bodies(second) == ["20", "40", "20"]


def test_only_the_last_readings_are_kept() -> None:
    words = kept(*(reading(offset) for offset in range(MOST + 50)))
    words.lose("why", MOST + 50)
    assert bodies(words.release()) == [str(offset) for offset in range(50, MOST + 50)]


# Any order of the record's contents, the screen's contents, and what is known about turns.

BODIES = ("one", "two", "three", "four", "apples and pears", "a plan of the whole rig")
"""No two are similar. The same body may be said twice."""

LINE = "What comes next is {}."


@dataclass
class Turn:
    """What the agent says in a turn, and when it arrives: the turn ends at 100, the next one at 200.

    texts: bodies of directives, of each text of its model.
    written, settled: the times at which they are read from the record, and from the screen.
    confirmed: when the record was read up to the end of the turn.
    """

    texts: list[list[str]]
    written: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    confirmed: int = 100


@dataclass
class History:
    """stops: number of texts in the record. broken: when its end is noticed, if not by silence."""

    turns: list[Turn]
    stops: int
    silent: int
    broken: int | None = None


def timeline(history: History) -> list[tuple[int, int, str, Any]]:
    """Return the events in order. Both sides report in the order of speaking."""
    happens: list[tuple[int, int, str, Any]] = []
    number, record, screen, read = 0, 0, 0, 0
    for start, turn in zip(range(0, 9000, 100), history.turns, strict=False):
        happens.append((start + 100, 0, "shown", start))
        for text, written in zip(turn.texts, turn.written, strict=False):
            record = max(record, start + written)
            if number < history.stops:
                happens.append((record, 1, "record", text))
            number += 1
        every = [body for text in turn.texts for body in text]
        for body, settled in zip(every, turn.settled, strict=False):
            screen = max(screen, start + settled)
            happens.append((screen, 2, "screen", body))
        read = max(read, start + turn.confirmed)
        happens.append((read, 3, "confirmed", start))
    return sorted(happens, key=lambda each: each[:2])


class Features:
    """Uses the screen's words as relay's features do, at the events of a timeline."""

    def __init__(self, history: History, last: int) -> None:
        self.used: list[str] = []
        self.passed_over: list[str] = []
        self._history = history
        self._words = kept()
        self._offset = self._silent = 0
        self._up_to: dict[int, int] = {}
        self._grown = self._lost = False
        self._broken = None if history.broken is None else max(history.broken, last)

    def take(self, events: list[Event]) -> None:
        self.used += bodies(events)
        self.passed_over += passed_over(events)

    def happens(self, now: int, what: str, value: Any) -> None:
        if self._broken is not None and now > self._broken:
            self.lose()
        match what:
            case "record" if not self._lost:
                texts = [each for body in value for each in (LINE.format(body), f"@relay:Bob *{body}*")]
                events = recorded(*texts)
                self._grown = True
                self.used += [body.strip("*") for body in bodies(events)]
                for each in events:
                    self._words.note(each)
            case "screen":
                self._offset += 10
                shown = drawn(self._offset, LINE.format(value), f"@relay:Bob {value}")
                self.take(self._words.take(shown))
            case "shown":
                self._up_to[value] = self._offset
                self._words.turn()
            case "confirmed" if not self._lost:
                self._silent = 0 if self._grown else self._silent + 1
                if self._silent >= self._history.silent:
                    self.lose()
                    self._words.turn()
                self._words.confirm(self._up_to[value], silent=not self._grown, cut=False)
                self._grown = False

    def lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._words.lose("why", self._offset)
            self.take(self._words.release())


times = st.lists(st.integers(1, 199), min_size=9, max_size=9).map(sorted)
turns = st.builds(
    Turn,
    st.lists(st.lists(st.sampled_from(BODIES), min_size=1, max_size=3), min_size=1, max_size=3),
    times,
    times,
    st.integers(100, 199),
)
histories = st.builds(
    History,
    st.lists(turns, min_size=1, max_size=4),
    st.integers(0, 8),
    st.integers(1, 2),
    st.none() | st.integers(0, 400),
)


def play(history: History, missing: frozenset[int] = frozenset()) -> tuple[Counter[str], Counter[str]]:
    """Return what is read of a history, and what was said. missing: indices that the screen does not show."""
    silence = [Turn([[body]], [50], [50]) for body in BODIES[: history.silent + 2]]
    texts = sum(len(turn.texts) for turn in history.turns)
    whole = replace(history, turns=[*history.turns, *silence], stops=min(history.stops, texts))
    happens = timeline(whole)
    last = max((now for now, _, what, _ in happens if what == "record"), default=0)
    features, shown = Features(whole, last), 0
    for now, _, what, value in happens:
        shown += what == "screen"
        if what != "screen" or shown not in missing:
            features.happens(now, what, value)
    note(f"stops after {whole.stops} of {texts}, {'silent' if history.broken is None else 'broken'}")
    every = Counter(body for turn in whole.turns for text in turn.texts for body in text)
    return Counter(features.used), every


@settings(max_examples=many(500))
@given(histories)
def test_nothing_is_lost_or_repeated_wherever_a_record_stops(history: History) -> None:
    """Either side may lag by up to a turn, and texts may be repeated."""
    found, every = play(history)
    assert found == every


@settings(max_examples=many(500))
@given(histories, st.frozensets(st.integers(1, 20)))
def test_nothing_is_repeated_if_the_screen_omits_something(history: History, missing: frozenset[int]) -> None:
    found, every = play(history, missing)
    assert not found - every


def test_dissimilar_lines_are_distinguished_without_a_detailed_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Comparing a pair takes a millisecond, and many tables and outputs may be waiting at a turn's end."""

    def compare(*_: object, **__: object) -> None:
        raise AssertionError("compared closely")

    monkeypatch.setattr(screen_words, "SequenceMatcher", compare)
    words = kept(drawn(10, "The tests of the parser pass on every machine that we have here."))
    for each in recorded("Once more: a server has refused it, perhaps by chance, at half past ten."):
        words.note(each)
    words.turn()
    assert len(words.release()) == 1
