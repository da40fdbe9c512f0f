"""The whole command line: find the module of a command, parse its arguments and run it.

A command is a word in GROUPS and a module of that name here, with `configure(parser)` and `run(args)`, which
returns the exit code. The first line of its docstring is its summary in the list, the rest its description.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from pathlib import Path

from relay.columns import columns_of_terminal
from relay.errors import UsageError
from relay.home import Home, share_home
from relay.names import suggest
from relay.text import visible

GROUPS = {
    "Run agents": ("wrap", "attach", "hold", "stop", "restart", "resume", "reload", "forget"),
    "See and answer": ("top", "web", "ps", "next", "answer", "inbox"),
    "Run a fleet": ("init", "up", "down", "spawn", "service"),
    "Talk": ("send", "messages", "retry", "drop", "release", "join", "leave", "channels"),
    "Remember": ("memory",),
    "Look inside": ("peek", "logs", "explain", "usage", "events", "audit", "replay", "inspect", "agents"),
    "Set up": ("trust", "hook", "hooks", "mcp", "broker", "doctor", "completion", "demo"),
}

_EPILOG = """\
A first step: `relay demo` shows two agents greeting each other.
Then, in two terminals: `relay wrap -n Alice claude` and `relay wrap -n Bob codex`.
"""


COMMANDS = tuple(name for names in GROUPS.values() for name in names)

_MEANT = {
    "top": "htop watch monitor",
    "web": "dashboard ui gui browser",
    "ps": "list ls status sessions",
    "stop": "kill quit exit end rm remove",
    "wrap": "run start exec new",
    "attach": "open fg connect switch",
    "attach --view": "view",
    "peek": "screen show capture",
    "logs": "log output",
    "logs -f": "tail",
    "inbox": "mail notifications",
    "send": "msg message tell say ask",
    "answer": "reply approve yes",
    "usage": "cost tokens stats",
    "events": "history journal",
    "explain": "why describe info",
    "memory save": "remember",
    "memory search": "recall",
    "join": "subscribe",
    "leave": "unsubscribe",
    "trust": "allow",
    "init": "setup",
    "doctor": "check",
    "--version": "version",
}
"""The commands meant by other words, which other programs use or users expect."""

_HOMELESS = frozenset({"completion", "demo", "doctor", "inspect"})
"""Commands that work without a home, or report themselves what is wrong with it."""

_ALIKE = 0.7
"""Minimum similarity of a suggested command, from 0 to 1: a wrong suggestion is worse than none."""


def dispatch(argv: list[str]) -> int:
    """Run one command line and return its exit code. Raise RelayError for a mistake by the user."""
    name = argv[0] if argv else "help"
    if name == "help" and len(argv) > 1:
        return dispatch([*argv[1:], "--help"])
    if name in {"-h", "--help", "help"}:
        print(overview())
        return 0
    if name not in COMMANDS:
        raise UsageError(f"{_mistake(name, argv)} `relay --help` lists the commands.")
    module = importlib.import_module(f"relay.cli.{name}")
    args = parser_of(name).parse_args(argv[1:])
    share_home(os.environ)
    if name not in _HOMELESS:
        Home.from_env().check()
    if not gc.isenabled():  # relay.__main__
        gc.freeze()
        gc.enable()
    code: int = module.run(args)
    sys.stdout.flush()
    return code


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns_of_terminal() - 2)


def parser_of(name: str) -> argparse.ArgumentParser:
    module = importlib.import_module(f"relay.cli.{name}")
    summary, _, description = (module.__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog=f"relay {name}",
        description=f"{summary}\n{description}".rstrip(),
        formatter_class=_Formatter,
    )
    module.configure(parser)
    return parser


def _mistake(name: str, argv: list[str]) -> str:
    """Return what is wrong with a command line that does not begin with a command, and a suggestion."""
    if name.startswith("-") and name != "-":
        found = [at for at, word in enumerate(argv) if word in COMMANDS]
        if not found:
            return f"unknown option {name!r}. Options go after the command."
        import shlex

        from relay.cli.command_line import level_of

        # `relay -t web ps`: a command's name may be an option's value.
        flags = {at: [flag for each in level_of(argv[at]).options for flag in each.flags] for at in found}
        at = next((at for at in found if name in flags[at]), found[0])

        line = shlex.join(["relay", argv[at], *argv[:at], *argv[at + 1 :]])
        return f"options go after the command: `{visible(line)}`."
    known = (command for command, words in _MEANT.items() if name.casefold() in words.split())
    meant = next(known, None) or suggest(name, COMMANDS, _ALIKE)
    hint = f" Did you mean `relay {meant}`?" if meant else ""
    return f"there is no command {name!r}.{hint}"


def overview() -> str:
    """Return what `relay --help` prints."""
    lines = ["relay wraps any agent CLI in a pseudo-terminal and lets agents talk to each other.", ""]
    lines += ["usage: relay COMMAND [ARG...]     `relay help COMMAND` explains one", ""]
    for title, names in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<10} {summary(name)}" for name in names), ""]
    return "\n".join(lines) + "\n" + _EPILOG


def summary(name: str) -> str:
    """Return the one-line help of a command: the first line of its source, which need not run."""
    with open(Path(__file__).with_name(f"{name}.py"), encoding="utf-8") as source:
        return source.readline().strip('"\n').rstrip(".")
