"""Leave a channel.

CHANNEL is a word, with or without its '#' (which a shell wants quoted). Outside of an agent it is you who
leaves, or the agent that --name names, running or not; inside a wrapped agent it is that agent. A channel
that relay.toml or relay.config.py gives an agent is joined again when the agent starts.

  relay leave -n Bob ops
"""

from __future__ import annotations

import argparse

from relay import names
from relay.cli.arguments import add_member
from relay.cli.join import change


def configure(parser: argparse.ArgumentParser) -> None:
    add_member(parser, "the agent that leaves")
    parser.add_argument("channel", metavar="CHANNEL", help="the channel: ops, or '#ops'")


def run(args: argparse.Namespace) -> int:
    print(f"{change('leave', args).subject} no longer in #{names.channel(args.channel)}.")
    return 0
