"""Leave a channel.

CHANNEL is a word, with or without its '#' (quote it in a shell). Outside an agent, you leave, or the agent
that --name names, running or not; inside a wrapped agent, that agent leaves. An agent rejoins the channels
that relay.toml or relay.config.py gives it when it starts.

  relay leave -n Bob ops
"""

from __future__ import annotations

import argparse

from relay import names
from relay.cli.arguments import add_json, add_member
from relay.cli.join import change
from relay.cli.output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    add_member(parser, "the agent that leaves")
    parser.add_argument("channel", metavar="CHANNEL", help="the channel: ops, or '#ops'")
    add_json(parser, "print a JSON object")


def run(args: argparse.Namespace) -> int:
    left, channel = change("leave", args), names.channel(args.channel)
    if args.json:
        print_json({"name": left.name, "channel": channel, "member": False, "changed": left.changed})
    else:
        print(f"{left.subject} no longer in #{channel}.")
    return 0
