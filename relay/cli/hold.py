"""Give agents nothing more until you release them.

What an agent is doing goes on; messages, nudges and tasks wait. `relay release --agent NAME` lets it
continue, as does a prompt that you type into its terminal. A restart ends the hold, too.
"""

from __future__ import annotations

import argparse

from relay.cli.arguments import add_json, add_names, add_team
from relay.cli.output import Outcomes
from relay.control.guard import user_only
from relay.control.sessions import SESSION_TIMEOUT, find
from relay.home import Home
from relay.names import unique


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "the agents, as `relay ps` lists them", nargs="+")
    add_team(parser)
    add_json(parser, "print the outcome for each, as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "hold", "an agent may not hold another. The user can, outside the session.")
    with Outcomes(args) as report:
        for name in unique(args.names):
            with report.attempt(name, name=name, team=args.team):
                session = find(home, name, args.team)
                before = session.ask({"op": "hold"}, SESSION_TIMEOUT)["held"]
                said = f"{session.name} {'was held before' if before else 'is held'}."
                report.done(said, name=session.name, team=session.team, outcome="held")
    return 1 if report.failed else 0
