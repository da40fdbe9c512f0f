"""State rules: regions, conditions, priorities, and the reason they report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.agents.profile import Profile, StateRule
from relay.state.detection import SHOWN, ScreenSnapshot, detect


def _rule(name: str = "it", **fields: object) -> StateRule:
    patterns = {
        key: tuple(re.compile(text) for text in value) if isinstance(value, list) else value
        for key, value in fields.items()
    }
    return StateRule(name, **{"state": "working", **patterns})  # type: ignore[arg-type]


def _detect(snapshot: ScreenSnapshot, *rules: StateRule) -> str | None:
    found = detect(snapshot, Profile("mine", Path("mine.toml"), states=rules))
    return None if found is None else found.rule


ROWS = ("top", "", "  one ", "two", "  ", "three", "")


CONDITIONS = [
    ({"all": ["top", "three"]}, True),
    ({"all": ["top", "four"]}, False),
    ({"any": ["four", "two"]}, True),
    ({"any": ["four", "five"]}, False),
    ({"all": ["two"], "none": ["four"]}, True),
    ({"all": ["two"], "none": ["top"]}, False),
    ({"last": ["two", "three"]}, True),
    ({"last": ["^two"]}, False),
    ({"first": ["^top"]}, True),
    ({"first": ["^two"]}, False),
    # Blank rows do not count.
    ({"region": "bottom", "rows": 3, "first": ["^  one"]}, True),
    ({"region": "bottom", "rows": 2, "all": ["one"]}, False),
    ({"region": "bottom", "rows": 99, "all": ["top"]}, True),
    ({"region": "title", "all": ["^✳ "]}, True),
    ({"region": "title", "all": ["top"]}, False),
    ({"all": ["two"], "title": ["✳"]}, True),
    ({"all": ["two"], "title": ["^$"]}, False),
]


def test_a_rule_matches_if_its_conditions_hold(subtests: pytest.Subtests) -> None:
    for fields, holds in CONDITIONS:
        with subtests.test(repr(fields)):
            assert (_detect(ScreenSnapshot(ROWS, "✳ Mending"), _rule(**fields)) == "it") is holds


def test_a_missing_title_is_empty_and_not_a_region() -> None:
    assert _detect(ScreenSnapshot(ROWS), _rule(region="title", all=[""])) is None
    assert _detect(ScreenSnapshot(ROWS), _rule(all=["two"], title=["^$"])) == "it"


def test_no_rule_matches_an_empty_screen() -> None:
    assert _detect(ScreenSnapshot(("", "   ")), _rule(all=[""])) is None


def test_the_first_matching_rule_decides() -> None:
    rules = (_rule("a", all=["four"]), _rule("b", all=["two"]), _rule("c", all=["top"]))
    assert _detect(ScreenSnapshot(ROWS), *rules) == "b"


def test_the_matching_lines_are_reported_in_screen_order() -> None:
    rule = _rule(state="prompting", kind="question", all=["three", "one"], none=["four"])
    found = detect(ScreenSnapshot(ROWS), Profile("mine", Path("mine.toml"), states=(rule,)))
    assert found is not None
    assert (found.state, found.kind, found.lines) == ("prompting", "question", ("one", "three"))


def test_the_lowest_of_several_matching_rows_is_reported() -> None:
    rows = ("x 1", "x 2", "x 3")
    found = detect(ScreenSnapshot(rows), Profile("mine", Path("mine.toml"), states=(_rule(all=["x"]),)))
    assert found is not None and found.lines == ("x 3",)


def test_the_number_of_reported_lines_is_limited() -> None:
    rows = tuple(f"row {number}." for number in range(20))
    rule = _rule(all=[f"row {number}\\." for number in range(20)])
    found = detect(ScreenSnapshot(rows), Profile("mine", Path("mine.toml"), states=(rule,)))
    assert found is not None and found.lines == rows[-SHOWN:]


def test_detection_can_be_limited_to_some_states() -> None:
    rules = (_rule("failed", state="failed", all=["two"]), _rule("ready", state="ready", all=["two"]))
    profile = Profile("mine", Path("mine.toml"), states=rules)
    found = detect(ScreenSnapshot(ROWS), profile, ("ready",))
    assert found is not None and found.rule == "ready"
