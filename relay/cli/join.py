"""Join a channel: hear what is sent to it.

CHANNEL is a word, with or without its '#' (which a shell wants quoted). Outside of an agent it is you who
joins, or the agent that --name names, running or not; what was sent to the channel waits for a member that
is away, up to 100 messages of it. Inside a wrapped agent it is that agent. `relay leave` is the way back.

  relay join -n Bob ops
  relay send '#ops' The release is out
"""

from __future__ import annotations

import argparse
import sys

from relay import names
from relay.cli.arguments import add_member
from relay.control.membership import Membership, change
from relay.home import Home


def configure(parser: argparse.ArgumentParser) -> None:
    add_member(parser, "the agent that joins")
    parser.add_argument("channel", metavar="CHANNEL", help="the channel: ops, or '#ops'")


def run(args: argparse.Namespace) -> int:
    joined = change(Home.from_env().ensure(), "join", args.channel, name=args.name, team=args.team)
    channel = next(each for each in joined.channels if names.same(each, names.channel(args.channel)))
    print(f"{who(joined)} in #{channel} {'now' if joined.changed else 'already'}.")
    if joined.notice:
        print(joined.notice, file=sys.stderr)
    return 0


def who(member: Membership) -> str:
    """Return the beginning of a sentence about `member`."""
    return "You are" if names.same(member.name, names.PERSON) else f"{member.name} is"
