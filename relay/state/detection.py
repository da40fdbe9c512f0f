"""Detection: the state shown by an agent's screen and title, from the profile's rules and the input."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from relay.agents.profile import Profile, PromptKind, StateName, StateRule
from relay.dataclass import dataclass
from relay.state.input_box import find_input

SHOWN = 8
"""Decisive lines kept to show to the user; the longest list of options seen in a dialog has five."""


_INPUT: tuple[tuple[StateName, str], ...] = (("draft", "text in the input"), ("ready", "empty input"))


@dataclass(frozen=True, slots=True)
class ScreenSnapshot:
    """The screen at one moment: the visible rows from the top, without trailing blanks, and the title.

    cursor: (x, y), zero-based; None if unknown.
    suggested: a text behind the cursor at the start of the input is the agent's suggestion, not the user's.
    """

    rows: tuple[str, ...]
    title: str = ""
    cursor: tuple[int, int] | None = None
    suggested: bool = True


@dataclass(frozen=True, slots=True)
class Detection:
    """The verdict of a rule. rule: its name; lines: the rows that matched it, stripped."""

    state: StateName
    kind: PromptKind | None
    rule: str
    lines: tuple[str, ...]


def detect(
    screen: ScreenSnapshot, profile: Profile, states: Container[str] | None = None
) -> Detection | None:
    """Return the verdict of the first rule that holds, or else of the input; None without either.

    states: look only for these.
    """
    drawn = [row for row in screen.rows if row.strip()]
    title = [screen.title] if screen.title.strip() else []
    for rule in profile.states:
        if states is not None and rule.state not in states:
            continue
        if rule.title and not any(pattern.search(screen.title) for pattern in rule.title):
            continue
        region = {"title": title, "bottom": drawn[-rule.rows :], "screen": drawn}[rule.region]
        if (lines := _holds(rule, region)) is not None:
            return Detection(rule.state, rule.kind, rule.name, lines)
    if profile.input is None:
        return None
    box = find_input(screen.rows, profile.input, screen.cursor, suggested=screen.suggested)
    if box is None:
        return None
    state, name = _INPUT[not box.text]
    return Detection(state, None, name, box.lines[:SHOWN]) if states is None or state in states else None


def _holds(rule: StateRule, region: Sequence[str]) -> tuple[str, ...] | None:
    """Return the rows that make `rule` hold, from the top, or None if it does not hold."""
    if not region:
        return None
    rows = range(len(region))
    wanted = [(rule.first, rows[:1]), (rule.last, rows[-1:]), (rule.any, rows)]
    wanted += [((pattern,), rows) for pattern in rule.all]
    found = {_row(patterns, region, among) for patterns, among in wanted if patterns}
    if None in found or _row(rule.none, region, rows) is not None:
        return None
    return tuple(row.strip() for y, row in enumerate(region) if y in found)[-SHOWN:]


def _row(patterns: Sequence[re.Pattern[str]], region: Sequence[str], among: range) -> int | None:
    """Return the lowest row `among` these that matches one of `patterns`: new text is at the bottom."""
    return next((y for y in reversed(among) if any(each.search(region[y]) for each in patterns)), None)
