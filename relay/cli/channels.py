"""List the channels and their members.

A channel exists as long as it has a member. Members on other machines appear once relay has heard of them.
Inside a wrapped agent, lists the channels of that agent's team.
"""

from __future__ import annotations

import argparse

from relay.cli.arguments import add_json, add_team
from relay.cli.output import print_list
from relay.control import guard
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    add_team(parser, "only this team")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "an agent sees the channels of its own team only. Leave out --team."
    own = guard.as_itself(home, "channels", team=args.team, advice=advice)
    with Ledger(home.ledger) as ledger:
        channels = ledger.channels.all(own.team if own else args.team)
    print_list(
        args,
        channels,
        lambda each: {"channel": each.name, "team": each.team, "members": list(each.members)},
        lambda each: (f"#{each.name}", each.team, one_line(", ".join(each.members), None)),
        header=("CHANNEL", "TEAM", "MEMBERS"),
        empty="There are no channels. Create one with `relay join CHANNEL`, or with `relay join -n NAME "
        "CHANNEL` for an agent.",
    )
    return 0
