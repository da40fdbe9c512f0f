"""The words that may come next on the command line, according to its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from relay.cli.main import COMMANDS, parser_of, summary
from relay.control.name_claim import claimed_names
from relay.dataclass import dataclass
from relay.home import Home

NAMES, FILES, PROGRAMS, NOTHING = "names", "files", "programs", "nothing"
"""The kinds of values: names of running agents, files, programs to run, or values that cannot be listed."""

_KINDS = {"NAME": NAMES, "TO": NAMES, "NAME|FILE": NAMES, "[TEAM/]NAME": NAMES, "COMMAND [ARG...]": PROGRAMS}
_KINDS |= dict.fromkeys(("FILE", "DIR", "FILE|DIR", "OUT", "RECORDING"), FILES)

_OTHER_NAMES = {("wrap", "--name"), ("agents reset", "names")}
"""Options and arguments called NAME that do not name a running agent, but a new one or a profile."""

_PASSED_ON = "wrap"
"""The command whose words after the first argument are not relay's."""


@dataclass(frozen=True, slots=True)
class CommandOption:
    """An option. kind: the kind of its value, or the words to choose from; None for a switch."""

    flags: tuple[str, ...]
    help: str
    kind: str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Level:
    """A position on the command line: the start (path ""), after a command ("ps") or action ("memory save").

    words:     commands or actions that may follow, with their help.
    arguments: the kinds of its arguments, in order. repeats: the last one may be repeated.
    """

    path: str
    options: tuple[CommandOption, ...]
    words: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str | tuple[str, ...], ...] = ()
    repeats: bool = False


def complete(words: Sequence[str]) -> list[str]:
    """Return what may be the last of `words`, which follow `relay`: words, or words with a tab and help.

    `:files` and `:programs` stand for all of those. What does not begin like the last word is not left out.
    """
    *before, last = words or [""]
    level, value, at = level_of(""), None, 0
    for word in before:
        passed_on = level.path == _PASSED_ON and at > 0
        if passed_on or value is not None:
            value = None
        elif word in dict(level.words):
            level = level_of(f"{level.path} {word}".strip())
        elif (option := next((each for each in level.options if word in each.flags), None)) is not None:
            value = option.kind
        elif not word.startswith("-"):
            at += 1
    if value is None and last.startswith("-") and not (level.path == _PASSED_ON and at > 0):
        return [f"{flag}\t{option.help}" for option in level.options for flag in option.flags]
    if value is None and level.words:
        return [f"{word}\t{help}" for word, help in level.words if at == 0]
    kind = value or _argument(level, at)
    if kind == NAMES:
        return claimed_names(Home.from_env())
    return [*kind] if isinstance(kind, tuple) else [f":{kind}"] if kind in {FILES, PROGRAMS} else []


def _argument(level: Level, at: int) -> str | tuple[str, ...]:
    if at < len(level.arguments):
        return level.arguments[at]
    return NOTHING if not level.repeats else FILES if level.path == _PASSED_ON else level.arguments[-1]


def level_of(path: str) -> Level:
    """Return the start (""), or the level after a command ("ps") or an action ("memory save")."""
    name, *actions = path.split() or [""]
    if name == "help":
        return Level(name, (), arguments=(COMMANDS,))
    if name not in COMMANDS:
        words = ((each, summary(each)) for each in COMMANDS)
        help = CommandOption(("-h", "--help"), "show help", None)
        version = CommandOption(("-V", "--version"), "show the version", None)
        return Level("", (help, version), (*words, ("help", "Show the help for a command")))
    parser = parser_of(name)
    for action in actions:
        parser = next(each.choices[action] for each in _below(parser))
    return _level(path, parser)


def _below(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _level(path: str, parser: argparse.ArgumentParser) -> Level:
    options, arguments, words, repeats = [], [], [], False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            words = [(name, helps.get(name, "")) for name in action.choices]
        elif action.option_strings:
            flags = tuple(action.option_strings)
            kind = None if action.nargs == 0 else _kind(path, action)
            options.append(CommandOption(flags, (action.help or "").replace("%%", "%"), kind))
        else:
            arguments.append(_kind(path, action))
            repeats = action.nargs in {"*", "+", argparse.REMAINDER}
    return Level(path, tuple(options), tuple(words), tuple(arguments), repeats)


def _kind(path: str, action: argparse.Action) -> str | tuple[str, ...]:
    if any((path, called) in _OTHER_NAMES for called in (*action.option_strings, action.dest)):
        return NOTHING
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.metavar is None:
        return NAMES if action.dest == "name" else NOTHING
    return _KINDS.get(str(action.metavar), NOTHING)
