"""The command line as data, for completion: what may follow each command, according to its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from relay.cli.main import COMMANDS, parser_of, summary
from relay.dataclass import dataclass

NAMES, FILES, PROGRAMS, NOTHING = "names", "files", "programs", "nothing"
"""The kinds of values: names of running agents, files, programs to run, or values that cannot be listed."""

_KINDS = {"NAME": NAMES, "TO": NAMES, "NAME|FILE": NAMES, "[TEAM/]NAME": NAMES, "COMMAND [ARG...]": PROGRAMS}
_KINDS |= dict.fromkeys(("FILE", "DIR", "FILE|DIR", "OUT", "RECORDING"), FILES)

_OTHER_NAMES = {("wrap", "--name"), ("agents reset", "names")}
"""Options and arguments called NAME that do not name a running agent, but a new one or a profile."""


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


def levels() -> Iterator[Level]:
    """Yield every level of the command line, the start first."""
    commands = tuple((name, summary(name)) for name in COMMANDS)
    help = CommandOption(("-h", "--help"), "show help", None)
    version = CommandOption(("-V", "--version"), "show the version", None)
    yield Level("", (help, version), (*commands, ("help", "Show the help for a command")))
    yield Level("help", (), arguments=(COMMANDS,))
    for name in COMMANDS:
        yield from _levels(name, parser_of(name))


def flags(command: str) -> set[str]:
    """Return the options of a command, such as `--json`."""
    return {flag for option in next(_levels(command, parser_of(command))).options for flag in option.flags}


def _levels(path: str, parser: argparse.ArgumentParser) -> Iterator[Level]:
    options, arguments, words, repeats = [], [], [], False
    below = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            words = [(name, helps.get(name, "")) for name in action.choices]
            below = [*_all(path, action.choices)]
        elif action.option_strings:
            flags = tuple(action.option_strings)
            kind = None if action.nargs == 0 else _kind(path, action)
            options.append(CommandOption(flags, (action.help or "").replace("%%", "%"), kind))
        else:
            arguments.append(_kind(path, action))
            repeats = action.nargs in {"*", "+", argparse.REMAINDER}
    yield Level(path, tuple(options), tuple(words), tuple(arguments), repeats)
    yield from below


def _all(path: str, parsers: dict[str, argparse.ArgumentParser]) -> Iterator[Level]:
    for name, parser in parsers.items():
        yield from _levels(f"{path} {name}", parser)


def _kind(path: str, action: argparse.Action) -> str | tuple[str, ...]:
    if any((path, called) in _OTHER_NAMES for called in (*action.option_strings, action.dest)):
        return NOTHING
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.metavar is None:
        return NAMES if action.dest == "name" else NOTHING
    return _KINDS.get(str(action.metavar), NOTHING)
