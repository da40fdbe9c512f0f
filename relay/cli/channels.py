"""List the channels and who is in them.

A channel is there as long as somebody is in it. Members on other machines are shown once they were heard of.
Inside a wrapped agent the list holds the channels of that agent's team.
"""

from __future__ import annotations

import argparse

from relay.control import guard
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.text import one_line, printable_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--team", metavar="TEAM", help="this team only")
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "an agent sees the channels of its own team only. Leave out --team."
    own = guard.as_itself(home, "channels", team=args.team, advice=advice)
    with Ledger(home.ledger) as ledger:
        channels = ledger.channels.all(own.team if own else args.team)
    if args.json:
        rows = [{"channel": each.name, "team": each.team, "members": list(each.members)} for each in channels]
        print(printable_json(rows, indent=2))
    elif not channels:
        print(
            "There is no channel. `relay join CHANNEL` makes one, `relay join -n NAME CHANNEL` for an agent."
        )
    else:
        table = [("CHANNEL", "TEAM", "MEMBERS")]
        table += [(f"#{each.name}", each.team, one_line(", ".join(each.members), 200)) for each in channels]
        widths = [max(len(row[column]) for row in table) for column in range(2)]
        for name, team, members in table:
            print(f"{name:{widths[0]}}  {team:{widths[1]}}  {members}")
    return 0
