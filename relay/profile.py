"""Profiles: what relay knows of one kind of agent, read from the TOML files under `patterns/`.

    patterns/NAME.toml            shipped: generic, shell, repl, fullscreen, and one per agent CLI
    <config>/patterns/NAME.toml   the user's: a new profile, or keys that override a shipped one's

Every key of a file, all but `name` optional:

    name        = "shell"
    commands    = ["claude"]      basenames (fnmatch patterns) that are always this program
    reader      = "auto"          auto | lines | screen
    decoration  = "..."           regex of what stands before the agent's own text in a line
    prefix      = "@"             the character that begins a directive
    inject      = "auto"          auto: typed into when safe; never: nothing is ever typed
    fullscreen  = false           its own interface lives on the alternate screen
    prompts     = ["..."]         regexes of the unfinished line that ask for ordinary input
    decisions   = ["..."]         regexes of an explicit choice, in that line or the one above it
    questions   = ["..."]         regexes of the unfinished line that ask for a decision or a secret
    dialogs     = ["..."]         regexes of a row near the cursor, where a program draws its own input
    executes    = ["..."]         regexes of the unfinished line of a program that runs what is typed

    [[interactive]]               programs that are this only while they run as a prompt
    names       = ["bash"]        basenames, as in commands
    words       = 0               words beside the options that leave it a prompt; one more is a script
    run         = ["-c"]          options that run something and end
    stay        = ["-s"]          options that make it a prompt all the same
    value       = ["-o"]          options followed by a value

A profile's `prompts`, `decisions`, `questions` and `dialogs` are added to those of generic.toml; `executes`
is not inherited, so that a shell whose user opted in (`inject = "auto"`) can be typed into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Literal

import tomli

from relay import data
from relay.errors import ConfigError
from relay.home import Home
from relay.settings import is_prefix

ReaderKind = Literal["auto", "lines", "screen"]
InjectPolicy = Literal["auto", "never"]

GENERIC = "generic"
"""The profile of a program that no other profile recognises."""

# Programs that run the command in their arguments; what they run is what counts.
_PREFIXES = frozenset({"command", "env", "exec", "nice", "nohup", "setsid", "stdbuf", "sudo", "time"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")


@dataclass(frozen=True, slots=True)
class Interactive:
    """Programs that are a prompt only when their arguments leave them one (module docstring)."""

    names: tuple[str, ...]
    words: int = 0
    run: frozenset[str] = frozenset()
    stay: frozenset[str] = frozenset()
    value: frozenset[str] = frozenset()

    def matches(self, command: str, arguments: Sequence[str]) -> bool:
        """Whether `command` (a basename) with `arguments` runs as a prompt."""
        if not any(fnmatchcase(command, name) for name in self.names):
            return False
        words, runs, stays = 0, False, False
        rest = iter(arguments)
        for argument in rest:
            if argument == "--":
                words += len(list(rest))
            elif argument == "-" or not argument.startswith("-"):
                words += 1
                if words > self.words:
                    break
            else:
                for option, joined in _options(argument, self.value):
                    runs = runs or option in self.run
                    stays = stays or option in self.stay
                    if option in self.value and not joined:
                        next(rest, None)
        return stays or not (runs or words > self.words)


def _options(argument: str, value: frozenset[str]) -> list[tuple[str, bool]]:
    """The options in one argument, each with whether its value is joined to it (`-xc`, `--a=b`)."""
    if argument.startswith("--"):
        name, equals, _ = argument.partition("=")
        return [(name, bool(equals))]
    found: list[tuple[str, bool]] = [(argument, False)] if len(argument) > 2 else []
    for place, letter in enumerate(argument[1:], start=2):
        option = "-" + letter
        joined = place < len(argument)
        found.append((option, joined))
        if option in value:
            break
    return found


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of agent. `path` is the file it comes from (the user's, where there is one)."""

    name: str
    path: Path
    commands: tuple[str, ...] = ()
    interactive: tuple[Interactive, ...] = ()
    reader: ReaderKind = "auto"
    decoration: re.Pattern[str] | None = None
    prefix: str = "@"
    inject: InjectPolicy = "auto"
    fullscreen: bool = False
    prompts: tuple[re.Pattern[str], ...] = ()
    decisions: tuple[re.Pattern[str], ...] = ()
    questions: tuple[re.Pattern[str], ...] = ()
    dialogs: tuple[re.Pattern[str], ...] = ()
    executes: tuple[re.Pattern[str], ...] = ()

    def recognises(self, argv: Sequence[str]) -> bool:
        """Whether `argv` starts this program; prefixes such as `env` and `sudo` must be gone."""
        if not argv:
            return False
        command = PurePath(argv[0]).name.removeprefix("-")  # a login shell's argv[0] is "-bash"
        return any(fnmatchcase(command, name) for name in self.commands) or any(
            rule.matches(command, argv[1:]) for rule in self.interactive
        )


def for_command(argv: Sequence[str], home: Home) -> Profile:
    """The profile of the program that `argv` starts; the generic one where none recognises it.

    Raises ConfigError for a pattern file that is wrong.
    """
    words = _unwrap(argv)
    return next((profile for profile in profiles(home) if profile.recognises(words)), load(GENERIC, home))


def load(name: str, home: Home) -> Profile:
    """The profile called `name`. Raises ConfigError when there is none, or its file is wrong."""
    known = profiles(home)
    for profile in known:
        if profile.name == name:
            return profile
    names = ", ".join(profile.name for profile in known)
    raise ConfigError(f"there is no agent profile {name!r}. Known are {names}; `relay agents` lists them.")


def fallback() -> Profile:
    """The generic profile as shipped, with none of the user's files: for when one of those is wrong."""
    return _profile([_files(data.directory("patterns"))[GENERIC]], None)


def profiles(home: Home) -> list[Profile]:
    """Every profile, the user's own before the shipped ones, each by name. Raises ConfigError."""
    shipped = _files(data.directory("patterns"))
    own = _files(home.config / "patterns")
    generic = _profile([path for path in (shipped.get(GENERIC), own.get(GENERIC)) if path], None)
    found = [generic]
    for name in [*own, *(name for name in shipped if name not in own)]:
        if name != GENERIC:
            found.append(_profile([path for path in (shipped.get(name), own.get(name)) if path], generic))
    return [*found[1:], generic]


def _files(directory: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(directory.glob("*.toml"))}


def _unwrap(argv: Sequence[str]) -> list[str]:
    """`argv` without leading `env`, `sudo`, `nohup`, ..., their options and assignments."""
    words = list(argv)
    while words and PurePath(words[0]).name in _PREFIXES:
        words.pop(0)
        while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
            words.pop(0)
    return words


def _profile(paths: Sequence[Path], generic: Profile | None) -> Profile:
    """One profile from its files, a later one's keys overriding an earlier one's."""
    merged: dict[str, Any] = {}
    for path in paths:
        merged |= _File.read(path).fields()
    base = generic or Profile(GENERIC, paths[-1])
    for key in ("reader", "decoration", "prefix", "inject", "fullscreen"):
        merged.setdefault(key, getattr(base, key))
    for key in ("prompts", "decisions", "questions", "dialogs"):
        merged[key] = (*merged.get(key, ()), *getattr(base, key))
    return Profile(**{**merged, "name": paths[-1].stem, "path": paths[-1]})


@dataclass(frozen=True, slots=True)
class _File:
    """A pattern file and what is in it; every complaint names the line."""

    path: Path
    text: str
    table: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> _File:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read it: {error}. Mend it or remove it.", path) from None
        try:
            return cls(path, text, tomli.loads(text))
        except tomli.TOMLDecodeError as error:
            raise ConfigError(f"not valid TOML: {error.msg}. Mend that line.", path, error.lineno) from None

    def fields(self) -> dict[str, object]:
        """The checked values, by the name of the Profile field."""
        readers: dict[str, Callable[[str], object]] = {
            "name": self._name,
            "commands": lambda key: self._words(key, self.table),
            "interactive": self._interactive,
            "reader": lambda key: self._choice(key, ("auto", "lines", "screen")),
            "decoration": lambda key: self._regex(key, self._string(key)),
            "prefix": self._prefix,
            "inject": lambda key: self._choice(key, ("auto", "never")),
            "fullscreen": self._flag,
            "prompts": self._regexes,
            "decisions": self._regexes,
            "questions": self._regexes,
            "dialogs": self._regexes,
            "executes": self._regexes,
        }
        for key in self.table:
            if key not in readers:
                raise self._error(key, f"the key {key!r} is not known; known are {', '.join(readers)}.")
        return {key: readers[key](key) for key in self.table}

    def _error(self, key: str, message: str) -> ConfigError:
        place = re.search(rf"^[ \t]*(?:\[\[?[ \t]*)?{re.escape(key)}\b", self.text, re.MULTILINE)
        line = self.text.count("\n", 0, place.start()) + 1 if place else None
        return ConfigError(message, self.path, line)

    def _string(self, key: str) -> str:
        value = self.table[key]
        if not isinstance(value, str):
            raise self._error(key, f"{key} must be a string in quotes.")
        return value

    def _name(self, key: str) -> str:
        value = self._string(key)
        if value != self.path.stem or not _NAME.match(value):
            raise self._error(
                key, f"name is {value!r}, and the file's name is {self.path.name!r}; they must agree."
            )
        return value

    def _prefix(self, key: str) -> str:
        value = self._string(key)
        if not is_prefix(value):
            raise self._error(
                key, "prefix must be one character, neither letter, digit, space, ':' nor '\\'."
            )
        return value

    def _flag(self, key: str) -> bool:
        value = self.table[key]
        if not isinstance(value, bool):
            raise self._error(key, f"{key} must be true or false.")
        return value

    def _choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._string(key)
        if value not in choices:
            raise self._error(key, f"{key} is {value!r}; it must be one of {', '.join(choices)}.")
        return value

    def _words(self, key: str, table: Mapping[str, object]) -> tuple[str, ...]:
        value = table[key]
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self._error(key, f"{key} must be a list of strings.")
        return tuple(value)

    def _regexes(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._regex(key, text) for text in self._words(key, self.table))

    def _regex(self, key: str, text: str) -> re.Pattern[str]:
        try:
            return re.compile(text)
        except re.error as error:
            raise self._error(key, f"{text!r} in {key} is not a regular expression: {error}.") from None

    def _interactive(self, key: str) -> tuple[Interactive, ...]:
        tables = self.table[key]
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._error(key, "write each as a table, beginning with a line [[interactive]].")
        return tuple(self._interactive_table(table) for table in tables)

    def _interactive_table(self, table: Mapping[str, object]) -> Interactive:
        for key in table:
            if key not in {"names", "words", "run", "stay", "value"}:
                raise self._error(
                    key, f"the key {key!r} is not known; known are names, words, run, stay, value."
                )
        if "names" not in table:
            raise self._error("interactive", "an [[interactive]] table needs names.")
        words = table.get("words", 0)
        if not isinstance(words, int) or isinstance(words, bool) or words < 0:
            raise self._error("words", "words must be a whole number, 0 or more.")
        run, stay, value = (
            frozenset(self._words(key, table)) if key in table else frozenset[str]()
            for key in ("run", "stay", "value")
        )
        return Interactive(self._words("names", table), words, run, stay, value)
