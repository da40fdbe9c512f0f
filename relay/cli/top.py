"""Show all agents on one screen, those that need you first, and deal with them.

The list has four groups: agents that need you (they ask a question, have failed, are held, or do not answer),
agents at work, agents that wait, and agents that have ended. The chosen agent's screen is shown live. Enter
attaches this terminal to it, and Ctrl-] d comes back; a shows its question, and a choice's number answers it;
m writes a message; r restarts and x stops it, and both ask first; ? lists all keys. The mouse chooses, too.

Each key does what the command of that name does: `relay attach`, `answer`, `send`, `restart`, `stop`,
`release`, `inbox`. NO_COLOR turns colours off. For a screen reader, `relay inbox --follow` prints what waits
for you line by line, and `relay ps` lists the agents.
"""

from __future__ import annotations

import argparse
import os

from relay.cli import attach
from relay.cli.arguments import add_team
from relay.control.board import look
from relay.control.guard import user_only
from relay.control.sessions import find_claim
from relay.errors import UsageError
from relay.home import Home


def configure(parser: argparse.ArgumentParser) -> None:
    add_team(parser, "only this team")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "top", "an agent may not use other agents. The user can, outside the session.")
    if not all(map(os.isatty, (0, 1, 2))) or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError(
            "top needs a terminal. `relay ps` prints the list once, `relay inbox --follow` lines."
        )
    from relay.top.app import Top

    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # set, but empty: Textual would obey it
    top = Top(
        lambda: look(home, args.team),
        lambda name, team: attach.to(find_claim(home, name, team), takeover=False),
    )
    top.run()
    return top.return_code or 0
