"""Join a channel: receive the messages sent to it.

CHANNEL is a word, with or without its '#' (quote it in a shell). Outside an agent, you join, or the agent
that --name names, running or not; messages to the channel wait for an absent member, up to 100 of them.
Inside a wrapped agent, that agent joins. `relay leave` leaves the channel.

  relay join -n Bob ops
  relay send '#ops' The release is out
"""

from __future__ import annotations

import argparse
import sys

from relay import names
from relay.cli.arguments import add_json, add_member
from relay.cli.output import print_json
from relay.control import guard, sessions
from relay.dataclass import dataclass
from relay.errors import NoSuchSession
from relay.home import Home
from relay.messaging.ledger import Ledger


def configure(parser: argparse.ArgumentParser) -> None:
    add_member(parser, "the agent that joins")
    parser.add_argument("channel", metavar="CHANNEL", help="the channel: ops, or '#ops'")
    add_json(parser, "print a JSON object")


def run(args: argparse.Namespace) -> int:
    joined = change("join", args)
    channel = next(each for each in joined.channels if names.same(each, names.channel(args.channel)))
    if args.json:
        print_json({"name": joined.name, "channel": channel, "member": True, "changed": joined.changed})
    else:
        print(f"{joined.subject} in #{channel} {'now' if joined.changed else 'already'}.")
    if joined.notice:
        print(joined.notice, file=sys.stderr)
    return 0


@dataclass(frozen=True, slots=True)
class Membership:
    """The channels that `name` is in after a change. changed: False if nothing changed."""

    name: str
    changed: bool
    channels: tuple[str, ...]
    notice: str = ""

    @property
    def subject(self) -> str:
        """The beginning of a sentence about the member."""
        return "You are" if names.same(self.name, names.PERSON) else f"{self.name} is"


def change(operation: str, args: argparse.Namespace) -> Membership:
    """Join or leave the channel of `args`: through the member's session, or in the ledger if it has none.

    A session announces the change to the team at once; one in the ledger is announced when the member starts.
    Raise InvalidName, NotAllowed, NotAMember, SessionUnresponsive or LedgerError.
    """
    home, channel = Home.from_env().ensure(), names.channel(args.channel)
    advice = "an agent can only join and leave channels itself. Leave out --name and --team."
    who = guard.acting_as(home, operation, name=args.name, team=args.team, advice=advice)
    if who.agent is not None or who.name != names.PERSON:
        path = who.agent.socket if who.agent is not None else sessions.socket_of(home, who.team, who.name)
        try:
            answer = sessions.call(path, {"op": operation, "channel": channel})
            return Membership(answer["name"], answer["changed"], tuple(answer["channels"]))
        except NoSuchSession:
            if who.agent is not None:
                raise
    with Ledger(home.ledger) as ledger:
        changed, notice = True, ""
        if operation == "join":
            changed = ledger.channels.join(who.team, channel, who.name)
            known = ledger.registry.known(who.team)
            if not any(names.same(who.name, each) for each in (*known, names.PERSON)):  # perhaps misspelt
                meant = names.suggest(who.name, known)
                hint = f"; did you mean {meant}?" if meant else "."
                notice = f"No agent called {who.name} was ever in team {who.team}{hint}"
        else:
            ledger.channels.leave(who.team, channel, who.name)
        return Membership(who.name, changed, tuple(ledger.channels.of(who.team, who.name)), notice)
