"""Arguments that several commands share, and the types of their values."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable

from relay import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Protocol

    class Arguments(Protocol):
        """A parser, or a group of its arguments."""

        def add_argument(self, *flags: str, action: str, default: Any, help: str) -> Any: ...


LATEST = 50
"""Entries that a list shows by default."""


def add_actions(parser: ArgumentParser, *, required: bool = True) -> Callable[[str, str], ArgumentParser]:
    """Return a function that adds the action `name`, with its `help`; the chosen one is `args.action`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required)
    return lambda name, help: actions.add_parser(name, help=help, description=help)


def add_team(parser: ArgumentParser, help: str = "in this team only") -> None:
    parser.add_argument("-t", "--team", type=team_name, help=help)


def add_member(parser: ArgumentParser, does: str) -> None:
    """Add --name and --team. does: the member's part in a phrase, such as "the agent that joins"."""
    help = f"{does} (default: you; in an agent, the agent)"
    parser.add_argument("-n", "--name", type=agent_name, help=help)
    add_team(parser, "its team (default: RELAY_TEAM, else 'default')")


def add_session(parser: ArgumentParser) -> None:
    """Add NAME and --team, which `sessions.find` takes."""
    parser.add_argument("name", type=agent_name, metavar="NAME", help="the session, as `relay ps` lists it")
    add_team(parser)


def add_names(parser: ArgumentParser, help: str, *, nargs: Literal["*", "+"] = "*") -> None:
    """Add NAME, the agents of a command that takes several."""
    parser.add_argument("names", nargs=nargs, type=agent_name, metavar="NAME", help=help)


def add_json(parser: Arguments, help: str = "print a JSON list", *, below: bool = False) -> None:
    """Add --json. below: for an action whose command has --json, too; either may be given."""
    parser.add_argument("--json", action="store_true", default=SUPPRESS if below else False, help=help)


def add_limit(parser: ArgumentParser) -> None:
    """Add -n and --all, which `output.latest` takes."""
    length = parser.add_mutually_exclusive_group()
    help = f"the latest N (default: {LATEST}, with --json all)"
    length.add_argument("-n", "--limit", type=positive, metavar="N", help=help)
    length.add_argument("--all", action="store_true", help="all of them")


def agent_name(text: str) -> str:
    """Return the name of an agent or of the user. Raise InvalidName, as for the empty value of "$NAME"."""
    return names.well_formed(text)


def team_name(text: str) -> str:
    """Return the name of a team. Raise InvalidName."""
    return names.well_formed(text, "team")


def positive(text: str) -> int:
    """Return a whole number above 0 that C can hold. Raise ValueError, which argparse reports."""
    value = int(text)
    if not 0 < value <= sys.maxsize:
        raise ValueError(text)
    return value


def seconds(text: str) -> float:
    """Return a number of seconds, up to thirty years. Raise ValueError, which argparse reports."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def port(text: str) -> int:
    """Return the number of a TCP port. Raise ValueError, which argparse reports."""
    value = int(text)
    if not 0 < value < 65536:
        raise ValueError(text)
    return value
