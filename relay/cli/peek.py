"""Show the current screen of a running agent, as text.

This does not attach, and the agent does not notice. --ansi keeps the colours; no other escape sequence of the
agent reaches your terminal. With --json: {"columns", "rows", "lines"}.

An agent may peek at itself, and at agents in its team whose setting `look` is "team".
"""

from __future__ import annotations

import argparse

from relay.cli.arguments import add_session
from relay.cli.output import print_json
from relay.control.sessions import find
from relay.home import Home
from relay.text import visible


def configure(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--ansi", action="store_true", help="with colours, as escape sequences")
    how.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    seen = find(Home.from_env(), args.name, args.team).ask({"op": "peek"})
    if args.json:
        print_json({key: seen[key] for key in ("columns", "rows", "lines")})
        return 0
    # The session's coloured rows contain nothing else that acts on a terminal (relay.terminal.render).
    rows = [str(row) for row in seen["ansi"]] if args.ansi else [visible(str(row)) for row in seen["lines"]]
    while rows and not rows[-1].strip():
        rows.pop()
    for row in rows:
        print(row.rstrip())
    return 0
