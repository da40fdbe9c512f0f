"""The matcher of a rule, which selects the events that the rule is for.

    "Bash", "Edit|Write"                   exact names          ─┐ compared with the event's `matched` field
    "mcp__.*"                              unanchored regex     ─┘
    {"tool_name": "Bash", "cwd": "/src/*"} every field matches: a glob, or a regex for all of it (`^...$`)

A tool matches under each of its names (relay.rules.tools); a regex for it, under those that its author means
(`_of_tool`). Regexes come from the user's files, but the text to match comes from agents: a match may take
`MATCH_TIMEOUT`, without the GIL.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from relay.dataclass import dataclass, replace
from relay.names import did_you_mean
from relay.rules import condition
from relay.rules.event import EventType, RuleEvent
from relay.rules.tools import aliases, claude_names, close_to, known
from relay.text import one_line

MATCH_TIMEOUT = 0.1
"""Maximum seconds for one match of a regular expression; intended ones take microseconds."""

LONGEST = 1 << 20
"""Maximum length of a text to compare with a pattern, in characters."""

_TOOL = "tool_name"
_NAMES = re.compile(r"[A-Za-z0-9_\- ,|]*\Z")  # Claude Code's documentation of matchers
_NOBODYS = "\ue000" * 8  # a name that no tool has
_PYTHONS = re.compile(
    r"\(\?(?:[a-z]+\)|P)|\\[AZ]"
)  # syntax that JavaScript's regular expressions do not have


class BadMatcher(ValueError):
    """A matcher that is wrong; the message says how, and what to do."""


class Undecided(Exception):
    """A text is too long to match, or matching takes too long; the message says which."""


Test = Callable[[str], bool]
"""Returns True if a text matches; raises Undecided."""


class Part(Protocol):
    """One part of a matcher, which must match."""

    def matches(self, event: RuleEvent) -> bool: ...


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
        return self.test(_text(value))


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled matcher: all of `parts` must match. `str()` returns the text in the file."""

    written: str
    parts: tuple[Part, ...]

    def matches(self, event: RuleEvent) -> bool:
        """Return True if the rule is for `event`. Raise Undecided."""
        return all(part.matches(event) for part in self.parts)

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
            if not event.matched:
                return EVERYTHING
            return Matcher(value, (Field((event.matched,), _names(value, event.matched)),))
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


def with_condition(found: Matcher, value: object, event: EventType, directory: Path) -> Matcher:
    """Return the matcher of a rule that also has the condition `value` (`if`). Raise BadMatcher.

    directory: that of the rule's file.
    """
    if value in (None, ""):
        return found
    if not isinstance(value, str):
        raise BadMatcher(f'if is {_shown(value)}; write a string, such as "Bash(git push *)".')
    if event.matched != _TOOL:
        raise BadMatcher(f"{event.name} is not about a tool, so the condition `if` never holds.")
    try:
        part = condition.parse(value, directory, lambda text: _searched(text, full=True))
    except ValueError as error:
        raise BadMatcher(f"the condition {_shown(value)} never holds: {error}") from None
    return replace(found, written=f"{found.written} if {value}", parts=(*found.parts, part))


def doubts(value: object, event: EventType) -> list[str]:
    """Return why the matcher `value` is probably a mistake: the rule would match no event.

    Raise BadMatcher if it is wrong.
    """
    found = []
    match value:
        case "" | "*":
            pass
        case str() if event.matched == _TOOL and _NAMES.match(value):
            for tool in _split(value):
                found += _tool_doubts(tool)
        case str() if event.matched == _TOOL:
            found += _regex_doubts(value)
        case str() if event.values and not any(map(_names(value, event.matched), event.values)):
            found.append(f"{_shown(value)} matches none of {', '.join(event.values)}.")
        case dict():
            name = value.get(_TOOL)
            if isinstance(name, str) and "*" not in name and not name.startswith("^"):
                found += _tool_doubts(name)
            for field in dict.fromkeys(key.partition(".")[0] for key in value):
                if field not in event.fields:
                    hint = did_you_mean(field, event.fields)
                    found.append(
                        f"no agent reports {_shown(field)}, so no event will match. {hint}The fields are "
                        f"{', '.join(event.fields)}."
                    )
    return found


def condition_doubts(value: object) -> list[str]:
    """Return why the valid condition `value` is probably a mistake."""
    return _tool_doubts(value.partition("(")[0]) if isinstance(value, str) and value else []


def _tool_doubts(tool: str) -> list[str]:
    if meant := close_to(tool):
        case = " Case matters." if meant.casefold() == tool.casefold() else ""
        return [f"no tool is called {_shown(tool)}. Did you mean {_shown(meant)}?{case}"]
    if " " in tool.strip():
        return [f"no tool is called {_shown(tool)}; between names, write |."]
    server = tool.removeprefix("mcp__").rstrip("_")
    if tool.startswith("mcp__") and "__" not in server:
        return [f"{_shown(tool)} is an MCP server, not a tool; for all its tools, write mcp__{server}__.*"]
    return []


def _regex_doubts(text: str) -> list[str]:
    if (match := re.match(r"(\w+)\(.*\)\Z", text)) and match[1] in known():
        return [f'{_shown(text)} is a condition: write "matcher": {_shown(match[1])}, "if": {_shown(text)}.']
    found = []
    test = _names(text, _TOOL)
    if "mcp" not in text and not any(map(test, known())):
        found.append(f"{_shown(text)} matches none of the tools that relay knows.")
    if syntax := _PYTHONS.search(text):
        found.append(
            f"Claude Code does not know {syntax[0]} in a regular expression: its own hooks never run."
        )
    return found


def _path(key: str, value: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keys in `key`: `tool_input.command` is the command in the tool's input."""
    path = tuple(key.split("."))
    if not all(path):
        raise BadMatcher(f"matcher has the key {_shown(key)}; write the name of a field, such as tool_name.")
    return path


def _names(text: str, field: str) -> Test:
    """Return the test of a string matcher: exact names, else a regex for a part of the text."""
    if not _NAMES.match(text):
        found = _searched(text, full=False)
        return _of_tool(text, found) if field == _TOOL else found
    names = frozenset(_split(text))
    if not names:
        raise BadMatcher(f"matcher {_shown(text)} names nothing, so it never matches.")
    return _under_any_name(names.__contains__) if field == _TOOL else names.__contains__


def _under_any_name(test: Test) -> Test:
    return lambda tool: any(test(name) for name in aliases(tool))


def _of_tool(text: str, test: Test) -> Test:
    """Return the test of a regex for a tool: on those of its names that the author of `text` has in mind.

    These are the names from other agents that it spells out, else Claude Code's and the agent's own. A regex
    that matches any name, such as `^(?!Bash$)`, is for excluding some, and must not match by the agent's own.
    """
    excludes = test(_NOBODYS)

    def spelt(name: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None

    def fits(tool: str) -> bool:
        claudes = claude_names(tool)
        names = [name for name in aliases(tool) if name not in claudes and spelt(name)]
        if names:
            names += filter(spelt, claudes)
        else:
            names = [*claudes] if excludes else [*claudes, tool]
        return any(map(test, names))

    return fits


def _split(text: str) -> list[str]:
    return [name.strip() for name in re.split("[|,]", text) if name.strip()]


def _whole(key: str, value: object) -> Test:
    """Return the test of a value in an object matcher: equality, or a glob or regex for the whole text."""
    tool = _under_any_name if key == _TOOL else lambda test: test
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
        test = _searched(value, full=True)
        return _of_tool(value, test) if key == _TOOL else test
    if value == "*":
        return lambda text: True
    if key == _TOOL and "|" in value:
        raise BadMatcher(f"matcher has {_shown(value)} for {_TOOL}; to match one of several, write ^(A|B)$.")
    if "*" not in value and "?" not in value:
        return tool(value.__eq__)
    # Only `*` and `?` of fnmatch's syntax; its translation takes time linear in the text's length.
    pattern = re.compile(fnmatch.translate(value.replace("[", "[[]")))
    return tool(lambda text: pattern.match(_bounded(text)) is not None)


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
            return search(_bounded(subject), timeout=MATCH_TIMEOUT, concurrent=True) is not None
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
