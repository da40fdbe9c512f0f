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
    menu_keys   = ["..."]         regexes of the row that names the keys of a menu, where a colour, or a mark
                                  without numbers, shows the selected option; its group (?P<across>...)
                                  matches if they are side by side, (?P<several>...) if several can be chosen
    text_options = ["..."]        regexes of the options of a menu that take a text

    [echo]                        how it draws the text typed into it
    backgrounds = ["373737"]      colours, RRGGBB; "any" is every one except the terminal's own
    foregrounds = ["cba6f7"]
    lines       = ["..."]         regexes of rows that are never the agent's own words

    [code]                        how it draws a line of a code fence: the same keys

    [submit]
    delay = 0.3                   seconds between a text and Enter
    avoid = "!/@"                 characters that a typed text must not begin with

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
)
from relay.dataclass import dataclass
from relay.errors import ConfigError
from relay.settings import PREFIX
from relay.values import (
    FLAG,
    TEXT,
    Invalid,
    Keys,
    Spot,
    ValueKind,
    choice,
    number,
    parse_toml,
    plain,
    record,
    several,
    table,
    whole,
)

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")
_COLOUR = re.compile(r"#?([0-9A-Fa-f]{6})\Z")
_REGION = re.compile(r"(screen|title|bottom) ?([1-9]\d?)?\Z")
_OPTION = re.compile(
    r"(?P<name>[^\s=]+)(?P<value> (?P<optional>\[)?[A-Za-z]+(?(optional)\])(?P<more>\.\.\.)?)?\Z"
)
RESET = "reset"
"""The group of a regex that is the time when a limit ends."""

MAX_BYTES = 1 << 20
"""Maximum bytes of a pattern file; the longest that ships with relay has less than 8,000."""


@dataclass(frozen=True, slots=True)
class PatternFile:
    """A pattern file as it was read: its text, what that contains, and the spot of its top."""

    path: Path
    text: str
    values: Mapping[str, Any]
    top: Spot

    @classmethod
    def read(cls, path: Path) -> PatternFile:
        """Return the file at `path`. Raise ConfigError if it cannot be read or is not TOML."""
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ConfigError(f"it has more than {MAX_BYTES} bytes, so it is not a pattern file.", path)
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read it: {error}. Fix it or remove it.", path) from None
        values, top = parse_toml(path, content)
        return cls(path, content.decode(), values, top)

    def fields(self, only: Collection[str] = ()) -> dict[str, Any]:
        """Return the checked values by the name of the Profile field; those of a table by its keys.

        only: these keys, if any are given. Raise ConfigMistakes.
        """
        found = table(
            {key: self.values[key] for key in self.values if not only or key in only}, self.top, _KEYS
        )
        self.top.check()
        return found


# -- values ---------------------------------------------------------------------------------------------


def _name(value: Any, spot: Spot) -> str:
    text: str = TEXT.read(value, spot)
    if text != spot.path.stem or not _NAME.match(text):
        raise Invalid(f"name is {text!r}, but the file is called {spot.path.name!r}; they must agree.")
    return text


def _hooks(value: Any, spot: Spot) -> str:
    name: str = _KIND.read(value, spot)
    if name and not kinds.find(name).events:
        raise Invalid(f"{name} has no hooks; {spot.name} must be one of {', '.join(kinds.hooked())}.")
    return name


def _region(value: Any, spot: Spot) -> tuple[str, int]:
    found = _REGION.match(TEXT.read(value, spot))
    if not found or (found[1] == "bottom") != (found[2] is not None):
        raise Invalid(f'{spot.name} is {value!r}; it must be "screen", "title" or "bottom N", N rows.')
    return found[1], int(found[2] or 0)


def _resuming(value: Any, spot: Spot) -> tuple[str, ...]:
    words: tuple[str, ...] = _WORDS.read(value, spot)
    if words and sum(word.count("{id}") for word in words) != 1:
        raise Invalid(f"{spot.name} must have one {{id}}, the place of the conversation's id.")
    return words


def _option(value: Any, spot: Spot) -> AgentOption:
    match = _OPTION.match(_WORD.read(value, spot))
    if match is None:
        raise Invalid(
            f"{spot.name}: {value!r} is not an option; write --name, --name X, --name [X] or --name X..."
        )
    if match["value"] is None:
        return AgentOption(match["name"])
    return AgentOption(
        match["name"], "several" if match["more"] else "optional" if match["optional"] else "one"
    )


def _colour(value: Any, spot: Spot) -> int:
    if value == "any":
        return ANY_COLOUR
    match = _COLOUR.match(_WORD.read(value, spot))
    if match is None:
        raise Invalid(f"{spot.name}: {value!r} is not a colour; write six hexadecimal digits, or any.")
    return int(match[1], 16)


def _regex(value: Any, spot: Spot) -> re.Pattern[str]:
    try:
        return re.compile(_WORD.read(value, spot))
    except re.error as error:
        raise Invalid(f"{spot.name}: {value!r} is not a regular expression: {error}.") from None


def _reset(value: Any, spot: Spot) -> re.Pattern[str]:
    regex = _regex(value, spot)
    if RESET not in regex.groupindex:
        raise Invalid(f"{spot.name}: {value!r} has no group (?P<{RESET}>...) around the time.")
    return regex


def _set_of(kind: ValueKind) -> ValueKind:
    return ValueKind(kind.form, lambda value, spot: frozenset(kind.read(value, spot)))


_WORD = plain(str, "a string that is not empty", bool)
_WORDS = several(_WORD, "a list of strings")
_OPTIONS = several(ValueKind("an option", _option), "a list of strings")
_COLOURS = _set_of(several(ValueKind("a colour", _colour), "a list of strings"))
_REGEX = ValueKind("a regex", _regex)
_REGEXES = several(_REGEX, "a list of strings")
_SECONDS = number("seconds", most=10)  # no agent needs more than 0.2 between a text and Enter
_KIND = choice(("", *kinds.names()))
_PROMPT = choice(tuple(PromptKind))


# -- tables ---------------------------------------------------------------------------------------------


def _table(keys: Keys) -> ValueKind:
    return ValueKind("a table", lambda value, spot: table(value, spot.table(), keys))


def _tables(name: str, keys: Keys, make: Callable[[dict[str, Any], Spot], Any]) -> ValueKind:
    one, form = record(keys, make), f"tables, each of which begins with the line [[{name}]]"
    return several(ValueKind(one.form, lambda value, spot: one.read(value, spot.table())), form)


def _interactive(given: dict[str, Any], spot: Spot) -> Interactive:
    if "names" not in given:
        raise Invalid("an [[interactive]] table needs names.")
    return Interactive(**given)


def _state(given: dict[str, Any], spot: Spot) -> StateRule:
    if not given.get("name") or "state" not in given:
        raise Invalid("a [[states]] table needs a name and a state.")
    if not any(given.get(key) for key in ("all", "any", "first", "last")):
        raise Invalid("a [[states]] table needs regexes in all, any, first or last.")
    if ("kind" in given) != (given["state"] == "prompting"):
        raise Invalid("a rule for prompting needs a kind; other rules must not have one.")
    if given.get("dismiss") and given["state"] != "prompting":
        spot.at("dismiss").wrong(
            "dismiss belongs only in a rule for prompting: relay dismisses only dialogs."
        )
    region, rows = given.pop("region", ("screen", 0))
    return StateRule(**given, region=region, rows=rows)


def _states(value: Any, spot: Spot) -> tuple[StateRule, ...]:
    rules: dict[str, StateRule] = {}
    for place, rule in enumerate(_STATES.read(value, spot)):
        if rule and rules.setdefault(rule.name, rule) is not rule:
            spot.at(place, "name").wrong(f"two state rules are called {rule.name!r}; rename one.")
    return tuple(rules.values())


def _error(given: dict[str, Any], spot: Spot) -> ErrorRule:
    if "class" not in given or not given.get("match"):
        raise Invalid("an [[errors]] table needs a class and regexes in match.")
    if given.get("reset") and given.get("source") == "code":
        spot.at("reset").wrong("a code contains no time; put reset in a table that matches text.")
    return ErrorRule(cls=given.pop("class"), **given)


_STYLE = {"backgrounds": _COLOURS, "foregrounds": _COLOURS, "lines": _REGEXES}
_SUBMIT = {"delay": _SECONDS, "avoid": TEXT}
_INPUT = {"glyphs": TEXT, "bullets": TEXT, "placeholders": _REGEXES, "idle": _REGEXES}
_NATIVE = {"hooks": ValueKind(_KIND.form, _hooks), "transcript": _KIND}
_RESUME = {
    "words": ValueKind(_WORDS.form, _resuming),
    "positional": choice(get_args(Positional)),
    **dict.fromkeys(("keep", "drop", "refuse"), _OPTIONS),
}
_STATE = {
    "name": TEXT,
    "state": choice(get_args(StateName)),
    "kind": ValueKind(_PROMPT.form, lambda value, spot: PromptKind(_PROMPT.read(value, spot))),
    "priority": whole(),
    "region": ValueKind("a region", _region),
    **dict.fromkeys(("all", "any", "none", "first", "last", "title"), _REGEXES),
    "dismiss": choice(get_args(DismissKey)),
}
_STATES = _tables("states", _STATE, _state)
_ERROR = {
    "class": choice(get_args(ErrorClass)),
    "match": _REGEXES,
    "reset": several(ValueKind("a regex", _reset), "a list of strings"),
    "source": choice(get_args(ErrorSource)),
}
_INTERACTIVE = {"names": _WORDS, "words": whole(), **dict.fromkeys(("run", "stay", "value"), _set_of(_WORDS))}

_KEYS = {
    "name": ValueKind("a string", _name),
    "commands": _WORDS,
    "checked": _WORDS,
    "reader": choice(get_args(ReaderKind)),
    "decoration": _REGEX,
    "prefix": PREFIX,
    "inject": choice(get_args(InjectPolicy)),
    "fullscreen": FLAG,
    "block_end": choice(get_args(BlockEnd)),
    "settle": _SECONDS,
    **dict.fromkeys(("prompts", "decisions", "questions", "dialogs", "executes"), _REGEXES),
    **dict.fromkeys(("menu_keys", "text_options"), _REGEXES),
    "error_mark": _REGEX,
    "echo": _table(_STYLE),
    "code": _table(_STYLE),
    "submit": _table(_SUBMIT),
    "input": _table(_INPUT),
    "native": _table(_NATIVE),
    "resume": _table(_RESUME),
    "states": ValueKind(_STATES.form, _states),
    "errors": _tables("errors", _ERROR, _error),
    "interactive": _tables("interactive", _INTERACTIVE, _interactive),
}
