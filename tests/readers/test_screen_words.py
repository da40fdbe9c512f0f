"""What a screen shows while the agent has a record of its own: heard only if the record is lost."""

from __future__ import annotations

from relay.directives.directive import Directive
from relay.directives.events import AgentSaid, DirectiveRead
from relay.directives.grammar import Grammar
from relay.directives.pipeline import Reading
from relay.directives.screen_words import MOST, ScreenWords
from relay.eventbus import Event
from relay.place import TERMINAL, Place
from relay.readers.line import Line


def reading(offset: int) -> Reading:
    """Two lines and a directive that were read when the agent had written `offset` bytes."""
    text = f"@relay:Bob {offset}"
    lines = [Line("Well.", 0.0, Place(TERMINAL, offset)), Line(text, 0.0, Place(TERMINAL, offset, 1))]
    grammar = Grammar(lambda _: True)
    found = [each for line in lines for each in grammar.line(line)]
    return Reading(lines, found + grammar.turn_end(0.0))


def bodies(events: list[Event]) -> list[str]:
    directives: list[Directive] = [each.directive for each in events if isinstance(each, DirectiveRead)]
    return [each.body for each in directives]


def test_what_is_read_is_heard_at_once_where_there_is_no_record() -> None:
    words = ScreenWords("@")
    events = words.take(reading(10), again=False)
    assert bodies(events) == ["10"]
    assert [each.lines for each in events if isinstance(each, AgentSaid)] == [("Well.", "@relay:Bob 10")]


def test_what_is_kept_is_heard_in_order_once_the_record_is_lost() -> None:
    words = ScreenWords("@")
    words.forget(keeps=True)
    assert words.take(reading(10), again=True) == []
    assert words.take(reading(20), again=False) == []
    released = words.release()
    assert bodies(released) == ["10", "20"]
    assert [each.again for each in released if isinstance(each, AgentSaid)] == [True, False]
    assert bodies(words.take(reading(30), again=False)) == ["30"]
    assert words.release() == []


def test_what_the_record_has_is_forgotten() -> None:
    words = ScreenWords("@")
    words.forget(keeps=True)
    words.take(reading(10), again=False)
    words.forget(keeps=True)
    words.take(reading(20), again=False)
    assert bodies(words.release()) == ["20"]


def test_what_the_record_had_before_it_was_lost_is_not_heard_by_a_later_session() -> None:
    """It reads all of the output again."""
    words = ScreenWords("@")
    words.since = 20
    events = [each for offset in (10, 20, 30) for each in words.take(reading(offset), again=True)]
    assert bodies(events) == ["30"]
    assert [each.lines for each in events if isinstance(each, AgentSaid)] == [("Well.", "@relay:Bob 30")]


def test_no_more_than_the_last_readings_are_kept() -> None:
    words = ScreenWords("@")
    words.forget(keeps=True)
    for offset in range(MOST + 50):
        words.take(reading(offset), again=False)
    assert bodies(words.release()) == [str(offset) for offset in range(50, MOST + 50)]
