"""The command line as data, read from the parsers of `relay.cli`: what the manual and the man page print."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

from relay import errors
from relay.cli.main import GROUPS, parser_of


@dataclass(frozen=True, slots=True)
class Argument:
    """An option or a positional argument.

    form: as it is written, such as `-t TEAM, --team TEAM`.
    """

    form: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or an action of one, such as `relay memory save`.

    description: paragraphs and indented blocks, as `--help` prints them; empty if the summary says it all.
    """

    name: str
    synopsis: str
    summary: str
    description: str
    arguments: tuple[Argument, ...]
    actions: tuple[Command, ...]

    def walk(self) -> Iterator[Command]:
        """Yield the command and its actions, depth first."""
        yield self
        for action in self.actions:
            yield from action.walk()


@dataclass(frozen=True, slots=True)
class ExitCode:
    code: str
    meaning: str


EXIT_CODES = (
    ExitCode("0", "The command did what was asked; a list may be empty."),
    ExitCode("1", "It failed, or found none. Standard error says why, and what to do next."),
    ExitCode(
        "2",
        "The command line is wrong: an unknown command, option or value, a malformed name, a missing file "
        "after `--config` or `--rules`.",
    ),
    ExitCode("70", "`relay wrap` and `relay attach`: relay was killed, so the agent's own code is unknown."),
    ExitCode("126", "`relay wrap`: the agent's command cannot be executed."),
    ExitCode("127", "`relay wrap`: the agent's command does not exist."),
    ExitCode("128+N", "`relay wrap` and `relay attach`: signal N ended the agent, 130 for SIGINT."),
    ExitCode("130", "Other commands: interrupted with Ctrl-C."),
    ExitCode("141", "Other commands: the reader of standard output has gone, as with `relay events | head`."),
)
"""What each exit code means. Otherwise `relay wrap` exits with the agent's own code."""


def error_codes() -> set[int]:
    """Return the exit code of every error that relay raises on purpose."""
    kinds = [errors.RelayError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {kind.exit_code for kind in kinds}


def groups() -> dict[str, tuple[Command, ...]]:
    """Return every command by the title of its group, in the order of `relay --help`."""
    return {title: tuple(_command(parser_of(name)) for name in names) for title, names in GROUPS.items()}


def _command(parser: argparse.ArgumentParser) -> Command:
    summary, _, description = (parser.description or "").partition("\n")
    actions = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    parsers = dict.fromkeys(actions.choices.values()) if actions else {}
    expand = parser.formatter_class(prog=parser.prog)._expand_help
    return Command(
        name=parser.prog,
        synopsis=_synopsis(parser),
        summary=summary.rstrip("."),
        description="\n\n".join(filter(None, (description.strip("\n"), parser.epilog))),
        arguments=tuple(
            Argument(_form(each), " ".join(expand(each).split()) if each.help else "")
            for each in parser._actions
            if each is not actions
            and each.help is not argparse.SUPPRESS
            and "--help" not in each.option_strings
        ),
        actions=tuple(map(_command, parsers)),
    )


def _form(action: argparse.Action) -> str:
    if not action.option_strings:
        return _values(action)
    values = _values(action)
    return ", ".join(f"{flag} {values}".rstrip() for flag in action.option_strings)


def _values(action: argparse.Action) -> str:
    """Return the values that an action takes, such as `[NAME]`; empty for a flag."""
    if action.nargs == 0:
        return ""
    named = action.metavar if isinstance(action.metavar, str) else None
    name = named or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if action.nargs in (argparse.REMAINDER, argparse.PARSER):
        return name if " " in name else f"{name} ..."
    return {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name)


def _synopsis(parser: argparse.ArgumentParser) -> str:
    """Return the usage in one line: options in their order, those that exclude one another side by side."""
    if parser.usage:
        return parser.usage
    options, positionals = [], []
    shown: set[argparse.Action] = set()
    exclusive = {each: group for group in parser._mutually_exclusive_groups for each in group._group_actions}
    for action in parser._actions:
        if action in shown or action.help is argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        group = exclusive.get(action)
        together = group._group_actions if group else [action]
        shown.update(together)
        text = " | ".join(map(_short, together))
        if not action.option_strings and not group:
            positionals.append(text)
        else:
            required = group.required if group else action.required
            repeated = "..." if isinstance(action, argparse._AppendAction) else ""
            options.append((f"({text})" if group else text) if required else f"[{text}]{repeated}")
    return " ".join([parser.prog, *options, *positionals])


def _short(action: argparse.Action) -> str:
    return (
        f"{action.option_strings[0]} {_values(action)}".rstrip() if action.option_strings else _values(action)
    )


def paragraphs(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a description, each with True if it is an indented block, to be shown as it is."""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.split("\n")
        at = 0
        while at < len(lines):
            end = at + 1
            block = lines[at].startswith("  ")
            while end < len(lines) and lines[end].startswith("  ") == block:
                end += 1
            chunk = lines[at:end]
            yield block, "\n".join(line[2:] for line in chunk) if block else " ".join(" ".join(chunk).split())
            at = end
