"""A pattern file: read it, check it, and turn it into the fields of a Profile; errors name the line.

    patterns/NAME.toml            shipped: generic, shell, repl, fullscreen, and one per agent CLI
    <config>/patterns/updates/NAME.toml   in place of a shipped one (relay.agents.updates)
    <config>/patterns/NAME.toml   the user's: a new profile, or keys that override those of the above

Every key of a file, all but `name` optional:

    name        = "shell"
    commands    = ["claude"]      basenames (fnmatch patterns) that are always this program
    checked     = ["2.1.197"]     the versions of the agent that the file was checked with
    reader      = "auto"          auto | lines | screen
    decoration  = "..."           regex of what precedes the agent's own text in a line
    prefix      = "@"             the character that starts a directive
    inject      = "auto"          auto: typed into when safe; never: nothing is ever typed
    fullscreen  = false           its interface is on the alternate screen
    block_end   = "drawn"         drawn | blank | none: >>> is drawn as it is, as an empty row, not at all;
                                  joined: all lines of a paragraph are drawn as one
    settle      = 0               seconds for which it may draw a text differently from its final form
    prompts     = ["..."]         regexes of the unfinished line that ask for ordinary input
    decisions   = ["..."]         regexes of an explicit choice, in that line or the one above it
    questions   = ["..."]         regexes of the unfinished line that ask for a decision or a secret
    dialogs     = ["..."]         regexes of a row near the cursor, where a program draws its own input
    executes    = ["..."]         regexes of the unfinished line of a program that runs what is typed
    error_mark  = "^■ "           regex of what precedes the agent's own error on its screen

    [echo]                        how it draws the text typed into it
    backgrounds = ["373737"]      colours, RRGGBB; "any" is every one except the terminal's own
    foregrounds = ["cba6f7"]
    lines       = ["..."]         regexes of rows that are never the agent's own words

    [code]                        how it draws a line of a code fence: the same keys

    [submit]
    delay         = 0.3           seconds between a text and Enter
    while_working = "queues"      queues | interrupts | unknown: the outcome of a text typed meanwhile
    avoid         = "!/@"         characters that a typed text must not begin with

    [input]                       how its input is drawn: if empty, without a question or work, it is ready
    glyphs       = "❯>"           marks before the typed text; "": none, but a frame
    bullets      = "●"            marks that begin what it says, and never point at an option
    placeholders = ["..."]        regexes of what an empty input shows, if the cursor does not tell
    idle         = ["..."]        regexes of titles that show that it is not working

    [native]                      what it has besides its terminal
    hooks       = "relay"         whose hooks it has: a module of relay/agents/kinds
    transcript  = "relay"         whose transcripts it writes: likewise

    [resume]                      how its command line resumes a conversation (docs/PATTERNS.md)
    words       = ["--resume", "{id}"]   the words for that, directly after the program
    positional  = "prompt"        prompt | other | once: the meaning of words that belong to no option
    keep        = ["--model X"]   options that stay, written as in its --help: --verbose, --model X,
                                  --debug [X], --add-dir X...
    drop        = ["-c"]          options that name a conversation or the first prompt
    refuse      = ["-p", "mcp"]   options and commands with which there is nothing to resume

    [[states]]                    what the screen or the title shows in a state; the highest priority wins
    name        = "permission"    unique in the file; the user's rule replaces a shipped one of its name
    state       = "prompting"     working | ready | prompting | failed | draft (unsent text in its input)
    kind        = "permission"    with prompting: permission | plan_approval | question | other
    priority    = 100
    region      = "bottom 12"     screen | bottom N (rows that are not blank) | title
    all         = ["..."]         regexes, each of which is found in some row of the region
    any         = ["..."]         one of which is
    none        = ["..."]         none of which is
    first       = ["..."]         one of which is found in the region's first row
    last        = ["..."]         one of which is found in the region's last row
    title       = ["..."]         one of which is found in the title, "" if none is known
    dismiss     = "esc"           with prompting, for a dialog that reports a limit: the key that closes it
                                  and chooses nothing; supervision presses it while it waits for the reset

    [[errors]]                    the errors that end its turns; the first table that matches counts
    class       = "rate_limited"  rate_limited | unauthorized | billing | overloaded | context_full |
                                  network | other
    match       = ["..."]         regexes, one of which is found in the text of an error, without its mark
                                  and with single blanks between its words
    reset       = ["(?P<reset>...)"]  regexes of that text; the group is the time when a limit ends
    source      = "text"          text | code: what `match` applies to; a code is the agent's own name for
                                  the error, in its StopFailure hook or its record, and matched as a whole

    [[interactive]]               programs that count only while they run as a prompt
    names       = ["bash"]        basenames, as in commands
    words       = 0               words besides options with which it is a prompt; one more is a script
    run         = ["-c"]          options that run something and end
    stay        = ["-s"]          options that make it a prompt anyway
    value       = ["-o"]          options followed by a value

A profile's `prompts`, `decisions`, `questions` and `dialogs` are added to those of generic.toml; `executes`
is not inherited, so that a shell whose user opted in (`inject = "auto"`) can be typed into. The user's
`[[errors]]` come before the shipped ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from relay.agents import kinds
from relay.agents.profile import (
    ANY_COLOUR,
    AgentOption,
    BlockEnd,
    DismissKey,
    ErrorClass,
    ErrorRule,
    ErrorSource,
    InjectPolicy,
    Interactive,
    Positional,
    PromptKind,
    ReaderKind,
    StateName,
    StateRule,
    WhileWorking,
)
from relay.errors import ConfigError
from relay.settings import is_prefix
from relay.values import parse_toml

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")
_COLOUR = re.compile(r"#?([0-9A-Fa-f]{6})\Z")
_REGION = re.compile(r"(screen|title|bottom) ?([1-9]\d?)?\Z")
_OPTION = re.compile(
    r"(?P<name>[^\s=]+)(?P<value> (?P<optional>\[)?[A-Za-z]+(?(optional)\])(?P<more>\.\.\.)?)?\Z"
)
_CHOICES: dict[str, tuple[str, ...]] = {
    "reader": get_args(ReaderKind),
    "block_end": get_args(BlockEnd),
    "inject": get_args(InjectPolicy),
    "while_working": get_args(WhileWorking),
    "hooks": ("", *kinds.names()),
    "transcript": ("", *kinds.names()),
    "state": get_args(StateName),
    "kind": tuple(PromptKind),
    "positional": get_args(Positional),
    "class": get_args(ErrorClass),
    "source": get_args(ErrorSource),
    "dismiss": get_args(DismissKey),
}
RESET = "reset"
"""The group of a regex that is the time when a limit ends."""

MAX_BYTES = 1 << 20
"""Maximum bytes of a pattern file; the longest that ships with relay has less than 8,000."""

_MAX_DELAY = 10.0
"""Maximum seconds in a file; no agent needs more than 0.2 between a text and Enter."""


@dataclass(frozen=True, slots=True)
class PatternFile:
    """One table of a pattern file, at first the whole file.

    where: the name of the table and its number among those of that name, from 0; "" for the whole file.
    """

    path: Path
    text: str
    table: Mapping[str, object]
    where: tuple[str, int] = ("", 0)

    @classmethod
    def read(cls, path: Path) -> PatternFile:
        """Return the file at `path`. Raise ConfigError if it cannot be read or is not TOML."""
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ConfigError(f"it has more than {MAX_BYTES} bytes, so it is not a pattern file.", path)
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read it: {error}. Fix it or remove it.", path) from None
        values, _ = parse_toml(path, content)
        return cls(path, content.decode(), values)

    def fields(self, only: Collection[str] = ()) -> dict[str, Any]:
        """Return the checked values by the name of the Profile field; those of a table by its keys.

        only: these keys, if any are given. Raise ConfigError.
        """
        chosen = {key: value for key, value in self.table.items() if not only or key in only}
        return replace(self, table=chosen)._read(
            {
                "name": self._name,
                **dict.fromkeys(("commands", "checked"), self._words),
                "interactive": lambda key: tuple(table._interactive() for table in self._tables(key)),
                "reader": self._choice,
                **dict.fromkeys(
                    ("decoration", "error_mark"), lambda key: self._regex(key, self._string(key))
                ),
                "prefix": self._prefix,
                "inject": self._choice,
                "fullscreen": self._flag,
                "block_end": self._choice,
                "settle": self._delay,
                **dict.fromkeys(("prompts", "decisions", "questions", "dialogs", "executes"), self._regexes),
                "echo": lambda key: self._table(key)._style(),
                "code": lambda key: self._table(key)._style(),
                "submit": lambda key: self._table(key)._submit(),
                "states": self._states,
                "errors": lambda key: tuple(table._error_rule() for table in self._tables(key)),
                "input": lambda key: self._table(key)._input(),
                "native": lambda key: self._table(key)._native(),
                "resume": lambda key: self._table(key)._resume(),
            }
        )

    def _read(self, readers: Mapping[str, Callable[[str], object]]) -> dict[str, Any]:
        """Return the values of the table, each read by the reader of its key. Refuse an unknown key."""
        for key in self.table:
            if key not in readers:
                raise self._error(key, f"the key {key!r} is unknown; the keys are {', '.join(readers)}.")
        return {key: readers[key](key) for key in self.table}

    def _interactive(self) -> Interactive:
        options = dict.fromkeys(("run", "stay", "value"), lambda key: frozenset(self._words(key)))
        fields = self._read({"names": self._words, "words": self._count, **options})
        if "names" not in fields:
            raise self._error("", "an [[interactive]] table needs names.")
        return Interactive(**fields)

    def _style(self) -> dict[str, Any]:
        colours = dict.fromkeys(("backgrounds", "foregrounds"), self._colours)
        return self._read({**colours, "lines": self._regexes})

    def _submit(self) -> dict[str, Any]:
        return self._read({"delay": self._delay, "while_working": self._choice, "avoid": self._string})

    def _input(self) -> dict[str, Any]:
        marks = dict.fromkeys(("glyphs", "bullets"), self._string)
        return self._read({**marks, **dict.fromkeys(("placeholders", "idle"), self._regexes)})

    def _native(self) -> dict[str, Any]:
        return self._read({"hooks": self._hooks, "transcript": self._choice})

    def _hooks(self, key: str) -> str:
        value = self._choice(key)
        if value and not kinds.find(value).events:
            raise self._error(key, f"{value} has no hooks; {key} must be one of {', '.join(kinds.hooked())}.")
        return value

    def _resume(self) -> dict[str, Any]:
        options = dict.fromkeys(("keep", "drop", "refuse"), self._options)
        return self._read({"words": self._resuming, "positional": self._choice, **options})

    def _states(self, key: str) -> tuple[StateRule, ...]:
        rules: dict[str, StateRule] = {}
        for table in self._tables(key):
            rule = table._state()
            if rules.setdefault(rule.name, rule) is not rule:
                raise table._error("name", f"two state rules are called {rule.name!r}; rename one.")
        return tuple(rules.values())

    def _state(self) -> StateRule:
        fields = self._read(
            {
                "name": self._string,
                "state": self._choice,
                "kind": lambda key: PromptKind(self._choice(key)),
                "priority": self._count,
                "region": self._region,
                **dict.fromkeys(("all", "any", "none", "first", "last", "title"), self._regexes),
                "dismiss": self._choice,
            }
        )
        if not fields.get("name") or "state" not in fields:
            raise self._error("", "a [[states]] table needs a name and a state.")
        if not any(fields.get(key) for key in ("all", "any", "first", "last")):
            raise self._error("", "a [[states]] table needs regexes in all, any, first or last.")
        if ("kind" in fields) != (fields["state"] == "prompting"):
            raise self._error("", "a rule for prompting needs a kind; other rules must not have one.")
        if fields.get("dismiss") and fields["state"] != "prompting":
            raise self._error(
                "dismiss", "dismiss belongs only in a rule for prompting: relay dismisses only dialogs."
            )
        region, rows = fields.pop("region", ("screen", 0))
        return StateRule(**fields, region=region, rows=rows)

    def _error_rule(self) -> ErrorRule:
        readers = {"class": self._choice, "source": self._choice}
        fields = self._read({**readers, **dict.fromkeys(("match", "reset"), self._regexes)})
        if "class" not in fields or not fields.get("match"):
            raise self._error("", "an [[errors]] table needs a class and regexes in match.")
        for regex in fields.get("reset", ()):
            if RESET not in regex.groupindex:
                message = f"{regex.pattern!r} in reset has no group (?P<{RESET}>...) around the time."
                raise self._error("reset", message, near=regex.pattern)
        if fields.get("reset") and fields.get("source") == "code":
            raise self._error("reset", "a code contains no time; put reset in a table that matches text.")
        return ErrorRule(cls=fields.pop("class"), **fields)

    # -- values -----------------------------------------------------------------------------------------

    def _error(self, key: str, message: str, *, near: str = "") -> ConfigError:
        """Return an error about `key` of this table, or about the table; at `near`, if that follows it."""
        start, (name, number) = 0, self.where
        if name:
            headers = re.finditer(rf"^[ \t]*\[\[?[ \t]*{name}[ \t]*\]", self.text, re.MULTILINE)
            start = next((m.start() for n, m in enumerate(headers) if n == number), 0)
        written = rf"^[ \t]*(?:\[\[?[ \t]*)?{re.escape(key)}\b" if key else r"\S"
        place = re.compile(written, re.MULTILINE).search(self.text, start)
        if place is None:
            return ConfigError(message, self.path)
        at = max(place.start(), self.text.find(near, place.start()) if near else 0)
        return ConfigError(message, self.path, self.text.count("\n", 0, at) + 1)

    def _table(self, key: str) -> PatternFile:
        value = self.table[key]
        if not isinstance(value, dict):
            raise self._error(key, f"write it as a table that begins with the line [{key}].")
        return replace(self, table=value, where=(key, 0))

    def _tables(self, key: str) -> list[PatternFile]:
        tables = self.table[key]
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._error(key, f"write each as a table that begins with the line [[{key}]].")
        return [replace(self, table=table, where=(key, number)) for number, table in enumerate(tables)]

    def _string(self, key: str) -> str:
        value = self.table[key]
        if not isinstance(value, str):
            raise self._error(key, f"{key} must be a string in quotes.")
        return value

    def _name(self, key: str) -> str:
        value = self._string(key)
        if value != self.path.stem or not _NAME.match(value):
            names = f"name is {value!r}, but the file is called {self.path.name!r}"
            raise self._error(key, f"{names}; they must agree.")
        return value

    def _prefix(self, key: str) -> str:
        value = self._string(key)
        if not is_prefix(value):
            message = "prefix must be one character, but not a letter, digit, space, ':' or '\\'."
            raise self._error(key, message)
        return value

    def _flag(self, key: str) -> bool:
        value = self.table[key]
        if not isinstance(value, bool):
            raise self._error(key, f"{key} must be true or false.")
        return value

    def _count(self, key: str) -> int:
        value = self.table[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._error(key, f"{key} must be a whole number, 0 or more.")
        return value

    def _delay(self, key: str) -> float:
        value = self.table[key]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MAX_DELAY:
            raise self._error(key, f"{key} must be a number of seconds from 0 to {_MAX_DELAY:g}.")
        return float(value)

    def _choice(self, key: str) -> str:
        value = self._string(key)
        if value not in _CHOICES[key]:
            known = ", ".join(choice or '""' for choice in _CHOICES[key])
            raise self._error(key, f"{key} is {value!r}; it must be one of {known}.")
        return value

    def _region(self, key: str) -> tuple[str, int]:
        value = self._string(key)
        found = _REGION.match(value)
        if not found or (found[1] == "bottom") != (found[2] is not None):
            raise self._error(key, f'{key} is {value!r}; it must be "screen", "title" or "bottom N", N rows.')
        return found[1], int(found[2] or 0)

    def _words(self, key: str) -> tuple[str, ...]:
        value = self.table[key]
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self._error(key, f"{key} must be a list of strings.")
        return tuple(value)

    def _resuming(self, key: str) -> tuple[str, ...]:
        words = self._words(key)
        if words and sum(word.count("{id}") for word in words) != 1:
            raise self._error(key, f"{key} must have one {{id}}, the place of the conversation's id.")
        return words

    def _options(self, key: str) -> tuple[AgentOption, ...]:
        return tuple(self._option(key, text) for text in self._words(key))

    def _option(self, key: str, text: str) -> AgentOption:
        match = _OPTION.match(text)
        if match is None:
            message = f"{text!r} in {key} is not an option; write --name, --name X, --name [X] or --name X..."
            raise self._error(key, message, near=text)
        if match["value"] is None:
            return AgentOption(match["name"])
        return AgentOption(
            match["name"], "several" if match["more"] else "optional" if match["optional"] else "one"
        )

    def _colours(self, key: str) -> frozenset[int]:
        found = set()
        for text in self._words(key):
            match = _COLOUR.match(text)
            if match is None and text != "any":
                message = f"{text!r} in {key} is not a colour; write six hexadecimal digits, or any."
                raise self._error(key, message)
            found.add(int(match[1], 16) if match else ANY_COLOUR)
        return frozenset(found)

    def _regexes(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._regex(key, text) for text in self._words(key))

    def _regex(self, key: str, text: str) -> re.Pattern[str]:
        try:
            return re.compile(text)
        except re.error as error:
            message = f"{text!r} in {key} is not a regular expression: {error}."
            raise self._error(key, message, near=text) from None
