"""The matcher of a rule, which selects the events that the rule is for.

    "Bash", "Edit|Write"                   exact names          ─┐ compared with the event's `matched` field
    "mcp__.*"                              unanchored regex     ─┘
    {"tool_name": "Bash", "cwd": "/src/*"} every field matches: a glob, or a regex for all of it (`^...$`)

A tool matches under each of its names (relay.rules.tools). Regexes come from the user's files, but the text
to match comes from agents: a match may take `PATIENCE`, without the GIL.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from relay.names import did_you_mean
from relay.rules.event import EventType, RuleEvent
from relay.rules.tools import aliases, in_other_case
from relay.text import one_line

PATIENCE = 0.1
"""Maximum seconds for one match of a regular expression; intended ones take microseconds."""

LONGEST = 1 << 20
"""Maximum length of a text to compare with a pattern, in characters."""

_TOOL = "tool_name"
_NAMES = re.compile(r"[A-Za-z0-9_\- ,|]*\Z")  # Claude Code's documentation of matchers


class BadMatcher(ValueError):
    """A matcher that is wrong; the message says how, and what to do."""


class Undecided(Exception):
    """A text is too long to match, or matching takes too long; the message says which."""


Test = Callable[[str], bool]
"""Returns True if a text matches; raises Undecided."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event that must match. path: its key, and the keys within it."""

    path: tuple[str, ...]
    test: Test

    def matches(self, event: RuleEvent) -> bool:
        value: Any = event.data
        for key in self.path:
            if not isinstance(value, Mapping) or value.get(key) is None:
                return False
            value = value[key]
        text = _text(value)
        return any(self.test(name) for name in (aliases(text) if self.path == (_TOOL,) else (text,)))


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled matcher: all of `fields` must match. `str()` returns the text in the file."""

    written: str
    fields: tuple[Field, ...]

    def matches(self, event: RuleEvent) -> bool:
        """Return True if the rule is for `event`. Raise Undecided."""
        return all(field.matches(event) for field in self.fields)

    def __str__(self) -> str:
        return self.written


EVERYTHING = Matcher("*", ())
"""Matches every event: no matcher, null, "", "*" or {}."""


def matcher(value: object, event: EventType) -> Matcher:
    """Return the matcher for `value` from a file. Raise BadMatcher if it is wrong.

    A string matches everything if the event has no field to compare it with, as in Claude Code.
    """
    match value:
        case None | "" | "*":
            return EVERYTHING
        case str():
            return Matcher(value, (Field((event.matched,), _names(value)),)) if event.matched else EVERYTHING
        case dict():
            if not value:
                return EVERYTHING
            fields = tuple(Field(_path(key, value), _whole(key, each)) for key, each in value.items())
            return Matcher(json.dumps(value, sort_keys=True), fields)
        case _:
            raise BadMatcher(
                f'matcher is {_shown(value)}; write a string, such as "Bash", or an object, such as '
                '{"tool_name": "Bash"}.'
            )


def doubts(value: object, event: EventType) -> list[str]:
    """Return why the valid matcher `value` is probably a mistake: the rule would match no event."""
    tools: list[object] = []
    found = []
    match value:
        case str() if event.matched == _TOOL and _NAMES.match(value):
            tools += _split(value)
        case dict():
            tools.append(value.get(_TOOL))
            for field in dict.fromkeys(key.partition(".")[0] for key in value):
                if field not in event.fields:
                    hint = did_you_mean(field, event.fields)
                    found.append(
                        f"no agent reports {_shown(field)}, so no event will match. {hint}The fields are "
                        f"{', '.join(event.fields)}."
                    )
    for tool in tools:
        if isinstance(tool, str) and (name := in_other_case(tool)):
            found.append(f"no tool is called {_shown(tool)}. Did you mean {_shown(name)}? Case matters.")
    return found


def _path(key: str, value: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keys in `key`: `tool_input.command` is the command in the tool's input."""
    path = tuple(key.split("."))
    if not all(path):
        raise BadMatcher(f"matcher has the key {_shown(key)}; write the name of a field, such as tool_name.")
    return path


def _names(text: str) -> Test:
    """Return the test of a string matcher: exact names, else a regex for a part of the text."""
    if not _NAMES.match(text):
        return _searched(text, full=False)
    names = frozenset(_split(text))
    if not names:
        raise BadMatcher(f"matcher {_shown(text)} names nothing, so it never matches.")
    return names.__contains__


def _split(text: str) -> list[str]:
    return [name.strip() for name in re.split("[|,]", text) if name.strip()]


def _whole(key: str, value: object) -> Test:
    """Return the test of a value in an object matcher: equality, or a glob or regex for the whole text."""
    if isinstance(value, bool | int | float):
        return _text(value).__eq__
    if not isinstance(value, str):
        raise BadMatcher(
            f"matcher has {_shown(value)} for {_shown(key)}; write a string, a number, true or false."
        )
    if len(value) > 1 and value.startswith("^"):
        if not value.endswith("$"):
            raise BadMatcher(
                f"matcher {_shown(value)} begins with ^ like a regular expression; end it with $."
            )
        return _searched(value, full=True)
    if value == "*":
        return lambda text: True
    if key == _TOOL and "|" in value:
        raise BadMatcher(f"matcher has {_shown(value)} for {_TOOL}; to match one of several, write ^(A|B)$.")
    if "*" not in value and "?" not in value:
        return value.__eq__
    # Only `*` and `?` of fnmatch's syntax; its translation takes time linear in the text's length.
    pattern = re.compile(fnmatch.translate(value.replace("[", "[[]")))
    return lambda text: pattern.match(_bounded(text)) is not None


def _searched(text: str, *, full: bool) -> Test:
    """Return the test of a regular expression: on a whole text (`.` matches newlines), or on a part."""
    import regex  # 3 MB; most rules do not need it

    try:
        pattern = regex.compile(text, regex.DOTALL if full else 0)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise BadMatcher(f"matcher {_shown(text)} is not a regular expression: {error}.") from None

    search = pattern.fullmatch if full else pattern.search

    def fits(subject: str) -> bool:
        try:
            return search(_bounded(subject), timeout=PATIENCE, concurrent=True) is not None
        except TimeoutError:
            raise Undecided(
                f"the regular expression {_shown(text)} takes too long; write a simpler one."
            ) from None

    return fits


def _bounded(text: str) -> str:
    if len(text) > LONGEST:
        raise Undecided(f"the text to match has {len(text)} characters; the limit is {LONGEST}.")
    return text


def _text(value: object) -> str:
    """Return a value of the payload as text to compare: strings unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _shown(value: object) -> str:
    return one_line(json.dumps(value), 80)
