"""Detection: the state that an agent's screen and title show, by the prioritised rules of its profile."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from relay.agents.profile import Profile, PromptKind, StateName, StateRule

SHOWN = 8
"""Deciding lines that are kept for people: the longest list of options seen in a dialog has five."""


@dataclass(frozen=True, slots=True)
class ScreenSnapshot:
    """The visible rows from the top, without trailing blanks, and the title at one moment."""

    rows: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """The result of a rule. `rule`: its name; `lines`: the rows that made it hold, stripped."""

    state: StateName
    kind: PromptKind | None
    rule: str
    lines: tuple[str, ...]


def detect(
    screen: ScreenSnapshot, profile: Profile, states: Container[str] | None = None
) -> Detection | None:
    """Return the result of the first rule that holds, of all the profile's rules or those for `states`."""
    drawn = [row for row in screen.rows if row.strip()]
    title = [screen.title] if screen.title.strip() else []
    for rule in profile.states:
        if states is not None and rule.state not in states:
            continue
        if rule.title and not any(pattern.search(screen.title) for pattern in rule.title):
            continue
        match rule.region:
            case "title":
                region = title
            case "bottom":
                region = drawn[-rule.rows :]
            case "screen":
                region = drawn
        lines = _holds(rule, region)
        if lines is not None:
            return Detection(rule.state, rule.kind, rule.name, lines)
    return None


def _holds(rule: StateRule, region: Sequence[str]) -> tuple[str, ...] | None:
    """Return the rows that make `rule` hold, in their order; None if it does not hold."""
    if not region:
        return None
    found: set[int] = set()
    if rule.first:
        if _row(rule.first, region[:1]) is None:
            return None
        found.add(0)
    if rule.last:
        if _row(rule.last, region[-1:]) is None:
            return None
        found.add(len(region) - 1)
    for pattern in rule.all:
        row = _row((pattern,), region)
        if row is None:
            return None
        found.add(row)
    if rule.any:
        row = _row(rule.any, region)
        if row is None:
            return None
        found.add(row)
    if _row(rule.none, region) is not None:
        return None
    return tuple(region[row].strip() for row in sorted(found))[-SHOWN:]


def _row(patterns: Sequence[re.Pattern[str]], region: Sequence[str]) -> int | None:
    """Return the lowest row that one of `patterns` matches: new text is drawn at the bottom."""
    for row in range(len(region) - 1, -1, -1):
        if any(pattern.search(region[row]) for pattern in patterns):
            return row
    return None
